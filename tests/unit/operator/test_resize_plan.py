"""Planning resizes: what each pod is patched to, how many at a time, and what is taken back."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlscaler_core.vertical.quantities import text
from rlscaler_operator.actuation.resize_plan import AT_ONCE, PATIENCE_SECONDS, Stage, plan, sized

GI = float(1 << 30)
NOW = 1_000_000.0
WISH = {"cpu": 1.5, "memory": 2 * GI}


def at(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z")


def pod(
    name: str = "chat-1",
    requests: dict[str, str] | None = None,
    limits: dict[str, str] | None = None,
    *,
    runs: dict[str, Any] | None = None,
    pending: tuple[str, float] | None = None,
    in_progress: float | None = None,
    policies: list[dict[str, str]] | None = None,
    ready: bool = True,
    generation: int = 3,
    observed: int = 3,
    extra: list[dict[str, Any]] | None = None,
    **metadata: Any,
) -> dict[str, Any]:
    requests = {"cpu": "1", "memory": "1Gi"} if requests is None else requests
    resources = {"requests": requests} | ({"limits": limits} if limits else {})
    conditions = [{"type": "Ready", "status": "True" if ready else "False"}]
    if pending:
        conditions.append(
            {"type": "PodResizePending", "status": "True", "reason": pending[0], "lastTransitionTime": at(pending[1])}
        )
    if in_progress:
        conditions.append({"type": "PodResizeInProgress", "status": "True", "lastTransitionTime": at(in_progress)})
    container = {"name": "serve", "resources": resources} | ({"resizePolicy": policies} if policies else {})
    return {
        "metadata": {"name": name, "generation": generation, **metadata},
        "spec": {"containers": [container, *(extra or [])]},
        "status": {
            "phase": "Running",
            "observedGeneration": observed,
            "conditions": conditions,
            "containerStatuses": [{"name": "serve", "resources": runs or resources}],
        },
    }


def planned(*bodies: dict[str, Any], wish: dict[str, float] = WISH, **options: Any) -> Any:
    found = [sized(body) for body in bodies]
    return plan([one for one in found if one is not None], wish, NOW, **options)


def values(step: Any) -> dict[str, str]:
    return {change["path"].split("resources/")[1]: change["value"] for change in step.patch()[1:]}


def test_requests_and_limits_move_in_one_ratio_and_the_container_is_tested() -> None:
    (step,) = planned(pod(limits={"cpu": "2", "memory": "1Gi"})).steps
    assert values(step) == {
        "requests/cpu": "1500m",
        "requests/memory": "2048Mi",
        "limits/cpu": "3000m",
        "limits/memory": "2048Mi",
    }
    assert step.patch()[0] == {"op": "test", "path": "/spec/containers/0/name", "value": "serve"}


def test_what_is_not_asked_for_is_left_alone_and_counted() -> None:
    made = planned(pod(requests={"cpu": "1"}), pod("chat-2", requests={}))
    assert [values(step) for step in made.steps] == [{"requests/cpu": "1500m"}]
    assert made.without_request == 2
    assert planned(pod(requests={"cpu": "1"}), wish={"cpu": 1.5, "memory": math.nan}).without_request == 0


def test_the_container_is_the_one_that_is_named() -> None:
    side = {"name": "proxy", "resources": {"requests": {"cpu": "100m"}}}
    assert sized(pod(extra=[side])) is None, "two containers, and none is named"
    named = sized(pod(extra=[side]), "serve")
    assert named is not None
    assert named.index == 0
    assert sized(pod(), "other") is None


@pytest.mark.parametrize(
    "body",
    [
        pod() | {"status": {"phase": "Pending"}},
        pod(deletionTimestamp=at(NOW)),
        pod() | {"status": {"phase": "Succeeded"}},
    ],
)
def test_a_pod_that_does_not_run_is_not_resized(body: dict[str, Any]) -> None:
    assert sized(body) is None


def test_a_resize_is_over_when_the_kubelet_says_so_and_not_before() -> None:
    wished = {"cpu": "1500m", "memory": "2Gi"}
    small = {"requests": {"cpu": "1", "memory": "1Gi"}}
    unseen = sized(pod(requests=wished, generation=4, observed=3))
    running_small = sized(pod(requests=wished, runs=small))
    over = sized(pod(requests=wished))
    assert [one.stage for one in (unseen, running_small, over) if one] == [
        Stage.UNDER_WAY,
        Stage.UNDER_WAY,
        Stage.SETTLED,
    ]
    assert not planned(pod(requests=wished, generation=4)).steps


def test_few_pods_are_resized_at_a_time() -> None:
    made = planned(*(pod(f"chat-{i}") for i in range(12)))
    assert [step.sized.name for step in made.steps] == ["chat-0", "chat-1", "chat-10", "chat-11", "chat-2"]
    assert len(made.unsettled) == 12
    wished = {"cpu": "1500m", "memory": "2Gi"}
    busy = [pod(f"busy-{i}", requests=wished, generation=4) for i in range(4)]
    assert len(planned(*busy, *(pod(f"chat-{i}") for i in range(12))).steps) == AT_ONCE - 4


def test_a_container_that_restarts_is_resized_alone_and_while_all_others_are_ready() -> None:
    restart = [{"resourceName": "memory", "restartPolicy": "RestartContainer"}]
    pods = [pod(f"chat-{i}", policies=restart) for i in range(3)]
    assert len(planned(*pods).steps) == 1
    assert not planned(*pods, pod("chat-9", requests={"cpu": "1500m", "memory": "2Gi"}, ready=False)).steps
    assert not planned(*pods, others_ready=False).steps, "a pod of the pool does not run yet"
    assert len(planned(*pods, wish={"cpu": 1.5}).steps) == 3, "a change of CPU restarts nothing"


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (pod(requests={"cpu": "4"}, pending=("Infeasible", NOW), runs={"requests": {"cpu": "1"}}), "Infeasible"),
        (
            pod(
                requests={"cpu": "4"}, pending=("Deferred", NOW - PATIENCE_SECONDS - 1), runs={"requests": {"cpu": "1"}}
            ),
            "Deferred",
        ),
        (
            pod(requests={"cpu": "4"}, in_progress=NOW - PATIENCE_SECONDS - 1, runs={"requests": {"cpu": "1"}}),
            "InProgress",
        ),
    ],
)
def test_what_a_kubelet_cannot_do_is_taken_back_and_named(body: dict[str, Any], reason: str) -> None:
    made = planned(body, wish={"cpu": 4.0})
    assert [values(step) for step in made.steps] == [{"requests/cpu": "1000m"}]
    assert made.steps[0].back
    assert [(one.pod, one.reason) for one in made.stuck] == [("chat-1", reason)]


def test_a_deferred_resize_has_its_time_and_does_not_hold_up_others() -> None:
    deferred = [
        pod(f"late-{i}", requests={"cpu": "4"}, pending=("Deferred", NOW - 10), runs={"requests": {"cpu": "1"}})
        for i in range(AT_ONCE)
    ]
    made = planned(*deferred, pod(), wish={"cpu": 4.0})
    assert [step.sized.name for step in made.steps] == ["chat-1"]
    assert not made.stuck


def test_what_was_refused_is_not_tried_again() -> None:
    made = planned(pod(), pod("chat-2"), refused={"chat-1"})
    assert [step.sized.name for step in made.steps] == ["chat-2"]


def test_memory_is_lowered_no_further_than_is_known_to_be_enough() -> None:
    wish = {"memory": GI / 2}
    assert not planned(pod(), wish=wish).steps, "nothing is known of what it uses"
    (step,) = planned(pod(), wish=wish, least_memory=0.75 * GI).steps
    assert values(step) == {"requests/memory": "768Mi"}
    assert not planned(pod(), wish=wish, least_memory=3 * GI).steps, "lowering never raises"
    assert values(planned(pod(), wish={"memory": 2 * GI}).steps[0]) == {"requests/memory": "2048Mi"}


amount = st.floats(0.01, 64.0)


@settings(max_examples=300, deadline=None)
@given(
    cpu=amount,
    memory=amount,
    cpu_limit=st.one_of(st.none(), st.floats(1.0, 4.0)),
    memory_limit=st.one_of(st.none(), st.floats(1.0, 4.0)),
    wished_cpu=st.one_of(st.just(math.nan), amount),
    wished_memory=st.one_of(st.just(math.nan), amount),
    least=st.one_of(st.just(math.nan), amount),
)
def test_the_class_of_a_pod_stays_and_limits_are_never_below_requests(
    cpu: float,
    memory: float,
    cpu_limit: float | None,
    memory_limit: float | None,
    wished_cpu: float,
    wished_memory: float,
    least: float,
) -> None:
    requests = {"cpu": text("cpu", cpu), "memory": str(int(memory * GI))}
    limits = {}
    if cpu_limit:
        limits["cpu"] = requests["cpu"] if cpu_limit == 1.0 else text("cpu", cpu * cpu_limit)
    if memory_limit:
        limits["memory"] = requests["memory"] if memory_limit == 1.0 else str(int(memory * GI * memory_limit))
    before = sized(pod(requests=requests, limits=limits))
    assert before is not None
    made = plan([before], {"cpu": wished_cpu, "memory": wished_memory * GI}, NOW, least * GI)
    for step in made.steps:
        assert set(step.requests) == set(before.requests)
        assert set(step.limits) == set(before.limits)
        for name, limit in step.limits.items():
            assert limit >= step.requests[name]
            assert (limit == step.requests[name]) >= (before.limits[name] == before.requests[name])
        if step.requests["memory"] < before.requests["memory"]:
            assert step.requests["memory"] >= least * GI
        if math.isnan(wished_cpu):
            assert step.requests["cpu"] == before.requests["cpu"]
