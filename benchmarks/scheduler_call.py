"""Where the suggestion server's time for a pod goes: the parts of one call of the score plugin, without a cluster.

python -m benchmarks.scheduler_call --nodes 1000 --nodes 5000 --policy EE --out results/scheduler-call.json

Each part is done over and over, and the fastest time counts, since machines are shared: what other processes take is
left out, and so is what a cold cache costs. HTTP and the streams of the watches are not in it. For the policy GPU nodes
have eight GPUs, three pods with a share of one run on each, and pods ask for shares.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from rlscaler_core.placement.policies import Policy
from rlscaler_dev.benchmark import write
from rlscaler_dev.placement import testbed
from rlscaler_scheduler.server import Server
from rlscaler_scheduler.settings import Settings
from rlscaler_scheduler.suggest import Suggestion
from rlscaler_scheduler.wire import HEADER, MAGIC, ROW, Question, answer

ROUNDS = 300

MILLI = Settings().gpu_milli_resource
SHARES = (200, 250, 500, 750)
"""Thousandths of a GPU that pods ask for."""


def fastest_us(work: Callable[[int], Any]) -> float:
    """Microseconds of the fastest of many rounds; `work` gets the number of the round."""
    took = []
    for index in range(ROUNDS):
        began = time.perf_counter()
        work(index)
        took.append(time.perf_counter() - began)
    return round(1e6 * min(took), 1)


def pod(index: int, policy: Policy) -> dict[str, Any]:
    """A pod as kube-scheduler has it."""
    made = testbed.pod(f"p-{index}", "cost", f"{100 + index % 7 * 50}m", "128Mi")
    if policy is Policy.GPU:
        made["spec"]["containers"][0]["resources"]["requests"][MILLI] = str(SHARES[index % len(SHARES)])
    made["metadata"] |= {"uid": f"u-{index}", "creationTimestamp": "2026-01-01T00:00:00Z"}
    return made


def measure(count: int, policy: Policy) -> dict[str, Any]:
    """Microseconds by part, on this many nodes."""
    server = Server(Settings(policy=policy))
    nodes = testbed.nodes(count, gpus=8 if policy is Policy.GPU else 0)
    server.cache.set_nodes(nodes)
    running = [pod(ROUNDS + index, policy) for index in range(3 * count if policy is Policy.GPU else 0)]
    for index, one in enumerate(running):
        one["spec"]["nodeName"] = nodes[index % count]["metadata"]["name"]
    server.cache.set_pods(running)
    server.suggester.scoring_policies.set([])
    server.suggester.set_namespaces([])
    table = np.zeros(count, ROW)
    table["number"] = np.arange(count)
    names = "\n".join(node["metadata"]["name"] for node in nodes).encode()

    def asked(index: int, new_names: bytes = b"") -> Question:
        about = json.dumps(pod(index, policy)).encode()
        header = HEADER.pack(MAGIC, count, 1, 0 if new_names else count, len(new_names), len(about))
        return Question(header + table.tobytes() + new_names + about, server.cache.resources)

    rows = server.rosters.rows(asked(0, names), server.cache)
    if rows is None:
        raise RuntimeError("the names were sent and are not known")
    questions = [asked(index) for index in range(ROUNDS)]
    suggestions: list[Suggestion] = []

    def suggest(index: int) -> None:
        question = questions[index]
        suggestions.append(server.suggester.suggest(question.facts, rows, question.counted))

    def watched(index: int) -> None:
        """What comes of a pod: it is there, it is bound, it runs."""
        seen = pod(index, policy)
        server.cache.change_pod(seen, False)
        seen["spec"]["nodeName"] = suggestions[index].chosen
        server.cache.change_pod(seen, False)
        seen["status"] = {"phase": "Running", "startTime": "2026-01-01T00:00:00Z"}
        server.cache.change_pod(seen, False)

    return {
        "nodes": count,
        "policy": policy,
        "rows_us": fastest_us(lambda index: server.rosters.rows(questions[index], server.cache)),
        "suggest_us": fastest_us(suggest),
        "record_us": fastest_us(lambda index: server._made(suggestions[index])),
        "answer_us": fastest_us(lambda index: answer(suggestions[index].levels(100), suggestions[index].sentence())),
        "watched_us": fastest_us(watched),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, action="append", required=True)
    parser.add_argument("--policy", type=Policy, choices=list(Policy), default=Policy.EE)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    rows = []
    for count in options.nodes:
        rows.append(measure(count, options.policy))
        print(json.dumps(rows[-1]), flush=True)
    write(options.out, rows, indent=1)


if __name__ == "__main__":
    main()
