"""Other ways of scaling the same two pools: what the trained policy is compared with."""
