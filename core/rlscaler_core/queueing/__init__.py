"""A small queueing model of one service with two pools: what Shadow scoring advances between two ticks."""
