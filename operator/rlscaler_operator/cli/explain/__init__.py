"""Explaining one recorded decision: what was seen, what the actor wanted, which guard changed it, what would have."""
