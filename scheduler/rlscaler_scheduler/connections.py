"""Connections to the API server and to Prometheus: addresses and credentials."""

from __future__ import annotations

import ssl
from pathlib import Path

from kubernetes.aio import client, config
from kubernetes.aio.config import ConfigException

from rlscaler_operator.sensing.access import TOKEN, Access, Certificates, tls_context
from rlscaler_scheduler.settings import SchedulerError


async def api_configuration(kubeconfig: Path | None) -> client.Configuration:
    """Read a kubeconfig; without one the service account of the pod, else the usual files. Raises SchedulerError."""
    configuration = client.Configuration()
    try:
        if kubeconfig is None:
            try:
                config.load_incluster_config(client_configuration=configuration)
            except ConfigException:
                await config.load_kube_config(client_configuration=configuration)
        else:
            await config.load_kube_config(config_file=str(kubeconfig), client_configuration=configuration)
    except Exception as error:  # the client library raises whatever a malformed file leads to
        reason = " ".join(str(error).split())
        raise SchedulerError(f"cannot find a cluster: {reason}; name a kubeconfig with --kubeconfig") from error
    return configuration


FILES = ("token", "username", "password", "ca.crt", "tls.crt", "tls.key")
"""A bearer token, or a user's name and password; PEM texts: the authority, the client's certificate and key."""


def access(url: str, folder: Path | None) -> Access:
    """Access to Prometheus with the present credentials in a folder, or without credentials where the folder is None.

    :raises SchedulerError: the folder has none of the files, or an unusable one; the message names the remedy.
    """
    if folder is None:
        return Access(url)
    texts = {name: _text(folder / name) for name in FILES if (folder / name).is_file()}
    if not texts:
        raise SchedulerError(f"{folder}: has none of the files {', '.join(FILES)}; put the credentials there")
    for first, other in (("username", "password"), ("tls.crt", "tls.key")):
        if (first in texts) != (other in texts):
            raise SchedulerError(f"{folder}: {first} and {other} go together; add the other one, or remove both")
    if {"token", "username"} <= texts.keys():
        raise SchedulerError(f"{folder}: token and username exclude each other; remove one of them")
    token = texts.get("token", "").strip()
    if "token" in texts and not TOKEN.fullmatch(token):
        raise SchedulerError(f"{folder / 'token'}: is no bearer token, which is one line without spaces; correct it")
    basic = (texts["username"].strip("\r\n"), texts["password"].strip("\r\n")) if "username" in texts else None
    return Access(url, token, basic, _certificates(folder, texts))


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SchedulerError(f"{path}: cannot be read as text ({error}); correct it") from error


def _certificates(folder: Path, texts: dict[str, str]) -> Certificates | None:
    if not {"ca.crt", "tls.crt"} & texts.keys():
        return None
    certificates = Certificates(texts.get("ca.crt", ""), texts.get("tls.crt", ""), texts.get("tls.key", ""))
    try:
        tls_context(certificates)
    except (ssl.SSLError, ValueError) as error:
        raise SchedulerError(f"{folder}: ca.crt, tls.crt or tls.key is no usable PEM ({error}); correct it") from error
    return certificates
