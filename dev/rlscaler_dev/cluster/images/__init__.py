"""The container images, built on this machine without an engine and without a registry.

`build` makes the archives from image/Dockerfile with buildah, `archive` says where they lie. Beside each lie its bill
of materials and its sizes.
"""

from rlscaler_dev.cluster.images.make import IMAGES, archive, build, reference

__all__ = ["IMAGES", "archive", "build", "reference"]
