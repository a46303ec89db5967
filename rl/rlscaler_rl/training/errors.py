"""Errors of a training run."""


class TrainingError(RuntimeError):
    """Base of training's errors."""


class CheckpointError(TrainingError):
    """A checkpoint that cannot be read; the message names the file and the reason."""


class DivergedError(TrainingError):
    """A number that is not finite; the message names the step, the saved batch and the last good checkpoint."""


class DistributionError(TrainingError):
    """Runs cannot be distributed; the message names the missing part."""
