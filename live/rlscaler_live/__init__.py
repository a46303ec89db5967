"""The part that needs both operator and learning: the rlscaler command, and training and playing on a real cluster."""
