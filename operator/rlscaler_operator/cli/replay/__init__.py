"""Taking recorded decisions again: reading audit logs, finding the actors, comparing."""
