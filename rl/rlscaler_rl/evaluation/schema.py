"""What `comprehensive_evaluation.json` and `rl_comparison_data.json` hold; both are one `ResultFile`.

The description of every key is the schema's: `rlscaler compare --schema` prints it as JSON Schema.
"""

from __future__ import annotations

import json

from pydantic import BaseModel, ConfigDict, Field

SCHEMA_VERSION = "rlscaler.io/comparison/v1"


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
    verdict: str = Field(description="win, loss or undecided (the interval spans zero)")


class Row(_Frozen):
    """One contender on one workload."""

    workload: str = Field(description="pattern, `varied`, `flat`, `one_pool`, or `all`: the mean over the patterns")
    contender: str
    label: str
    role: str = Field(description="policy, contender, sweep, control or reference")
    runs: int
    episodes: int = Field(description="per run")
    metrics: dict[str, Summary] = Field(description="see `metrics` at the top for meaning and unit")
    difference: Difference | None = Field(description="null for the policy itself")
    improvement: dict[str, float] | None = Field(
        description="% against default HPA on this workload: latency, throughput, efficiency, stability and weighted; "
        "negative is worse, nothing is clipped"
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


class Workload(_Frozen):
    """What was played."""

    name: str
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
    provenance: dict[str, object]


class ResultFile(_Frozen):
    """A complete evaluation or comparison."""

    schema_version: str = SCHEMA_VERSION
    kind: str = Field(description="evaluation or comparison")
    created: str = Field(description="UTC, ISO 8601")
    versions: dict[str, str]
    machine: str
    wall_seconds: float
    valid: bool = Field(description="all invariants hold and every control lost")
    reasons: list[str] = Field(description="why the run is invalid; empty when it is valid")
    settings: dict[str, object]
    model: Model
    metrics: dict[str, str] = Field(description="metric -> meaning and unit")
    workloads: list[Workload]
    rows: list[Row]
    dependence: list[Dependence]
    invariants: list[Invariant]
    digests: Digests
    files: list[str] = Field(description="beside this file")


def json_schema(model: type[BaseModel]) -> str:
    """The JSON Schema of the result file, descriptions included."""
    return json.dumps(model.model_json_schema(), indent=2)
