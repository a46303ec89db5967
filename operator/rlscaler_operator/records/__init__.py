"""The decision log, which holds one JSON line per decision: enough to take the decision again."""
