"""What a service's own past says about its load: how far it rises within a cold start, and at which minutes it jumps.

`memory` lays out what is kept of a service: two rows of numbers in `State`. `learn` takes in every fresh arrival rate.
`rises` is the distribution of the highest rate within one cold start, recalibrated on the service; `calendar` the
minutes at which the load jumps; `season` the level by time of day. `outlook` joins them to the rate that capacity is to
be held for, and `storage` turns the memory into bytes and back.
"""
