"""A real Kubernetes control plane on one machine, without containers: builder, launcher and command line."""
