"""Cost of the shared queries in Prometheus, beside a plain sum of the same counters over all pods of the cluster.

python -m benchmarks.queries --policies 200 --foreign 15000 --rounds 5

A block of series is written with promtool and asked of a Prometheus of its own. Each policy has two pools of `--pods`
pods; the foreign pods are in namespaces of their own and, every tenth, in those of the policies. The plain sum is
`sum(rate(container_cpu_usage_seconds_total[60s]))`. Times are medians over the rounds, in seconds.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import requests

from rlscaler_dev.cluster import binaries
from rlscaler_dev.cluster.network import free_ports
from rlscaler_dev.cluster.progress import ConsoleReporter
from rlscaler_operator.sensing.queries import Window, batch
from rlscaler_operator.sensing.subject import Subject

SCRAPES = 9
SCRAPE_SECONDS = 15
HASH, PLAIN = "7d9c6b8f5d", "sum(rate(container_cpu_usage_seconds_total[60s]))"
BOUNDS = ("0.05", "0.1", "0.2", "0.5", "1", "+Inf")
POLICIES_IN_ONE_NAMESPACE = 10


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--policies", type=int, default=200)
    parser.add_argument("--foreign", type=int, default=15_000, help="pods of no policy")
    parser.add_argument("--pods", type=int, default=2, help="pods of one pool")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    subjects = [subject(i) for i in range(options.policies)]
    now = int(time.time()) // SCRAPE_SECONDS * SCRAPE_SECONDS
    with ConsoleReporter() as progress:
        tools = binaries.provide(["prometheus", "promtool"], progress)
    with tempfile.TemporaryDirectory(prefix="queries-") as folder:
        series = Path(folder) / "series"
        with series.open("w") as file:
            file.writelines(lines(subjects, options.pods, options.foreign, now))
        create = ["tsdb", "create-blocks-from", "openmetrics", str(series), f"{folder}/data"]
        subprocess.run([tools["promtool"]["path"], *create], check=True, stdout=subprocess.DEVNULL)
        (port,) = free_ports(1)
        config = Path(folder) / "prometheus.yml"
        config.write_text("{}")
        command = [tools["prometheus"]["path"], f"--config.file={config}", f"--storage.tsdb.path={folder}/data"]
        with (Path(folder) / "log").open("wb") as log:
            process = subprocess.Popen([*command, f"--web.listen-address=127.0.0.1:{port}"], stdout=log, stderr=log)
        try:
            report(f"http://127.0.0.1:{port}", subjects, now, options.rounds)
        finally:
            process.terminate()
            process.wait(20)


def subject(number: int) -> Subject:
    """Return one policy's subject."""
    name = f"chat-{number}"
    return Subject(f"team-{number // POLICIES_IN_ONE_NAMESPACE}", name, (f"{name}-gpu", f"{name}-cpu"))


def lines(subjects: list[Subject], pods: int, foreign: int, now: int) -> Iterator[str]:
    """Yield the exposition of some scrapes up to `now`."""
    for scrape in range(SCRAPES):
        at, grown = now - (SCRAPES - 1 - scrape) * SCRAPE_SECONDS, scrape * SCRAPE_SECONDS
        for each in subjects:
            for pool, deployment in zip(("gpu", "cpu"), each.deployments, strict=True):
                where = f'namespace="{each.namespace}",service="{each.service}",pool="{pool}"'
                yield f"inference_requests_received_total{{{where}}} {10 * grown} {at}\n"
                yield f"inference_request_duration_seconds_count{{{where}}} {10 * grown} {at}\n"
                for le in BOUNDS:
                    yield f'inference_request_duration_seconds_bucket{{{where},le="{le}"}} {10 * grown} {at}\n'
                for pod in range(pods):
                    yield from of_pod(each.namespace, f"{deployment}-{HASH}-{pod:05}", grown, at)
        for number in range(foreign):
            namespace = subjects[number % len(subjects)].namespace if number % 10 == 0 else f"foreign-{number % 300}"
            yield from of_pod(namespace, f"web-{number // 10}-{HASH}-{number:05}", grown, at)
    yield "# EOF\n"


def of_pod(namespace: str, pod: str, grown: float, at: int) -> Iterator[str]:
    """Yield the series of cAdvisor, kube-state-metrics and dcgm-exporter of one pod."""
    where = f'namespace="{namespace}",pod="{pod}"'
    for container in ("app", ""):
        usage = f'{where},container="{container}",cpu="total",node="n",instance="i"'
        yield f"container_cpu_usage_seconds_total{{{usage}}} {0.5 * grown} {at}\n"
        yield f"container_memory_working_set_bytes{{{usage}}} 5e8 {at}\n"
    for resource, value in (("cpu", "1"), ("memory", "1e9")):
        labels = f'{where},container="app",resource="{resource}"'
        yield f"kube_pod_container_resource_requests{{{labels}}} {value} {at}\n"
    for condition in ("true", "false", "unknown"):
        yield f'kube_pod_status_ready{{{where},condition="{condition}"}} {int(condition == "true")} {at}\n'
    if "-gpu-" in pod:
        yield f'DCGM_FI_DEV_GPU_UTIL{{{where},gpu="0",UUID="u"}} 50 {at}\n'


def report(url: str, subjects: list[Subject], now: int, rounds: int) -> None:
    """Print the median time of each query, and its ratio to the plain sum."""
    queries = {query.name: query.promql for query in batch(subjects, Window(60, 15.0, 30.0), Window(60, 15.0))}
    for _ in range(100):
        try:
            if requests.get(f"{url}/-/ready", timeout=5).ok:
                break
        except requests.RequestException:
            pass
        time.sleep(0.2)
    seconds: dict[str, list[float]] = {name: [] for name in ("plain sum", *queries)}
    sizes: dict[str, int] = {}
    for _ in range(rounds):
        for name, promql in {"plain sum": PLAIN, **queries}.items():
            began = time.monotonic()
            answer = requests.post(f"{url}/api/v1/query", {"query": promql, "time": str(now + 1)}, timeout=120)
            seconds[name].append(time.monotonic() - began)
            answer.raise_for_status()
            sizes[name] = len(answer.json()["data"]["result"])
    plain = statistics.median(seconds["plain sum"])
    print(f"{'query':16} {'seconds':>8} {'ratio':>6} {'series':>7} {'bytes':>7}")
    for name, times in seconds.items():
        median = statistics.median(times)
        print(f"{name:16} {median:8.3f} {median / plain:6.2f} {sizes[name]:7} {len(queries.get(name, PLAIN)):7}")


if __name__ == "__main__":
    main()
