"""`rlscaler demo llm`: emulated vLLM servers under a mix that drifts and surges."""
