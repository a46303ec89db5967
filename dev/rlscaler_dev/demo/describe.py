"""What a run is, for `run.json` and for whoever compares its figures with another's."""

from __future__ import annotations

import os
import platform
from importlib.metadata import version

from rlscaler_dev.demo.records import Run
from rlscaler_dev.demo.settings import Settings


def describe(settings: Settings, server_version: str, started_at: float) -> Run:
    """`started_at`: Unix seconds of the load's begin."""
    return Run(
        contender=settings.contender,
        pattern=settings.pattern,
        seed=settings.seed,
        duration_s=float(settings.duration_seconds),
        interval_seconds=float(settings.interval_seconds),
        slo_ms=settings.slo_ms,
        started_at=started_at,
        server_version=server_version,
        versions=versions(),
        cost_per_hour={pool.name: pool.cost_per_hour for pool in settings.pools},
        mode=settings.mode if settings.contender == "rl" else "Auto",
    )


def versions() -> dict[str, str]:
    """What the figures of a run depend on."""
    packages = {name: version(name) for name in ("rlscaler", "locust", "kopf", "onnxruntime")}
    machine = f"{platform.system()} {platform.machine()}, {os.cpu_count()} CPUs"
    return {**packages, "python": platform.python_version(), "machine": machine}
