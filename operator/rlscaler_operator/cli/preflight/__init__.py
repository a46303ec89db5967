"""`rlscaler preflight`: checks of a policy's requirements to cluster and Prometheus, by the operator's own code."""
