"""Guesses for a policy from an HPA, a ScaledObject, Deployments, their pods, Services and routes. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median

from rlscaler_core.api.metrics import COUNT_TOKENS
from rlscaler_core.api.targets import CPUTarget, GPUTarget
from rlscaler_operator.cli.init.draft import Draft
from rlscaler_operator.cli.init.scalers import take_over
from rlscaler_operator.cli.preflight.room import devices
from rlscaler_operator.cli.preflight.targets import cold_starts
from rlscaler_operator.cluster.bodies import deployment_of_pod
from rlscaler_operator.cluster.kube import Json
from rlscaler_operator.sensing.presets import PRESETS

IMAGES = {
    "vllm": "vllm",
    "sglang": "sglang",
    "rayproject/ray": "rayserve",
    "llama.cpp": "llamacpp",
    "text-generation-inference": "tgi",
    "tritonserver": "triton",
    "torchserve": "torchserve",
}
"""Presets by a part of the name of the server's image."""

LATENCY_MS = 1000
FIRST_MS, TOKEN_MS = 2500, 150
"""Objectives of the first and of each further token; both are bounds of the histograms of vLLM and SGLang."""

MOST_TIMES = 3
"""Guess of maxReplicas as a multiple of the present replicas, where no scaler sets it."""

KEDA_MAX, KEDA_MIN = 100, 0
"""Defaults of a ScaledObject's limits."""


@dataclass(slots=True)
class Seen:
    """Objects of the namespace."""

    namespace: str
    deployments: dict[str, Json]
    """The GPU or only Deployment first, then the CPU Deployment."""
    scaler: Json | None = None
    """The HorizontalPodAutoscaler or the ScaledObject."""
    pods: list[Json] = field(default_factory=list)
    services: list[Json] = field(default_factory=list)
    routes: list[Json] = field(default_factory=list)


def drafted(seen: Seen, two_pools: bool) -> Draft:
    """Return the draft of a policy in Shadow; `two_pools` means that the second Deployment serves on CPUs."""
    names = list(seen.deployments)
    draft = Draft(seen.namespace, _name(names, two_pools))
    draft.set(
        "spec.mode",
        "Shadow",
        "Shadow decides, scores and records, and changes nothing. Auto acts: `rlscaler promote` switches it.",
    )
    pools = ["gpu", "cpu"] if two_pools else [pool_of(seen.deployments[names[0]])]
    preset, image = _server(seen, names)
    in_tokens = preset in COUNT_TOKENS and PRESETS[preset].ttft is not None
    for pool, name in zip(pools, names, strict=True):
        _target(draft, seen, pool, name, name == names[0], in_tokens)
    _objective(draft, in_tokens)
    if preset:
        draft.set("spec.metrics.preset", preset, f"GUESS by the image {image}: this server exports series of its own.")
    _service(draft, seen, names, pools)
    if two_pools:
        _route(draft, seen, names)
    if seen.scaler is not None:
        take_over(draft, seen.scaler, pools[0])
    return draft


def pool_of(deployment: Json) -> str:
    """Return `gpu` for pods that ask for a device, else `cpu`."""
    return "gpu" if devices(deployment) else "cpu"


def _name(names: Sequence[str], two_pools: bool) -> str:
    """Return the name of the policy: the words that both Deployments' names share, or the only Deployment's name."""
    if not two_pools:
        return names[0]
    first, second = (name.split("-") for name in names)
    common = [word for word, other in zip(first, second, strict=False) if word == other]
    return "-".join(common) or names[0]


def _target(draft: Draft, seen: Seen, pool: str, name: str, scaled: bool, in_tokens: bool) -> None:
    path, body = f"spec.targets.{pool}", seen.deployments[name]
    replicas = int(body["spec"].get("replicas", 1))
    device = ", ".join(f"{each:g} {resource}" for resource, each in devices(body).items())
    why = f"its pods ask for {device}" if device else "its pods ask for no GPU"
    draft.set(f"{path}.deployment", name, f"{_counted(replicas)} now; {why}.")
    if scaled and seen.scaler is not None:
        low, high, note = _limits(seen.scaler)
    else:
        low, high = 1, max(MOST_TIMES * replicas, 2)
        note = (
            f"GUESS: {MOST_TIMES} times the {_counted(replicas)} of now. What can you pay for, and is there room for?"
        )
    # A CPU pool beside a GPU pool may be empty.
    least, because = 0 if pool == "cpu" and len(seen.deployments) == 2 else 1, ""
    if low < least:
        because = "0 before: one pool has to keep a replica, since arrivals are measured there."
    draft.set(f"{path}.minReplicas", max(low, least), because)
    draft.set(f"{path}.maxReplicas", max(high, 1), note)
    model = GPUTarget if pool == "gpu" else CPUTarget
    draft.set(
        f"{path}.costPerHour",
        model.model_fields["cost_per_hour"].default,
        "GUESS: what one replica costs an hour, in your currency. The ratio of the pools and the reports go by it.",
    )
    if not in_tokens:
        draft.leave(
            f"{path}.requestsPerSecond",
            "Requests/s that one ready replica answers, as a first guess. Left out it is measured under load, and "
            "until then nothing is scaled down.",
        )
    starts = cold_starts(seen.pods, (seen.namespace, name), deployment_of_pod)
    if starts:
        text = f"Measured: the median of pods that are ready now ({len(starts)}), from creation to ready."
        draft.set(f"{path}.coldStartSeconds", float(max(1, round(median(starts)))), text)
    else:
        draft.leave(f"{path}.coldStartSeconds", "From a pod's creation to ready; learned from pods that start.")


def _counted(replicas: int) -> str:
    return f"{replicas} replica{'' if replicas == 1 else 's'}"


def _limits(scaler: Json) -> tuple[int, int, str]:
    """Return minReplicas, maxReplicas and a note of their origin."""
    spec, name = scaler["spec"], f"{scaler['kind']} {scaler['metadata']['name']}"
    if scaler["kind"] == "ScaledObject":
        high = spec.get("maxReplicaCount")
        note = f"From {name}." if high is not None else f"{name} sets none: KEDA's default."
        return int(spec.get("minReplicaCount", KEDA_MIN)), int(KEDA_MAX if high is None else high), note
    return int(spec.get("minReplicas", 1)), int(spec["maxReplicas"]), f"From {name}."


def _service(draft: Draft, seen: Seen, names: Sequence[str], pools: Sequence[str]) -> None:
    """Set the label `service` of the metrics to the name of the Kubernetes Service, where there is exactly one."""
    selecting = [_services_of(seen, name) for name in names]
    common = [service for service in selecting[0] if all(service in others for others in selecting)]
    services = common or selecting[0]
    if len(services) == 1:
        draft.set(
            "spec.metrics.service",
            services[0],
            f"GUESS: the Service in front of {' and '.join(names[: len(pools)])}. It has to be the label `service` of "
            "the metrics: `rlscaler preflight` says whether it is.",
        )
    else:
        there = f"Services that select its pods: {', '.join(services)}. " if services else ""
        draft.leave(
            "spec.metrics.service",
            f"{there}The label `service` of the metrics; left out it is the policy's name, {draft.name}.",
        )


def _server(seen: Seen, names: Sequence[str]) -> tuple[str, str]:
    """Return the preset of the server and the image of the pods that it is known by; empty where none is known."""
    images = [
        container.get("image", "")
        for name in names
        for container in seen.deployments[name]["spec"]["template"]["spec"].get("containers") or ()
    ]
    matches = {preset: image for image in images for part, preset in IMAGES.items() if part in image}
    return next(iter(matches.items())) if len(matches) == 1 else ("", "")


def _objective(draft: Draft, in_tokens: bool) -> None:
    """Set the objective: of the first and of each further token for a server that times both, else of the answer."""
    nothing = "Nothing in the cluster says it. A bound of your latency histogram is counted exactly."
    path = "spec.slo.latencyMilliseconds"
    if not in_tokens:
        draft.set(path, LATENCY_MS, f"GUESS: within how many milliseconds is a request answered well? {nothing}")
        return
    draft.set(path, FIRST_MS, f"GUESS: within how many milliseconds has the first token to come? {nothing}")
    draft.set("spec.slo.signal", "ttft")
    draft.set("spec.slo.timePerOutputTokenMilliseconds", TOKEN_MS, "GUESS: and each further one?")
    draft.set(
        "spec.capacity.unit",
        "tokens",
        "Requests of a model differ in length: the load is in tokens/s. The capacity of a replica, perReplica beside "
        "it, is measured under load; until then nothing is scaled down.",
    )


def _services_of(seen: Seen, deployment: str) -> list[str]:
    labels = seen.deployments[deployment]["spec"]["template"]["metadata"].get("labels") or {}
    return [
        body["metadata"]["name"]
        for body in seen.services
        if (selector := (body.get("spec") or {}).get("selector"))
        and all(labels.get(key) == value for key, value in selector.items())
    ]


def _route(draft: Draft, seen: Seen, names: Sequence[str]) -> None:
    """Set the HTTPRoute with a rule that has a Service of each pool as a backend, where there is exactly one."""
    first, second = (set(_services_of(seen, name)) for name in names)
    matches: dict[str, tuple[str, str]] = {}
    for route in seen.routes:
        for rule in (route.get("spec") or {}).get("rules") or ():
            backends = [ref.get("name") for ref in rule.get("backendRefs") or ()]
            gpu = [name for name in backends if name in first - second]
            cpu = [name for name in backends if name in second - first]
            if len(gpu) == 1 and len(cpu) == 1:
                matches[route["metadata"]["name"]] = gpu[0], cpu[0]
    if len(matches) == 1:
        ((name, (gpu_backend, cpu_backend)),) = matches.items()
        why = "It has a backend of each pool: in Auto the weights follow the placement."
        draft.set("spec.placement.httpRoute.name", name, why)
        draft.set("spec.placement.httpRoute.gpuBackend", gpu_backend)
        draft.set("spec.placement.httpRoute.cpuBackend", cpu_backend)
    else:
        draft.leave(
            "spec.placement",
            f"{len(matches)} HTTPRoutes have a backend of each pool: without httpRoute the weights are only published.",
        )
