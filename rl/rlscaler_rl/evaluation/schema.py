"""What `comprehensive_evaluation.json` and `rl_comparison_data.json` hold; both are one `ResultFile`.

The description of every key is the schema's: `rlscaler compare --schema` prints it as JSON Schema.
"""

from __future__ import annotations

import json

from pydantic import BaseModel, ConfigDict, Field

SCHEMA_VERSION = "rlscaler.io/comparison/v3"


class _Frozen(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Summary(_Frozen):
    """One metric of one contender on one workload."""

    mean: float
    std: float = Field(description="standard deviation of the means of the runs")
    min: float = Field(description="lowest mean of a run")
    max: float = Field(description="highest mean of a run")
    low: float = Field(description="lower end of the 95 % bootstrap interval of the mean")
    high: float = Field(description="upper end of the 95 % bootstrap interval of the mean")


class Difference(_Frozen):
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


class Row(_Frozen):
    """One contender on one workload."""

    workload: str = Field(description="name, or `all`: the mean over every workload that is not an extra")
    contender: str
    label: str
    role: str = Field(
        description="policy, variant (the bundled policy tuned as its rivals are), seed (the same recipe, another "
        "training seed), contender, equal_cost (static replicas "
        "at the policy's own mean cost), sweep, control or reference"
    )
    runs: int
    episodes: int = Field(description="per run")
    units: int = Field(description="independent draws behind the interval: episodes, or distinct blocks of a trace")
    metrics: dict[str, Summary] = Field(description="see `metrics` at the top for meaning and unit")
    difference: Difference | None = Field(description="null for the policy itself")
    improvement: dict[str, float] | None = Field(
        description="objective `weighted`: % against default HPA on this workload for latency, throughput, "
        "efficiency and stability, and their weighted sum; negative is worse, nothing is clipped"
    )


class Invariant(_Frozen):
    """One conservation law of the meter, recomputed from the counters of every episode."""

    name: str
    statement: str
    holds: bool
    checked: int = Field(description="episodes")
    worst: float = Field(description="largest violation, in the statement's unit")


class Dependence(_Frozen):
    """Does the outcome depend on the network at all? A control must lose by the margin."""

    control: str
    label: str
    difference: Difference = Field(description="policy minus control, mean over the workloads")
    required_percent: float
    passed: bool


class Rival(_Frozen):
    """One contender that the gate names."""

    contender: str
    label: str
    difference: Difference


class GateRow(_Frozen):
    """May the policy act by default on such a load?"""

    workload: str
    smooth: bool = Field(description="on smooth loads the policy may be up to `margin_percent` above the better rival")
    rivals: list[Rival] = Field(description="the tuned HPA and the tuned rule")
    status: str = Field(description="passes, fails, or undecided: not shown either way")
    reason: str


class Gate(_Frozen):
    """J below the tuned HPA and the tuned rule with an interval off zero, or within the margin on smooth loads."""

    passed: bool = Field(description="every row passes")
    margin_percent: float
    rows: list[GateRow]
    untuned: list[str] = Field(description="rivals that stand in untuned because no tuned one was played")


class Closed(_Frozen):
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


class Like(_Frozen):
    """One setting of the policy against rivals that were set as hard: `load`, each for the load; `all`, one for all."""

    name: str
    title: str
    subject: str = Field(description="contender")
    label: str
    gate: Gate
    closed: list[Closed]


class SeedRow(_Frozen):
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


class Claim(_Frozen):
    """A figure of earlier research beside the same figure measured here."""

    workload: str
    quantity: str
    against: str
    claimed: float | None = Field(description="null where the claim was `better` without a figure")
    measured: float
    low: float
    high: float
    finding: str


class Workload(_Frozen):
    """What was played."""

    name: str
    kind: str = Field(description="pattern, trace or extra (reported apart)")
    note: str = Field(description="how it was made; for a trace, its scale")
    blocks: int | None = Field(description="distinct blocks of a trace among the episodes; null for drawn loads")
    episodes: int = Field(description="runs x episodes per run")
    duration_seconds: int
    mean_rps: float
    peak_rps: float = Field(description="mean over the episodes of the highest rate")
    cost_floor: float = Field(
        description="arrivals x service time x price of the cheaper pool, GPU replica equivalents: nobody can pay less"
    )
    minimum_cost: float = Field(description="cost of minReplicas, GPU replica equivalents")


class Digests(_Frozen):
    """SHA-256, to tell whether two results saw the same thing."""

    model: str
    settings: str
    scenarios: dict[str, str] = Field(description="arrivals, seeds and cold starts per workload")
    rows: str = Field(description="of `rows` as canonical JSON; equal for a repeated run")


class Model(_Frozen):
    name: str
    path: str | None
    contract_version: str
    stack_size: int
    residual: bool
    rule: dict[str, float] | None = Field(
        default=None, description="residual mode: gains of the forecast rule that the action is added to"
    )
    provenance: dict[str, object]


class ResultFile(_Frozen):
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
    claims: list[Claim]
    dependence: list[Dependence]
    invariants: list[Invariant]
    digests: Digests
    files: list[str] = Field(description="beside this file")


def json_schema(model: type[BaseModel]) -> str:
    """The JSON Schema of the result file, descriptions included."""
    return json.dumps(model.model_json_schema(), indent=2)
