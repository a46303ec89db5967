"""Training and playing on a real cluster, in real time: `--env cluster`."""
