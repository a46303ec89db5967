"""Settings of an end-to-end run."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

PARTS = ("patterns", "lifecycle", "sizes")
"""Parts of a run between installing and uninstalling, in this order."""
CONTENDERS = ("rl", "hpa")
PATTERNS = ("spike", "ramp", "periodic", "random", "trace")
FOUR = ("spike", "ramp", "periodic", "random")

OPERATOR_RELEASE, OPERATOR_NAMESPACE = "rlscaler", "rlscaler-system"
DEMO_RELEASE, DEMO_NAMESPACE = "demo", "demo"
SERVICE = "chat"
"""Name of the service, its policy, its Gateway and its HTTPRoute."""

PROMETHEUS_IMAGE = ("localhost/prometheus", "1")
"""Name and tag of the image of Prometheus, which the real node has."""
SCRAPE_SECONDS = 2
CRD = "rlscalingpolicies.rlscaler.io"


@dataclass(frozen=True, slots=True)
class Settings:
    """One end-to-end run. Paths are absolute."""

    out: Path
    """Result folder: one sub-folder for each run of load."""
    charts: Path
    """Folder of the charts `rlscaler` and `rlscaler-demo`."""
    parts: tuple[str, ...] = PARTS
    patterns: tuple[str, ...] = FOUR
    contenders: tuple[str, ...] = CONTENDERS
    duration_seconds: int = 180
    """Length of each pattern's load."""
    interval_seconds: int = 15
    """Action interval of the policy."""
    seed: int = 1
    lifecycle_seconds: int = 120
    """Length of the run during which the operator is upgraded and its leader killed."""
    gpu_cold_start_seconds: tuple[float, float] = (35, 55)
    cpu_cold_start_seconds: tuple[float, float] = (5, 11)
    cluster_name: str = "e2e"
    keep_cluster: bool = False

    @property
    def loads(self) -> bool:
        """Whether requests are sent, which need the Gateway and, for the HPA, the adapter."""
        return "patterns" in self.parts or "lifecycle" in self.parts

    @property
    def policy(self) -> Path:
        """The manifest that is applied."""
        return self.charts / "rlscaler-demo" / "examples" / "policy.yaml"


@dataclass(frozen=True, slots=True)
class Play:
    """One run of load."""

    name: str
    contender: str
    pattern: str
    duration_seconds: int

    @classmethod
    def all_of(cls, settings: Settings) -> list[Play]:
        """Pattern by pattern, each contender on the same load; none where that is no part of the run."""
        return [
            cls(f"{contender}-{pattern}", contender, pattern, settings.duration_seconds)
            for pattern in (settings.patterns if "patterns" in settings.parts else ())
            for contender in settings.contenders
        ]
