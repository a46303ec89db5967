"""Seconds from a step of a metric to the patch of `spec.replicas`: this operator, the HPA and KEDA."""
