"""One real node: a kubelet with containerd beside the nodes that kwok plays, without Docker and without a registry.

Control plane and node live in a private mount, network and PID namespace. Killing its first process ends every other,
with all mounts, interfaces and rules; on the host only files and empty cgroups stay, which `down` removes.
"""
