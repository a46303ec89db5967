"""The decision log: one JSON line per decision, enough to take it again."""
