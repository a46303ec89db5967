"""verdict.json: what a trial found, and whether the policy may be published."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from rlscaler_rl.evaluation.schema import Difference

FILE = "verdict.json"
SCHEMA = "rlscaler.io/verdict/v1"


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)


class Row(_Frozen):
    """One contender on the held-back part; means over all episodes."""

    name: str
    label: str
    role: str = Field(description="policy, spec, tuned, today, contender or reference")
    j: float = Field(description="the service's score, lower is better")
    cost_per_hour: float = Field(description="of running and starting replicas, in the policy's currency")
    late_percent: float
    p95_ms: float
    gpu_replicas: float
    cpu_replicas: float
    difference: Difference | None = Field(description="policy minus this contender; null for the policy itself")


class Training(_Frozen):
    """How the policy came about."""

    start: str
    steps: int
    seconds: float
    cut_short: bool = Field(description="the time was over before the steps were")
    best_steps: int = Field(description="of the checkpoint that was chosen; 0 is the start itself")
    tune_j: dict[int, float] = Field(description="steps -> J of the checkpoint on the tune part, fluid level")
    tuned: dict[str, dict[str, float]] = Field(description="rival -> J on the tune part, default and tuned")
    chosen: str = Field(default="own_spec", description="of these networks: trained under the own spec, or one found")
    networks: dict[str, dict[str, float]] = Field(
        default={}, description="network -> J on the tune part under the own spec and the best found"
    )


class Recommendation(_Frozen):
    """Changes of the user's spec."""

    apply: bool
    reason: str
    changes: dict[str, Any] = Field(description="merge patch of the RLScalingPolicy; empty: leave the spec as it is")
    tune: Difference | None = Field(description="J on the tune part, changed minus own spec; null: nothing differs")
    worth: dict[str, Difference] = Field(
        description="held-back part: policy and general, each changed minus own spec; rivals: changed policy minus them"
    )
    together: str = Field(default="", description="the published policy under the changed spec, held to the gate")


class Recorded(_Frozen):
    """The history."""

    source: str
    seconds: int
    digest: str
    peak_rps: dict[str, float] = Field(description="99th percentile of every part")
    blocks: dict[str, int] = Field(description="stretches of one episode in every part, none overlapping another")
    rise: float
    smooth: bool


class Verdict(_Frozen):
    """The file."""

    schema_: str = Field(default=SCHEMA, alias="schema")
    publish: bool
    reasons: tuple[str, ...] = Field(description="why, or why not")
    caveats: tuple[str, ...] = Field(description="what the figures do not cover")
    name: str
    namespace: str
    policy_digest: str = Field(description="sha256 of policy.onnx")
    general_digest: str
    level: str = Field(description="of the simulator that judged: fluid or request")
    episode_seconds: int
    episodes: int
    history: Recorded
    training: Training
    rows: tuple[Row, ...]
    recommendation: Recommendation | None = Field(default=None, description="null where no spec was searched")
