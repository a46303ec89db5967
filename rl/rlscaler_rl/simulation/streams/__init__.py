"""The stream level: consumer groups of a topic, their rebalances and their lag, N groups at once."""
