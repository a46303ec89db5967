"""The whole end-to-end run: install, the parts that were asked for, uninstall, nothing left."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

from rlscaler_dev.demo.records import versions
from rlscaler_dev.e2e import traffic
from rlscaler_dev.e2e.cluster import Cluster, interfaces, left_behind, pid_namespaces
from rlscaler_dev.e2e.installation import Installation
from rlscaler_dev.e2e.lifecycle import Lifecycle
from rlscaler_dev.e2e.logs import OperatorLogs
from rlscaler_dev.e2e.play import Player
from rlscaler_dev.e2e.settings import Play, Settings
from rlscaler_dev.e2e.sizes.play import Sizes
from rlscaler_dev.exceptions import DemoError

Say = Callable[[str], None]
SCRAPED = 'count by (namespace) (up{job="pods"} == 1)'
RECEIVED = "sum by (pool) (inference_requests_received_total)"
CADVISOR = 'count(container_memory_working_set_bytes{pod!=""})'


def run(settings: Settings, say: Say) -> dict[str, Any]:
    """The content of OUT/summary.json. Raises DemoError where a step fails or something is left behind."""
    begin = time.monotonic()
    settings.out.mkdir(parents=True, exist_ok=True)
    (settings.out / "transcript.txt").unlink(missing_ok=True)
    before = interfaces()
    with Cluster.up(settings) as cluster:
        namespaces = pid_namespaces(cluster.info.processes.values())
        up_seconds = time.monotonic() - begin
        say(f"cluster {cluster.info.name}: Kubernetes {cluster.info.server_version}, a real node, {up_seconds:.0f} s")
        summary = {"up_seconds": round(up_seconds, 1), **_on(cluster, settings, say)}
    left = [] if settings.keep_cluster else left_behind(settings.cluster_name, namespaces, before)
    summary |= {
        "left_on_host": left,
        "seconds": round(time.monotonic() - begin, 1),
        "server_version": cluster.info.server_version,
        "versions": versions(),
    }
    (settings.out / "summary.json").write_text(json.dumps(summary, indent=2) + "\n")
    if left:
        raise DemoError("left on this machine: " + "; ".join(left))
    return summary


def _on(cluster: Cluster, settings: Settings, say: Say) -> dict[str, Any]:
    objects = cluster.objects()
    installation = Installation(settings, cluster)
    installed = installation.install()
    say(f"installed: operator {installed['operator']} s, demo {installed['demo']} s")
    logs = OperatorLogs(cluster.kube, cluster.commands, settings.out / "logs")
    parts = settings.parts
    try:
        player = Player(settings, cluster, installation, logs, say)
        plays = Play.all_of(settings)
        runs = [player.play(play) for play in plays]
        lifecycle = Lifecycle(settings, cluster, installation, say).play(player) if "lifecycle" in parts else None
        scraped = {name: installation.query(promql) for name, promql in
                   (("targets", SCRAPED), ("received", RECEIVED), ("cadvisor", CADVISOR))}  # fmt: skip
        sizes = Sizes(cluster, installation, say).play() if "sizes" in parts else None
    finally:
        logs.stop()
    names = [play.name for play in plays] + (["lifecycle"] if lifecycle else [])
    moved = {name: traffic.stretches(settings.out / name) for name in names}
    begin = time.monotonic()
    installation.uninstall()
    remains = sorted(cluster.objects() - objects)
    say(f"uninstalled in {time.monotonic() - begin:.0f} s; left in the cluster: {', '.join(remains) or 'nothing'}")
    if remains:
        raise DemoError("left in the cluster: " + "; ".join(remains))
    return {
        "install_seconds": installed,
        "runs": runs,
        "lifecycle": lifecycle,
        "sizes": sizes,
        "pods_seen": len(player.pods_seen),
        "most_pods_at_once": player.most_pods,
        "prometheus": scraped,
        "traffic": {name: traffic.summarise(stretches) for name, stretches in moved.items()},
        "uninstall_seconds": round(time.monotonic() - begin, 1),
        "left_in_cluster": remains,
    }
