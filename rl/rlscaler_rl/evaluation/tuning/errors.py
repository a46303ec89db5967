"""What goes wrong with tuned settings."""

from __future__ import annotations


class TuningError(Exception):
    """Says which contender or file, and the remedy."""
