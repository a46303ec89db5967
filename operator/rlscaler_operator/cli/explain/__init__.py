"""Explanation of one decision: what was seen, what was asked for, what each guard and each signal had to do with it."""
