"""How large new pods begin: `status.newPods`, which `admission/new-pods.yaml` reads in the API server."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from rlscaler_core.api.base import Reported, Word

Requirement = Annotated[str, Field(min_length=1, max_length=1024)]
"""What a selector asks of one label: `a=b|c`, `a!=b|c`, `a` or `!a`."""


class NewPodSize(Reported):
    """Which new pods of a pool are sized, and what their container asks for."""

    deployment: Word | None = None
    """The Deployment whose ReplicaSets make the pods; absent for a target of another kind."""
    labels: Annotated[list[Requirement], Field(min_length=1, max_length=32)] | None = None
    """What the selector of a target of another kind asks of the pods' labels: `a=b|c`, `a!=b|c`, `a` or `!a`."""
    container: Word | None = None
    """The container that is sized; absent: the pods' only one."""
    cpu: Word | None = None
    """The CPU request that it begins with, such as `500m`; absent: what the template says."""
    memory: Word | None = None
    """The memory request that it begins with, such as `768Mi`; absent: what the template says."""
    least_memory: Word | None = None
    """The memory below which the template's request is not lowered; absent: it is not lowered at all."""


class NewPodSizes(Reported):
    """How large new pods begin; of a pool that is absent they begin as their template says."""

    gpu: NewPodSize | None = None
    """The pods of the GPU pool."""
    cpu: NewPodSize | None = None
    """The pods of the CPU pool."""
