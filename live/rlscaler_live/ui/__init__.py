"""`rlscaler ui`: a read-only page on the policies of a cluster, served on loopback with the user's own rights."""
