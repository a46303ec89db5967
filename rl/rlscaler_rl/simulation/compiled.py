"""Compilation of the simulator's kernels, and the folder of their machine code.

Numba notices a changed file of a cached function, but not a changed file of the functions that it calls. A kernel built
from several files would go on as before after one of them was corrected, so the cache has a folder of its own for every
state of these files.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from pathlib import Path

import numba

KERNELS = (
    "cluster",
    "compiled",
    "fluid",
    "pods",
    "queues",
    "requests",
    "sensing",
    "tables",
    "tokens/batching",
    "tokens/level",
    "tokens/services",
    "tokens/state",
)
"""Modules whose functions or constants are compiled."""

inlined = numba.njit(error_model="numpy", _nrt=False, forceinline=True)
"""Compiles a function that only kernels call and that makes no arrays: it borrows its arguments, and its body is put
where it is called. Every call would otherwise count and uncount the references to each array of the named tuples that
it passes on, atomically, which took more than half of the time."""

called = numba.njit(cache=True, nogil=True, error_model="numpy", _nrt=False)
"""Compiles a larger function of the same kind, called as a function: inlined everywhere, such take minutes to
compile."""


def use_cache_of_these_sources() -> None:
    """Point numba's cache to a folder of this package's sources: below `NUMBA_CACHE_DIR`, or the user's cache."""
    digest = hashlib.sha256()
    for name in KERNELS:
        digest.update((Path(__file__).parent / f"{name}.py").read_bytes())
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
