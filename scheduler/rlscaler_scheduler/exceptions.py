"""What keeps a program of this package from beginning."""


class SchedulerError(Exception):
    """The program cannot begin; the message says what to do."""
