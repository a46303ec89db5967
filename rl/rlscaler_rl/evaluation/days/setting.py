"""Worlds that days are played in: an exact world, as declared, and a world as uncertain as a cluster of users.

In the uncertain world the capacity of a replica is off the declared one by a constant error, and in every second row it
swings within the day. No contender knows the error: policies have their measurements, HPA and Knative read utilization
and rates of their own, and KEDA divides by the declared number, as in a cluster. Starts cost seconds of a pod's price.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from rlscaler_rl.results.document import Document
from rlscaler_rl.workloads.names import DRIFT, ERRORS, SCRAPE_SECONDS

Pools = Literal["both", "gpu"]
POOLS: tuple[Pools, ...] = ("both", "gpu")


class Setting(Document):
    """Pools, sensors and true capacity that a day was played with."""

    pools: Pools = "both"
    scrape: int = 2
    """Seconds between two scrapes."""

    error: float = 0.0
    """True capacity of a replica over the declared one, minus 1."""

    drift: float = 0.0
    """Relative amplitude of its swing within a day."""


@dataclass(frozen=True, slots=True)
class World:
    """Settings that every day is played in."""

    errors: tuple[float, ...] = (0.0,)
    """True capacity of a replica over the declared one, minus 1."""

    drift: float = 0.0
    """Relative amplitude of its swing within a day, in every second row."""

    fall: float = 0.0
    """Part of the capacity that is lost in the middle of a day."""

    pools: tuple[Pools, ...] = ("both",)
    scrapes: tuple[int, ...] = (2,)
    """Seconds between two scrapes; the second and later ones for loads alone that are known by the second."""

    exact: bool = True
    """Starts are free, replicas are bounded by the nominal service, and all read the same sensors."""

    def settings(self, by_second: bool, place: int) -> list[Setting]:
        """Return the settings of a day; `place` is its number among all days, so that half of the rows swing."""
        scrapes = self.scrapes if by_second else self.scrapes[:1]
        return [
            Setting(pools=pools, scrape=scrape, error=error, drift=self.drift * ((place + i + j + k) % 2))
            for i, pools in enumerate(self.pools)
            for j, scrape in enumerate(scrapes)
            for k, error in enumerate(self.errors)
        ]


EXACT = World()
UNCERTAIN = World(errors=ERRORS, drift=DRIFT, pools=POOLS, scrapes=(SCRAPE_SECONDS, 2), exact=False)
WORLDS = {"uncertain": UNCERTAIN, "exact": EXACT}
