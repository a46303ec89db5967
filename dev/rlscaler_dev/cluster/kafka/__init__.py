"""Apache Kafka beside the control plane: one broker, without containers."""
