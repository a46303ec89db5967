"""Which pod of a pool answers a request: the rules of rlscaler_loadgen.service.router, by name."""

from __future__ import annotations

ROUTERS = ("least_loaded", "random", "round_robin", "power_of_two", "central")
"""`least_loaded`: fewest requests waiting or in service (the emulated service's default). `random`: kube-proxy.
`round_robin`: in turn. `power_of_two`: the less loaded of two at random. `central`: one queue for the whole pool,
which no router reaches and every one is measured against."""

LEAST_LOADED, RANDOM, ROUND_ROBIN, POWER_OF_TWO, CENTRAL = range(len(ROUTERS))
