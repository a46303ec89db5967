"""Tables of an end-to-end run."""

from __future__ import annotations

from rlscaler_dev.e2e.report import tables


def test_each_kind_of_part_has_a_table_and_what_is_not_known_is_a_dash() -> None:
    amounts = {"weight": 51, "cores": 0.2, "memory_mib": None, "used_mib": 70.0}
    pod = {"pod": "a", "cgroup_at_first": amounts, "cgroup": {**amounts, "cores": 0.6}, "restarts": 0}
    pods = [{**pod, "patch_to_cgroup_seconds": 0.25}, {**pod, "patch_to_cgroup_seconds": None}]
    run = dict.fromkeys(("requests", "failures", "gpu_replica_seconds", "cpu_replica_seconds", "cost"), 1200)
    run |= {"pattern": "spike", "contender": "rl", "slo_violation_ratio": None, "p50_ms": None, "p95_ms": 41.6}
    runs, sizes = tables(
        {"runs": [run | {"scale_ups": 3, "scale_downs": 0}], "sizes": {"grows": pods, "too_large": pods[1]}}
    )
    assert [next(iter(column.cells)) for column in runs.columns] == [
        *("spike", "rl", "1,200", "-", "1,200", "-", "42", "1,200", "1,200", "1200.000", "3", "0")
    ]
    cells = [list(column.cells) for column in sizes.columns]
    assert cells[0] == ["grows", "grows", "too large"]
    assert cells[2:6] == [["0.2"] * 3, ["0.6"] * 3, ["-"] * 3, ["-"] * 3]
    assert cells[6] == ["0.25", "-", "-"]
    assert tables({"runs": [], "sizes": None}) == []
