"""The node's daemons: their command lines, and the configuration files that they read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import yaml

from rlscaler_dev.cluster import kubeconfig
from rlscaler_dev.cluster.components import Layout
from rlscaler_dev.cluster.network import (
    CLUSTER_DOMAIN,
    GATEWAY_METRICS_PORT,
    GATEWAY_PORT,
    NODE_IP,
    NODE_NAME,
    POD_RANGE,
    POOL,
)
from rlscaler_dev.cluster.realnode import cgroups, images, packages
from rlscaler_dev.cluster.realnode.files import NodeFiles

LABELS = f"pool={POOL},nvidia.com/gpu.present=true"


def containerd(layout: Layout) -> list[str]:
    """The distribution's."""
    return [
        packages.needed("containerd"),
        f"--config={NodeFiles.of(layout.directory).containerd_config}",
        "--log-level=warn",
    ]


def kubelet(layout: Layout) -> list[str]:
    """Registers itself as an ordinary node without taints."""
    files = NodeFiles.of(layout.directory)
    return [
        layout.binaries["kubelet"],
        f"--config={files.kubelet_config}",
        f"--kubeconfig={files.kubelet_kubeconfig}",
        "--root-dir=/var/lib/kubelet",
        f"--hostname-override={NODE_NAME}",
        f"--node-ip={NODE_IP}",
        f"--node-labels={LABELS}",
        "--v=1",
    ]


def kube_proxy(layout: Layout) -> list[str]:
    """Services and their endpoints as rules of the namespace."""
    return [layout.binaries["kube-proxy"], f"--config={NodeFiles.of(layout.directory).proxy_config}", "--v=1"]


def coredns(layout: Layout) -> list[str]:
    """The cluster's DNS, on the node's address."""
    return [layout.binaries["coredns"], f"-conf={NodeFiles.of(layout.directory).corefile}"]


def traefik(layout: Layout) -> list[str]:
    """The Gateway API's data plane; KUBECONFIG tells it where the API server is."""
    return [
        layout.binaries["traefik"],
        "--global.checknewversion=false",
        "--global.sendanonymoususage=false",
        "--log.level=WARN",
        "--providers.kubernetesgateway=true",
        f"--providers.kubernetesgateway.statusaddress.ip={NODE_IP}",
        f"--entrypoints.web.address=:{GATEWAY_PORT}",
        f"--entrypoints.metrics.address=:{GATEWAY_METRICS_PORT}",
        "--metrics.prometheus=true",
        "--metrics.prometheus.entrypoint=metrics",
        "--metrics.prometheus.addrouterslabels=true",
    ]


CONTAINERD_SOCKET = "/run/containerd/containerd.sock"
MAX_PODS = 250
PIDS_PER_POD = 512


def write_files(cluster: str, layout: Layout) -> None:
    """Write every configuration file."""
    files = NodeFiles.of(layout.directory)
    files.cni_dir.mkdir(parents=True, exist_ok=True)
    (files.cni_dir / "10-rlscaler.conflist").write_text(json.dumps(pod_network(), indent=2))
    files.containerd_config.write_text(containerd_config(files, packages.plugin_directory()))
    files.resolv_conf.write_text(f"nameserver {NODE_IP}\n")
    files.kubelet_config.write_text(yaml.safe_dump(kubelet_config(cluster, layout, files), sort_keys=False))
    pki = layout.pki
    kubeconfig.write(
        files.kubelet_kubeconfig, kubeconfig.client(cluster, layout.server, pki.ca_cert, pki.node_cert, pki.node_key)
    )
    files.proxy_config.write_text(yaml.safe_dump(kube_proxy_config(layout), sort_keys=False))
    files.corefile.write_text(corefile(layout))


def pod_network() -> dict[str, Any]:
    """A bridge on the node; nothing is masqueraded, since nothing leads out."""
    address = {"type": "host-local", "ranges": [[{"subnet": POD_RANGE}]], "routes": [{"dst": "0.0.0.0/0"}]}
    bridge = {
        "type": "bridge",
        "bridge": "cni0",
        "isGateway": True,
        "ipMasq": False,
        "hairpinMode": True,
        "ipam": address | {"dataDir": "/run/cni"},
    }
    return {"cniVersion": "0.4.0", "name": "rlscaler", "plugins": [bridge]}


def containerd_config(files: NodeFiles, plugins: Path) -> str:
    """TOML for containerd 1.6 and later, which reads version 2 of its configuration too.

    `restrict_oom_score_adj`: without CAP_SYS_RESOURCE, as in most containers and some virtual machines, every pod
    would fail otherwise, with a message of runc's that says something else.
    """
    snapshotters = ", ".join(f'"io.containerd.snapshotter.v1.{name}"' for name in ("btrfs", "zfs", "devmapper", "aufs"))
    return f"""\
version = 2
root = "{files.containerd_root}"
state = "/run/containerd"
disabled_plugins = [{snapshotters}]
[grpc]
  address = "{CONTAINERD_SOCKET}"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{images.PAUSE}"
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{plugins}"
    conf_dir = "{files.cni_dir}"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
"""


def kubelet_config(cluster: str, layout: Layout, files: NodeFiles) -> dict[str, Any]:
    """Upstream's defaults, but cgroups of its own and no eviction for a disk that the host shares."""
    pki = layout.pki
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "failCgroupV1": False,
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{cgroups.name(cluster)}",
        "containerRuntimeEndpoint": f"unix://{CONTAINERD_SOCKET}",
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": str(pki.ca_cert)},
        },
        "authorization": {"mode": "Webhook"},
        "tlsCertFile": str(pki.node_cert),
        "tlsPrivateKeyFile": str(pki.node_key),
        "volumePluginDir": "/var/lib/kubelet/volumeplugins",
        "clusterDNS": [NODE_IP],
        "clusterDomain": CLUSTER_DOMAIN,
        "resolvConf": str(files.resolv_conf),
        "maxPods": MAX_PODS,
        "podPidsLimit": PIDS_PER_POD,
        "serializeImagePulls": False,
        "imageGCHighThresholdPercent": 100,
        "evictionHard": {
            "memory.available": "200Mi",
            "nodefs.available": "1%",
            "imagefs.available": "1%",
            "nodefs.inodesFree": "1%",
        },
        "systemReserved": {"memory": "1Gi"},
        "enforceNodeAllocatable": ["pods"],
        "nodeStatusUpdateFrequency": "5s",
        "oomScoreAdj": 0,
        "kubeAPIQPS": 200,
        "kubeAPIBurst": 400,
    }


def kube_proxy_config(layout: Layout) -> dict[str, Any]:
    """nftables; the machine's connection tracking stays as it is."""
    return {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": "nftables",
        "clusterCIDR": POD_RANGE,
        "clientConnection": {"kubeconfig": str(layout.kubeconfig)},
        "hostnameOverride": NODE_NAME,
        "conntrack": {"maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"},
        "nftables": {"minSyncPeriod": "200ms", "syncPeriod": "30s"},
        "oomScoreAdj": 0,
    }


def corefile(layout: Layout) -> str:
    """Services and pods by name; every other name is refused at once, since nothing outside can be reached."""
    return f"""\
. {{
    bind {NODE_IP}
    errors
    kubernetes {CLUSTER_DOMAIN} in-addr.arpa ip6.arpa {{
        kubeconfig {layout.kubeconfig}
        ttl 5
    }}
    template ANY ANY {{
        rcode NXDOMAIN
    }}
}}
"""
