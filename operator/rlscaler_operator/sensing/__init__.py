"""What the operator measures: queries to Prometheus, their answers as readings, and samples for the decision."""
