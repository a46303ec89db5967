"""Pictures of a result. Each function draws one and returns a matplotlib Figure, without a display."""
