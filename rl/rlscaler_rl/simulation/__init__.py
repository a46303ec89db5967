"""A load-causal simulator of one service on two pools, many episodes at a time, seeded throughout."""

from rlscaler_rl.simulation.compiled import use_cache_of_these_sources

use_cache_of_these_sources()
