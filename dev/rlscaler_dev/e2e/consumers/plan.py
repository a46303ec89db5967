"""The consumers' Deployment, their policy and their load."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from rlscaler_dev.cluster import objects
from rlscaler_dev.cluster.images.make import reference
from rlscaler_dev.cluster.kube import Json
from rlscaler_dev.cluster.network import NODE_NAME
from rlscaler_dev.demo.kafka import plan as demo
from rlscaler_dev.demo.kafka.plan import CONSUMERS, GROUP, NAME, TOPIC, Play
from rlscaler_dev.e2e.settings import BROKER

NAMESPACE = "consumers"
TITLE = "RLScalingPolicy on the stream, real pods"
SECONDS, PEAK = 240, 300.0
"""Length of the load, and its highest rate in messages/s: the work of three consumers."""
MOST = 6
"""Replicas: half of the partitions, and containers that two cores can start in seconds."""
RECORDS = "/records"
METRICS_PORT = 9100


def play(out: Path, seed: int) -> Play:
    """A spike within four minutes, for containers that start in some seconds."""
    pool = replace(CONSUMERS, cold_start_seconds=(3, 9), max_replicas=MOST)
    return Play(out, duration_seconds=SECONDS, peak=PEAK, seed=seed, pool=pool)


def deployment(this: Play, records: Path) -> Json:
    """Return one consumer a pod, which records its messages in a folder of its own below `records` of the host."""
    arguments = [
        *("service", "consumer", f"--bootstrap-servers={BROKER}", f"--topic={TOPIC}", f"--group={GROUP}"),
        *(f"--protocol={this.protocol}", f"--message-ms={1000 / this.pool.requests_per_second:g}"),
        *(f"--batch={this.batch}", f"--commit-seconds={this.commit_seconds:g}", f"--seed={this.seed}"),
        *(f"--records={RECORDS}/$(POD_NAME)", "--host=0.0.0.0", f"--metrics-port={METRICS_PORT}"),
    ]
    container = {
        "name": "consumer",
        "image": reference("rlscaler-service"),
        "imagePullPolicy": "Never",
        "args": arguments,
        "env": objects.SERVICE_ENV,
        "readinessProbe": {"httpGet": {"path": "/metrics", "port": METRICS_PORT}, "periodSeconds": 1},
        "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}, "limits": {"memory": "256Mi"}},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [{"name": "records", "mountPath": RECORDS}],
    }
    spec = {
        "nodeSelector": {"kubernetes.io/hostname": NODE_NAME},
        "automountServiceAccountToken": False,
        "terminationGracePeriodSeconds": 15,
        "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [container],
        "volumes": [{"name": "records", "hostPath": {"path": str(records), "type": "Directory"}}],
    }
    return objects.deployment(NAME, NAMESPACE, spec)


def policy(this: Play) -> Json:
    """The demo's policy, of these consumers."""
    manifest = demo.policy(this, BROKER)
    return {**manifest, "metadata": {"name": NAME, "namespace": NAMESPACE}}
