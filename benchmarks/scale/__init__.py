"""From a step of a metric to `spec.replicas` patched: this operator, the HorizontalPodAutoscaler and KEDA."""
