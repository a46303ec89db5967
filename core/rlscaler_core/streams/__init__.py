"""Production, service rate and lag from the offsets of a Kafka topic and of a consumer group. NumPy only."""

from rlscaler_core.streams.measure import Measured, measure
from rlscaler_core.streams.tables import Look, Memory, initial_memory, with_partitions

__all__ = ["Look", "Measured", "Memory", "initial_memory", "measure", "with_partitions"]
