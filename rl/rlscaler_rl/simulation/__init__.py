"""A load-causal simulator of one service on two pools, many episodes at a time, seeded throughout."""
