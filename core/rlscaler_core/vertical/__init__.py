"""Vertical scaling: CPU and memory requests of the pods of a pool."""
