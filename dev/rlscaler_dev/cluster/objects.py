"""Kubernetes objects that several runs create alike."""

from __future__ import annotations

from rlscaler_dev.cluster.kube import Json

SERVICE_ENV = [
    *(
        {"name": f"POD_{what.upper()}", "valueFrom": {"fieldRef": {"fieldPath": f"metadata.{what}"}}}
        for what in ("name", "namespace")
    ),
    {"name": "OPENBLAS_NUM_THREADS", "value": "1"},
]
"""Environment of a container of the image `rlscaler-service`: whose pod it is, and one thread for numpy."""


def namespace(name: str) -> Json:
    """Return the namespace that a run creates its objects in, and deletes at its end."""
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}


def deployment(
    name: str, namespace: str, spec: Json, *, replicas: int = 1, annotations: dict[str, str] | None = None
) -> Json:
    """Return a Deployment whose pods have this `spec`, these annotations and the label `app` with its name."""
    labels = {"app": name}
    metadata = {"labels": labels, "annotations": annotations or {}}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {"metadata": metadata, "spec": spec},
        },
    }
