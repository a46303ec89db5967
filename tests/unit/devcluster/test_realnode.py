"""What the real node is made of, as far as it can be seen without root."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import socket
import subprocess
import sys
import tarfile
import tomllib
from pathlib import Path

import pytest
import yaml
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec

from rlscaler_dev.cluster import kwok as played_nodes
from rlscaler_dev.cluster import pki, prometheus
from rlscaler_dev.cluster.components import PORTS, Layout, command
from rlscaler_dev.cluster.images import content
from rlscaler_dev.cluster.network import HOST
from rlscaler_dev.cluster.realnode import daemons, forward, images, packages
from rlscaler_dev.cluster.realnode.files import node_folder
from rlscaler_dev.cluster.realnode.images import Image
from rlscaler_dev.cluster.versions import CONTROL_PLANE, REAL_NODE, TOOLS
from rlscaler_dev.exceptions import DevClusterError, StartError


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    binaries = {tool: f"/bin/{tool}" for tool in (*CONTROL_PLANE, *REAL_NODE)}
    return Layout(tmp_path, dict.fromkeys(PORTS, 20001), binaries, real=True)


def test_every_reason_why_it_cannot_run_is_named_at_once_with_the_way_out(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(packages, "_SYSTEM_PATH", "")
    monkeypatch.setattr(packages, "CNI_DIRECTORIES", (tmp_path,))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(DevClusterError) as refused:
        packages.require_node()
    for part in (
        "needs root",
        "runc",
        "host-local",
        "`make e2e-packages` installs containerd",
        "Without `--node real`",
    ):
        assert part in refused.value.message
    with pytest.raises(DevClusterError, match="installs containernetworking-plugins"):
        packages.plugin_directory()


def test_elsewhere_than_on_linux_nothing_is_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packages, "supported", lambda: False)
    with pytest.raises(DevClusterError, match=r"cannot run here: it needs Linux\. Without"):
        packages.require_node()


def test_packages_are_installed_by_apt_or_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(packages, "_SYSTEM_PATH", "")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(DevClusterError, match="this system's packages for containerd runc"):
        packages.install(packages.PACKAGES[:2])
    apt = tmp_path / "apt-get"
    apt.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/calls\n[ "$1" = update ]\n')
    apt.chmod(0o755)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(DevClusterError, match="sudo apt-get install --no-install-recommends runc"):
        packages.install(packages.PACKAGES[1:2])
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    with pytest.raises(DevClusterError, match="apt-get install failed"):
        packages.install(packages.PACKAGES[:2])
    assert (tmp_path / "calls").read_text().splitlines()[1] == "install -q -y --no-install-recommends containerd runc"


@pytest.mark.parametrize("hidden", ["/var/cache/rlscaler/clusters/x", "/run/x"])
def test_a_cache_that_the_namespace_would_hide_is_refused(hidden: str) -> None:
    with pytest.raises(StartError, match="set RLSCALER_CACHE"):
        node_folder(Path(hidden))


def test_an_image_is_an_archive_as_docker_saves_it_and_the_same_every_time(tmp_path: Path) -> None:
    program = tmp_path / "program"
    program.write_bytes(b"\x7fELF")
    image = Image("localhost/thing:1", program, ("/bin/thing", "--flag"))
    first = images.write(image, tmp_path / "first" / "thing.tar")
    assert images.write(image, tmp_path / "second" / "thing.tar").read_bytes() == first.read_bytes()
    found = content.read(first)
    assert found.config == {"User": "65534", "Entrypoint": ["/bin/thing", "--flag"], "WorkingDir": "/"}
    assert found.sizes == ({"bin/thing": 4},)
    with tarfile.open(first) as archive:
        (manifest,) = json.load(archive.extractfile("manifest.json"))  # type: ignore[arg-type]
        layer = archive.extractfile("layer.tar").read()  # type: ignore[union-attr]
    assert manifest["RepoTags"] == ["localhost/thing:1"]
    assert found.layers == (f"sha256:{hashlib.sha256(layer).hexdigest()}",)


def test_a_missing_archive_is_named(tmp_path: Path) -> None:
    with pytest.raises(DevClusterError, match=r"no image archive at .*nothing\.tar"):
        images.load([], [tmp_path / "nothing.tar"])


def test_pods_land_on_played_nodes_only_when_they_tolerate_it() -> None:
    played = played_nodes.nodes(1, 8, 1, beside_real=True)
    assert [node["spec"]["taints"][-1] for node in played] == [played_nodes.FAKE_TAINT] * 2
    assert played[0]["spec"]["taints"][0]["key"] == "nvidia.com/gpu"


def test_the_nodes_certificate_is_known_to_the_node_authorizer_and_good_for_its_address(tmp_path: Path) -> None:
    made = pki.create(tmp_path, "real-1", ["10.88.0.2"])
    certificate = x509.load_pem_x509_certificate(made.node_cert.read_bytes())
    assert certificate.subject.rfc4514_string() == "CN=system:node:real-1,O=system:nodes"
    addresses = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert "10.88.0.2" in map(str, addresses.get_values_for_type(x509.IPAddress))
    assert isinstance(certificate.public_key(), ec.EllipticCurvePublicKey)


def test_the_daemons_get_files_of_this_cluster(layout: Layout, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packages, "plugin_directory", lambda: Path("/usr/lib/cni"))
    pki.create(layout.directory / "pki", "real-1")
    daemons.write_files("mine", layout)
    node = layout.directory / "node"
    cri = tomllib.loads((node / "containerd.toml").read_text())["plugins"]["io.containerd.grpc.v1.cri"]
    assert cri["sandbox_image"] == images.PAUSE
    assert cri["cni"] == {"bin_dir": "/usr/lib/cni", "conf_dir": f"{node}/cni"}
    assert json.loads((node / "cni" / "10-rlscaler.conflist").read_text())["plugins"][0]["bridge"] == "cni0"
    kubelet = yaml.safe_load((node / "kubelet.yaml").read_text())
    assert (kubelet["cgroupRoot"], kubelet["clusterDNS"]) == ("/rlscaler-mine", ["10.88.0.2"])
    assert all(Path(kubelet[name]).exists() for name in ("tlsCertFile", "tlsPrivateKeyFile", "resolvConf"))
    proxy = yaml.safe_load((node / "kube-proxy.yaml").read_text())
    assert proxy["clientConnection"] == {"kubeconfig": str(layout.kubeconfig)}
    assert "$" not in (node / "Corefile").read_text()
    options = [option for name in ("kubelet", "kube-proxy", "coredns") for option in command(layout, name)]
    named = [Path(option.partition("=")[2]) for option in options if f"={node}/" in option]
    assert len(named) == 4
    assert all(path.exists() for path in named)


def test_prometheus_discovers_pods_only_where_they_are_real(tmp_path: Path) -> None:
    path = tmp_path / "prometheus.yml"
    prometheus.write_config(path, tmp_path / "targets")
    assert "kubernetes_sd_configs" not in path.read_text()
    prometheus.write_config(path, tmp_path / "targets", tmp_path / "kubeconfig")
    assert f"kubeconfig_file: {tmp_path}/kubeconfig" in path.read_text()
    assert "enable_kubernetes_sd" in TOOLS["prometheus"].tags


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"heard " + await reader.read())
    await writer.drain()
    writer.close()


async def test_the_forwarder_carries_both_ways_and_ends_with_the_process_it_watches() -> None:
    inner = await asyncio.start_server(echo, HOST, 0)
    port = inner.sockets[0].getsockname()[1]
    listener, nowhere = socket.create_server((HOST, 0)), socket.create_server((HOST, 0))
    silent = socket.socket()
    silent.bind((HOST, 0))  # bound and not listening: nobody else can listen there
    unused = silent.getsockname()[1]
    watched = await asyncio.create_subprocess_exec(sys.executable, "-c", "input()", stdin=subprocess.PIPE)
    descriptor = os.pidfd_open(watched.pid)
    carrying = asyncio.create_task(forward.serve({port: listener, unused: nowhere}, descriptor))
    reader, writer = await asyncio.open_connection(*listener.getsockname())
    writer.write(b"hello")
    writer.write_eof()
    assert await reader.read() == b"heard hello"
    writer.close()
    refused, closed = await asyncio.open_connection(*nowhere.getsockname())
    assert await refused.read() == b""
    closed.close()
    await watched.communicate(b"\n")
    await asyncio.wait_for(carrying, 10)
    os.close(descriptor)
    silent.close()
    inner.close()
    await inner.wait_closed()
