"""PPO on the simulator: from a configuration to an ONNX actor with its manifest."""
