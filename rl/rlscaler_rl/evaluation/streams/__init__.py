"""Simulated consumers of a Kafka topic under several autoscalers: command, loads, simulation and table."""
