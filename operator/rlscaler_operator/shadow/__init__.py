"""Comparing a policy with the service that really runs: a simulated service beside the real one, their figures day by
day, and whether the policy may act."""
