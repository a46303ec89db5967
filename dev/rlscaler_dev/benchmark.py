"""Helpers of all benchmarks: the machine they ran on, the option --out and the JSON file behind it."""

from __future__ import annotations

import json
import os
import platform
from pathlib import Path
from typing import Any

import click

out_option = click.option(
    "--out", type=click.Path(dir_okay=False, path_type=Path), help="Also write the figures there, as JSON."
)


def machine() -> dict[str, Any]:
    """Return the machine and versions, on which figures of speed depend."""
    return {
        "cpus": os.cpu_count(),
        "processor": platform.machine(),
        "platform": platform.platform(),
        "python": platform.python_version(),
    }


def write(out: Path | None, document: Any, indent: int | None = 2) -> None:
    """Replace the file `out`, where one is named, by the document; `indent` None = as short as possible."""
    if out is None:
        return
    separators = (",", ":") if indent is None else None
    out.parent.mkdir(parents=True, exist_ok=True)
    temporary = out.with_suffix(".tmp")
    temporary.write_text(json.dumps(document, indent=indent, separators=separators) + "\n", encoding="utf-8")
    temporary.replace(out)
