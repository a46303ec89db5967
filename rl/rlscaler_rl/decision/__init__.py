"""One decision function, unchanged in training, evaluation, replay, Shadow mode and live.

Pure array functions, `(params, state, samples) -> (decision, state')`, over N policies or episodes at once;
numpy, onnxruntime and pydantic only.
"""
