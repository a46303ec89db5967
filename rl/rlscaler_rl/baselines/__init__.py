"""Other ways of scaling the same two pools, as contenders of the trained policy."""
