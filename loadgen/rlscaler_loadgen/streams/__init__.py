"""Kafka under load: a producer that follows a pattern, and a group of consumers that stands for a Deployment's pods."""
