"""`rlscaler preflight`: what a policy needs of the cluster and of Prometheus, asked with the operator's own code."""
