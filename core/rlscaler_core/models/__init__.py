"""The policies that come with the package: `ppo.onnx` and its manifest `ppo.json` (`rlscaler train --install`)."""
