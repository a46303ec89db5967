"""Consumer groups on a real broker, and the same groups in the stream level of the simulator."""
