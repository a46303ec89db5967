"""Whole days of real load: what every autoscaler costs on them, with the days before as history."""
