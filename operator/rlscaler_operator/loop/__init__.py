"""The tick: which policies are due, one batch of decisions, then apply and report for each policy."""
