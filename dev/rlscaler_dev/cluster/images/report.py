"""How large the images are, for people."""

from __future__ import annotations

from typing import Any

LARGEST = 8
"""Libraries that are named."""


def table(measured: dict[str, dict[str, Any]]) -> str:
    """Three lines an image: what it adds to its base, what that is, the archive; MB of 10^6 uncompressed bytes."""
    lines = []
    for name, sizes in measured.items():
        packages = list(sizes["packages"].items())
        largest = ", ".join(f"{package} {_mb(size)}" for package, size in packages[:LARGEST])
        rest = sum(size for _, size in packages[LARGEST:])
        lines += [
            f"{name:<17} {_mb(sizes['over_base'])} MB over its base, {_mb(sizes['total'])} MB in all",
            f"{'':<17} {largest}, others {_mb(rest)}",
            f"{'':<17} {sizes['archive']}",
        ]
    return "\n".join(lines)


def _mb(size: int) -> str:
    return f"{size / 1e6:.1f}"
