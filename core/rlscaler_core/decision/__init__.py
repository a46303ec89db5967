"""One decision function, unchanged in training, evaluation, replay, Shadow mode and live.

Pure array functions, `(params, state, samples) -> (decision, state')`, over N policies or episodes at once;
numpy, onnxruntime and pydantic only.
"""

import os

# ONNX Runtime's released builds send usage data to their maker unless this is set before the library is loaded.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
