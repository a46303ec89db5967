"""The files a cluster is started from, and the user's kubeconfig."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
import yaml
from cryptography import x509

from rlscaler_dev.cluster import kubeconfig, kwok, pki
from rlscaler_dev.cluster.components import PORTS, Layout, command
from rlscaler_dev.exceptions import DevClusterError


def test_certificates_are_signed_by_the_ca_and_keys_are_private(tmp_path: Path) -> None:
    made = pki.create(tmp_path / "pki")
    authority = x509.load_pem_x509_certificate(made.ca_cert.read_bytes())
    for path in (made.admin_cert, made.proxy_cert):
        x509.load_pem_x509_certificate(path.read_bytes()).verify_directly_issued_by(authority)
    assert all(stat.S_IMODE(path.stat().st_mode) == 0o600 for path in (tmp_path / "pki").iterdir())
    assert not (tmp_path / "pki" / "ca.key").exists()


def test_a_file_that_is_no_kubeconfig_is_named(tmp_path: Path) -> None:
    path = tmp_path / "config"
    path.write_text("hello: world\n")
    with pytest.raises(DevClusterError, match="is not a kubeconfig"):
        kubeconfig.read(path)


def test_kwoks_configuration_has_one_ready_stage_for_each_flavour_and_one_for_the_rest(tmp_path: Path) -> None:
    path = tmp_path / "kwok.yaml"
    kwok.write_config(path, {"gpu": (1.0, 2.5)})
    documents = {(entry["kind"], entry["metadata"]["name"]): entry for entry in yaml.safe_load_all(path.read_text())}
    delay = documents["Stage", "pod-ready-gpu"]["spec"]["delay"]
    assert (delay["durationMilliseconds"], delay["jitterDurationMilliseconds"]) == (1000, 2500)
    assert documents["Stage", "pod-ready-cpu"]["spec"]["delay"]["jitterDurationMilliseconds"] == 11000
    assert {"pod-ready-at-once", "pod-resized", "pod-delete", "node-initialize"} <= {
        name for kind, name in documents if kind == "Stage"
    }
    assert {"Metric", "ClusterResourceUsage"} <= {kind for kind, _ in documents}


def test_the_api_server_listens_on_loopback_only(tmp_path: Path) -> None:
    layout = Layout(tmp_path, dict.fromkeys(PORTS, 20001), {"kube-apiserver": "/bin/kube-apiserver"})
    options = command(layout, "kube-apiserver")
    assert "--bind-address=127.0.0.1" in options
    assert not any("0.0.0.0" in option for option in options)
