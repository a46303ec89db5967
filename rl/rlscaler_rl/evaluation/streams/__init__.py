"""Consumers of a Kafka topic under several autoscalers, simulated: the command, what is played, and its table."""
