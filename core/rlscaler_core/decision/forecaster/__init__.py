"""Forecast from a service's own past: the rise of its load within a cold start, and the minutes at which it jumps.

`memory` is the layout of a service's memory: two rows of numbers in `State`. `learn` takes in every fresh arrival rate.
`rises` is the distribution of the highest rate within one cold start, recalibrated on the service; `calendar` the
minutes at which the load jumps; `season` the level by time of day. `outlook` joins them to the rate that capacity is to
be held for, and `storage` turns the memory into bytes and back.
"""
