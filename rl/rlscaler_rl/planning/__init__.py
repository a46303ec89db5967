"""Plans for a load that is known in full: what perfect foresight can reach."""
