"""State of every policy between two ticks."""
