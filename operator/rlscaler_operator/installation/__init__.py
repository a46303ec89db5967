"""What an installation needs besides the operator itself: checking that it works, and letting go before it goes."""
