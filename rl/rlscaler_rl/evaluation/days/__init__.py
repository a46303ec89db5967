"""Whole days of real load: the cost of every autoscaler on them, with the days before as history."""
