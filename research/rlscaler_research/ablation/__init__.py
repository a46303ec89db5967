"""What each part of the training is worth: one change at a time, several seeds, results kept."""
