"""Content of result files: a `ResultFile` of an evaluation or comparison, and the `ServiceVerdict` of one service.

`comprehensive_evaluation.json` and `rl_comparison_data.json` are one `ResultFile` each; `rlscaler compare --schema`
prints the description of every key as JSON Schema. `rlscaler train --for` writes a `ServiceVerdict`.
"""

from __future__ import annotations

import json
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from rlscaler_rl.results.document import Document

SCHEMA_VERSION = "rlscaler.io/comparison/v3"
VERDICT_VERSION, VERDICT_FILE = "rlscaler.io/verdict/v1", "verdict.json"


class Summary(Document):
    """One metric of one contender on one workload."""

    mean: float
    std: float = Field(description="standard deviation of the means of the runs")
    min: float = Field(description="lowest mean of a run")
    max: float = Field(description="highest mean of a run")
    low: float = Field(description="lower end of the 95 % bootstrap interval of the mean")
    high: float = Field(description="upper end of the 95 % bootstrap interval of the mean")


class Difference(Document):
    """Policy minus contender in J, paired episode by episode; below 0 the policy is better."""

    mean: float
    low: float = Field(description="lower end of the 95 % paired bootstrap interval")
    high: float = Field(description="upper end")
    percent: float = Field(description="mean as % of the contender's J")
    low_percent: float
    high_percent: float
    verdict: str = Field(
        description="win, loss or undecided: the interval spans zero, or a trace has too few distinct blocks"
    )

    def shown(self) -> str:
        """Percent with the interval, such as `+1.3 % [-0.2, +2.8]`."""
        return f"{self.percent:+.1f} % [{self.low_percent:+.1f}, {self.high_percent:+.1f}]"


class Row(Document):
    """One contender on one workload."""

    workload: str = Field(description="name, or `all`: the mean over every workload that is not an extra")
    contender: str
    label: str
    role: str = Field(
        description="policy, variant (the bundled policy tuned as its rivals are), seed (the same recipe, another "
        "training seed), contender, sweep, control or reference"
    )
    runs: int
    episodes: int = Field(description="per run")
    units: int = Field(description="independent draws behind the interval: episodes, or distinct blocks of a trace")
    metrics: dict[str, Summary] = Field(description="see `metrics` at the top for meaning and unit")
    difference: Difference | None = Field(description="null for the policy itself")
    improvement: dict[str, float] | None = Field(
        description="% against default HPA on this workload for latency, throughput, "
        "efficiency and stability, and their weighted sum; negative is worse, nothing is clipped"
    )


class Invariant(Document):
    """One conservation law of the meter, recomputed from the counters of every episode."""

    name: str
    statement: str
    holds: bool
    checked: int = Field(description="episodes")
    worst: float = Field(description="largest violation, in the statement's unit")


class Dependence(Document):
    """Check that the outcome depends on the network: a control must lose by the margin."""

    control: str
    label: str
    difference: Difference = Field(description="policy minus control, mean over the workloads")
    required_percent: float
    passed: bool


class Rival(Document):
    """One contender that the gate names."""

    contender: str
    label: str
    difference: Difference


class GateRow(Document):
    """Verdict on one workload: may the policy act by default on such a load?"""

    workload: str
    smooth: bool = Field(description="on smooth loads the policy may be up to `margin_percent` above the better rival")
    rivals: list[Rival] = Field(description="the tuned HPA and the tuned rule")
    status: str = Field(description="passes, fails, or undecided: not shown either way")
    reason: str


class Gate(Document):
    """J below the tuned HPA and the tuned rule with an interval off zero, or within the margin on smooth loads."""

    passed: bool = Field(description="every row passes")
    margin_percent: float
    rows: list[GateRow]
    untuned: list[str] = Field(description="rivals that stand in untuned because no tuned one was played")


class Closed(Document):
    """The share of the distance from the tuned HPA to the hindsight rule that the policy closes."""

    workload: str
    begin: str = Field(description="contender at 0 %")
    end: str = Field(description="contender at 100 %; a reference, not a bound")
    begin_j: float
    end_j: float
    policy_j: float
    percent: float | None = Field(
        description="null where the two ends are less than 2 % apart, or not apart with an interval off zero"
    )
    low: float | None
    high: float | None


class Like(Document):
    """One setting of the policy against rivals that were set as hard: `load`, each for the load; `all`, one for all."""

    name: str
    title: str
    subject: str = Field(description="contender")
    label: str
    gate: Gate
    closed: list[Closed]


class SeedRow(Document):
    """The recipe over its training seeds: every seed's policy on one workload."""

    workload: str
    j: dict[str, float] = Field(description="model -> J; the first is the shipped one")
    mean: float
    std: float = Field(description="between training seeds")
    min: float
    max: float
    low: float = Field(description="95 % interval of the mean, resampled over training seeds and episodes at once")
    high: float
    rivals: list[Rival] = Field(description="mean over the seeds minus rival, resampled likewise")


class Workload(Document):
    """Test episodes of one workload."""

    name: str
    kind: str = Field(description="pattern, trace or extra (reported apart)")
    note: str = Field(description="how it was made; for a trace, its scale")
    blocks: int | None = Field(description="distinct blocks of a trace among the episodes; null for drawn loads")
    episodes: int = Field(description="runs x episodes per run")
    duration_seconds: int
    mean_rps: float
    peak_rps: float = Field(description="mean over the episodes of the highest rate")
    cost_floor: float = Field(
        description="arrivals x service time x price of the cheaper pool, GPU replica equivalents: all pay it"
    )
    minimum_cost: float = Field(description="cost of minReplicas, GPU replica equivalents")


class Digests(Document):
    """SHA-256, to tell whether two results saw the same thing."""

    model: str
    settings: str
    scenarios: dict[str, str] = Field(description="arrivals, seeds and cold starts per workload")
    rows: str = Field(description="of `rows` as canonical JSON; equal for a repeated run")


class Model(Document):
    name: str
    path: str | None
    contract_version: str
    stack_size: int
    residual: bool
    rule: dict[str, float] | None = Field(
        default=None, description="residual mode: gains of the forecast rule that the action is added to"
    )
    provenance: dict[str, object]


class ResultFile(Document):
    """A complete evaluation or comparison."""

    schema_version: str = SCHEMA_VERSION
    kind: str = Field(description="evaluation or comparison")
    level: str = Field(description="request: every request simulated (the judge); fluid: the training simulator")
    created: str = Field(description="UTC, ISO 8601")
    versions: dict[str, str]
    machine: str
    wall_seconds: float
    valid: bool = Field(description="all invariants hold and every control lost")
    reasons: list[str] = Field(description="why the run is invalid; empty when it is valid")
    settings: dict[str, object]
    model: Model
    seeds: list[Model] = Field(description="the same recipe with other training seeds")
    metrics: dict[str, str] = Field(description="metric -> meaning and unit")
    workloads: list[Workload]
    rows: list[Row]
    gate: Gate
    closed: list[Closed]
    like_for_like: list[Like] = Field(description="empty where the settings in question were not played everywhere")
    training_seeds: list[SeedRow] = Field(description="empty unless several models were given")
    dependence: list[Dependence]
    invariants: list[Invariant]
    digests: Digests
    files: list[str] = Field(description="beside this file")


class ServiceRow(Document):
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


class ServiceTraining(Document):
    """Training of the network for a service."""

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


class Recommendation(Document):
    """Recommended changes of the user's spec."""

    apply: bool
    reason: str
    changes: dict[str, Any] = Field(description="merge patch of the RLScalingPolicy; empty: leave the spec as it is")
    tune: Difference | None = Field(description="J on the tune part, changed minus own spec; null: nothing differs")
    worth: dict[str, Difference] = Field(
        description="held-back part: policy and general, each changed minus own spec; rivals: changed policy minus them"
    )
    together: str = Field(default="", description="the published policy under the changed spec, held to the gate")


class RecordedHistory(Document):
    """The recorded load of a service."""

    source: str
    seconds: int
    digest: str
    peak_rps: dict[str, float] = Field(description="99th percentile of every part")
    blocks: dict[str, int] = Field(description="stretches of one episode in every part, none overlapping another")
    rise: float
    smooth: bool


class Verdict(Document):
    """Part of a verdict.json that `rlscaler publish` reads: whether the network may be published."""

    publish: bool
    reasons: tuple[str, ...] = Field(description="why, or why not")
    name: str
    namespace: str
    policy_digest: str = Field(description="sha256 of policy.onnx")


class ServiceVerdict(Verdict):
    """Content of verdict.json: the figures of the held-back part, and whether the policy may be published."""

    model_config = ConfigDict(populate_by_name=True)

    schema_: str = Field(default=VERDICT_VERSION, alias="schema")
    caveats: tuple[str, ...] = Field(description="what the figures do not cover")
    general_digest: str
    level: str = Field(description="of the simulator that judged: fluid or request")
    episode_seconds: int
    episodes: int
    history: RecordedHistory
    training: ServiceTraining
    rows: tuple[ServiceRow, ...]
    recommendation: Recommendation | None = Field(default=None, description="null where no spec was searched")


def json_schema(model: type[BaseModel]) -> str:
    """Return the JSON Schema of a result file, descriptions included."""
    return json.dumps(model.model_json_schema(), indent=2)
