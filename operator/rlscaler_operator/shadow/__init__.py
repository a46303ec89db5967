"""Judging a policy beside what really runs: virtual services, their score day by day, and what follows from it."""
