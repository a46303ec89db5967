"""Commands that run the operator, talk to a cluster, or read decision logs."""
