"""How large the pods of a pool should be."""
