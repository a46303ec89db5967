"""`rlscaler explain`: signals, action and guards of one decision, and the variants that would have changed it."""
