"""Placement on the development cluster: nodes to choose from, a second kube-scheduler, the suggestion server."""
