"""Pictures. Each module draws one and returns a matplotlib Figure; nothing here needs a display."""
