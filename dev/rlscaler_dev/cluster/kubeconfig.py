"""Reading and writing kubeconfig files."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import yaml

from rlscaler_dev.cluster import paths
from rlscaler_dev.cluster.pki import Pki
from rlscaler_dev.exceptions import DevClusterError

SECTIONS = ("clusters", "users", "contexts")


def context_name(cluster: str) -> str:
    """Name of the context, the cluster and the user in the kubeconfig."""
    return f"rlscaler-{cluster}"


def admin(cluster: str, server: str, pki: Pki) -> dict[str, Any]:
    """A self-contained administrator's kubeconfig."""
    return client(cluster, server, pki.ca_cert, pki.admin_cert, pki.admin_key)


def client(cluster: str, server: str, authority: Path, certificate: Path, key: Path) -> dict[str, Any]:
    """A self-contained kubeconfig of the user that a certificate names."""

    def embedded(path: Path) -> str:
        return base64.b64encode(path.read_bytes()).decode()

    user = {"client-certificate-data": embedded(certificate), "client-key-data": embedded(key)}
    return _config({"server": server, "certificate-authority-data": embedded(authority)}, user, context_name(cluster))


def bearer(server: str, authority: str | bool, token: str) -> dict[str, Any]:
    """The kubeconfig of the account that a token belongs to.

    authority: file of the CA that signed the server's certificate; True = the system's, False = nothing is checked.
    """
    cluster: dict[str, Any] = {"server": server}
    if isinstance(authority, str):
        cluster["certificate-authority"] = authority
    elif not authority:
        cluster["insecure-skip-tls-verify"] = True
    return _config(cluster, {"token": token}, "account")


def _config(cluster: dict[str, Any], user: dict[str, Any], name: str) -> dict[str, Any]:
    """Return a kubeconfig of one cluster, user and context of this name."""
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": name, "cluster": cluster}],
        "users": [{"name": name, "user": user}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
        "current-context": name,
    }


def write(path: Path, config: dict[str, Any]) -> None:
    """Replace `path` atomically; readable by the owner only."""
    paths.replace(path, yaml.safe_dump(config, sort_keys=False), 0o600)


def read(path: Path) -> dict[str, Any]:
    """The file's content; raises DevClusterError when it is not a kubeconfig."""
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise DevClusterError(f"cannot read kubeconfig {path}: {' '.join(str(error).split())}") from error
    if not isinstance(content, dict) or not any(content.get(section) for section in SECTIONS):
        raise DevClusterError(f"{path} is not a kubeconfig: it has no clusters, users or contexts")
    return content
