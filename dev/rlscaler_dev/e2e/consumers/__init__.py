"""Consumers of a Kafka topic as containers of the real node, scaled by a policy that reads the stream."""
