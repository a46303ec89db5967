"""The credentials that Prometheus is asked for node metrics with: files of a folder, such as a mounted Secret."""

from __future__ import annotations

import ssl
from pathlib import Path

from rlscaler_operator.sensing.access import TOKEN, Access, Certificates, tls_context
from rlscaler_scheduler.exceptions import SchedulerError

FILES = ("token", "username", "password", "ca.crt", "tls.crt", "tls.key")
"""A bearer token, or a user's name and password; PEM texts: the authority, the client's certificate and key."""


def access(url: str, folder: Path | None) -> Access:
    """How Prometheus is asked: by the files in the folder as they are now, or without credentials where it is None.

    Raises SchedulerError, with the remedy, for a folder without any of the files, and for what cannot be used.
    """
    if folder is None:
        return Access(url)
    found = {name: _text(folder / name) for name in FILES if (folder / name).is_file()}
    if not found:
        raise SchedulerError(f"{folder}: has none of the files {', '.join(FILES)}; put the credentials there")
    for one, other in (("username", "password"), ("tls.crt", "tls.key")):
        if (one in found) != (other in found):
            raise SchedulerError(f"{folder}: {one} and {other} go together; add the other one, or remove both")
    if {"token", "username"} <= found.keys():
        raise SchedulerError(f"{folder}: token and username exclude each other; remove one of them")
    token = found.get("token", "").strip()
    if "token" in found and not TOKEN.fullmatch(token):
        raise SchedulerError(f"{folder / 'token'}: is no bearer token, which is one line without spaces; correct it")
    basic = (found["username"].strip("\r\n"), found["password"].strip("\r\n")) if "username" in found else None
    return Access(url, token, basic, _certificates(folder, found))


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SchedulerError(f"{path}: cannot be read as text ({error}); correct it") from error


def _certificates(folder: Path, found: dict[str, str]) -> Certificates | None:
    if not {"ca.crt", "tls.crt"} & found.keys():
        return None
    made = Certificates(found.get("ca.crt", ""), found.get("tls.crt", ""), found.get("tls.key", ""))
    try:
        tls_context(made)
    except (ssl.SSLError, ValueError) as error:
        raise SchedulerError(f"{folder}: ca.crt, tls.crt or tls.key is no usable PEM ({error}); correct it") from error
    return made
