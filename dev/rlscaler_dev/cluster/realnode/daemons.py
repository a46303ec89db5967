"""Configuration files of the node's daemons; their options are in `data/commands.yaml`."""

from __future__ import annotations

from importlib import resources
from string import Template

from rlscaler_dev.cluster import kubeconfig, network
from rlscaler_dev.cluster.components import Layout
from rlscaler_dev.cluster.realnode import cgroups, images, packages
from rlscaler_dev.cluster.realnode.files import node_folder


def write_files(cluster: str, layout: Layout) -> None:
    """Write the files of `data/node`, with the names of this cluster, and the kubelet's kubeconfig."""
    node, pki = node_folder(layout.directory), layout.pki
    (node / "cni").mkdir(parents=True, exist_ok=True)
    values = {
        **vars(network),
        "cgroup": cgroups.name(cluster),
        "kubeconfig": layout.kubeconfig,
        "node": node,
        "pause": images.PAUSE,
        "pki": pki.ca_cert.parent,
        "plugins": packages.plugin_directory(),
    }
    for source in resources.files("rlscaler_dev.cluster").joinpath("data", "node").iterdir():
        folder = node / "cni" if source.name.endswith(".conflist") else node
        (folder / source.name).write_text(Template(source.read_text()).substitute(values))
    identity = kubeconfig.client(cluster, layout.server, pki.ca_cert, pki.node_cert, pki.node_key)
    kubeconfig.write(node / "kubelet.kubeconfig", identity)
