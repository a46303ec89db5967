"""The commands that talk to a cluster or read decision logs."""
