"""A small queueing model of one service with two pools, which Shadow scoring advances between two ticks."""
