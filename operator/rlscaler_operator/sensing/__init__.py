"""Measurement: queries to Prometheus and Kafka, their answers as readings, and samples for the decision."""
