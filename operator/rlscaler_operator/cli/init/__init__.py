"""`rlscaler init`: a policy in Shadow for a service on the cluster, with a comment for every guess."""
