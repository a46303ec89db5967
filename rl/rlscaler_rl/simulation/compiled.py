"""Where compiled kernels are kept: apart for every state of their sources.

Numba asks whether the file of a cached function has changed, not whether those of the functions it calls have. A kernel
built from several files would go on measuring as before one of them was corrected.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from pathlib import Path

import numba

KERNELS = ("cluster", "compiled", "fluid", "pods", "queues", "requests", "routers", "sensing", "tables")
"""Modules whose functions or constants are compiled."""

INNER = {"_nrt": False, "forceinline": True}
"""Numba options of functions that only kernels call and that make no arrays: the arguments are borrowed and the body is
put where it is called. Else every call passes on, counts and uncounts each array of the named tuples, atomically,
which took more than half of the time (docs/decisions/0034)."""


def use_cache_of_these_sources() -> None:
    """Point numba's cache to a folder of this package's sources: below `NUMBA_CACHE_DIR`, or the user's cache."""
    digest = hashlib.sha256()
    for name in KERNELS:
        digest.update(Path(__file__).with_name(f"{name}.py").read_bytes())
    numba.config.CACHE_DIR = str(_base() / digest.hexdigest()[:16])


def _base() -> Path:
    if numba.config.CACHE_DIR:
        return Path(numba.config.CACHE_DIR)
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "rlscaler" / "kernels"
    try:
        home.mkdir(parents=True, exist_ok=True)
    except OSError:
        return Path(tempfile.gettempdir()) / f"rlscaler-kernels-{os.getuid()}"
    return home
