"""Requests of new pods: `status.newPods`, which `admission/new-pods.yaml` reads in the API server."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from rlscaler_core.api.base import Reported, Word

Requirement = Annotated[str, Field(min_length=1, max_length=1024)]
"""One requirement of a label selector: `a=b|c`, `a!=b|c`, `a` or `!a`."""


class NewPodSize(Reported):
    """New pods of a pool that are sized, and the requests of their container."""

    deployment: Word | None = None
    """The Deployment whose ReplicaSets make the pods; absent for a target of another kind."""
    labels: Annotated[list[Requirement], Field(min_length=1, max_length=32)] | None = None
    """Requirements that the selector of a target of another kind has for pod labels: `a=b|c`, `a!=b|c`, `a` or `!a`."""
    container: Word | None = None
    """The container that is sized; absent: the pods' only one."""
    cpu: Word | None = None
    """The CPU request that it begins with, such as `500m`; absent: that of the template."""
    memory: Word | None = None
    """The memory request that it begins with, such as `768Mi`; absent: that of the template."""
    least_memory: Word | None = None
    """The memory below which the template's request is not lowered; absent: it is not lowered at all."""


class NewPodSizes(Reported):
    """Requests of new pods; those of an absent pool begin with the requests of their template."""

    gpu: NewPodSize | None = None
    """The pods of the GPU pool."""
    cpu: NewPodSize | None = None
    """The pods of the CPU pool."""
