"""The container images, built on this machine without an engine and without a registry.

`make.build` makes the archives from image/Dockerfile with buildah, `make.archive` says where they lie. Beside each lie
its bill of materials and its sizes.
"""
