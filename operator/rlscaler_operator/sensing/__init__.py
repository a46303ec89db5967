"""What the operator knows: Prometheus for load and utilization, the watch cache for replicas and pods."""
