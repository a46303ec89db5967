"""What holds for every test."""

from __future__ import annotations

from hypothesis import settings

# How long an example takes is the machine's affair; a deadline would make a busy one's pause a failure.
settings.register_profile("tests", deadline=None)
settings.load_profile("tests")
