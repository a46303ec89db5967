"""Every test gets a cache directory of its own."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, and neither a network probe nor assets from outside."""
    root = tmp_path / "cache"
    monkeypatch.setenv("RLSCALER_CACHE", str(root))
    for variable in ("KUBEBUILDER_ASSETS", "RLSCALER_BINARIES", "RLSCALER_GO_CACHES", "KUBECONFIG"):
        monkeypatch.delenv(variable, raising=False)
    return root
