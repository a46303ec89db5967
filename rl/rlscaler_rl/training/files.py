"""Files that are there as a whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path


def write_atomically(path: Path, content: bytes | str) -> None:
    """Replace `path` by `content`, so that a kill or a power cut leaves the old file or the new one.

    One writer at a time; the temporary file that a kill leaves is overwritten by the next write.
    """
    temporary = path.with_name(f".{path.name}.tmp")
    with temporary.open("wb") as file:
        file.write(content.encode() if isinstance(content, str) else content)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
