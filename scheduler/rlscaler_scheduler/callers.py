"""Callers of the server: by a client certificate of an authority, or by a bearer token; else all may call."""

from __future__ import annotations

import hmac
import logging
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Generic, TypeVar

from aiohttp import web

from rlscaler_scheduler.settings import SchedulerError

log = logging.getLogger("rlscaler.scheduler")

Value = TypeVar("Value")

Mark = tuple[tuple[int, int, int], ...]


class Renewed(Generic[Value]):
    """A value of files that are read again whenever they change; unusable files leave the value as it was."""

    def __init__(self, read: Callable[[], Value], *paths: Path) -> None:
        """Raises SchedulerError where the files cannot be used."""
        self._read, self._paths = read, paths
        self._mark = self._marked()
        self._value = read()

    def _marked(self) -> Mark:
        try:
            # The inode too: a Secret's volume exchanges a link, and a copy may keep the time of its source.
            marks = [path.stat() for path in self._paths if path.exists()]
        except OSError:
            return ()
        return tuple((mark.st_ino, mark.st_mtime_ns, mark.st_size) for mark in marks)

    def __call__(self) -> Value:
        """Return the present value."""
        mark = self._marked()
        if mark != self._mark:
            self._mark = mark
            try:
                self._value = self._read()
            except SchedulerError as error:
                log.warning("%s; the former content acts until then", error)
        return self._value


def token_of(path: Path | None) -> Renewed[str] | None:
    """Return the token in a file. Raises SchedulerError."""
    if path is None:
        return None

    def read() -> str:
        try:
            text = path.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise SchedulerError(f"{path}: cannot be read as text ({error}); name a file that may be used") from error
        if not text:
            raise SchedulerError(f"{path}: is empty; write a token into it, or leave its option out")
        return text

    return Renewed(read, path)


def brings(request: web.Request, token: Renewed[str] | None) -> bool:
    """Whether a request has this token as its bearer token; False without a token."""
    if token is None:
        return False
    given = request.headers.get("Authorization", "").removeprefix("Bearer ")
    # Constant time: the answer must not tell how much of the token was right.
    return hmac.compare_digest(given.encode(errors="surrogateescape"), token().encode())


class Callers:
    """Authenticates callers that may move placements."""

    def __init__(self, folder: Path | None, token_file: Path | None) -> None:
        """Read tls.crt, tls.key and, where it is there, ca.crt in the folder, and the token. Raises SchedulerError."""
        self._token = token_of(token_file)
        self._tls: Renewed[ssl.SSLContext] | None = None
        self._by_certificate = False
        if folder is not None:
            own, key, authority = (folder / name for name in ("tls.crt", "tls.key", "ca.crt"))
            self._by_certificate = authority.is_file()
            self._tls = Renewed(lambda: _server_context(own, key, authority, self._by_certificate), own, key, authority)

    @property
    def open(self) -> bool:
        """Whether everyone may call, because there is neither an authority of certificates nor a token."""
        return not self._by_certificate and self._token is None

    def tls(self) -> ssl.SSLContext | None:
        """Return the TLS context of new connections; None where the server speaks plain HTTP."""
        return self._tls() if self._tls is not None else None

    def known(self, request: web.Request) -> bool:
        """Whether the caller showed a certificate of the authority, or brings the token."""
        transport = request.transport
        if self._by_certificate and transport is not None and transport.get_extra_info("peercert"):
            return True
        return brings(request, self._token)


def _server_context(certificate: Path, key: Path, authority: Path, by_certificate: bool) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(certificate, key)
        if by_certificate:
            context.load_verify_locations(authority)
            # The kubelet's probes and Prometheus show none: paths that move something ask for it.
            context.verify_mode = ssl.CERT_OPTIONAL
    except (OSError, ValueError) as error:
        raise SchedulerError(
            f"{certificate.parent}: tls.crt, tls.key or ca.crt is missing or no usable PEM ({error}); correct it"
        ) from error
    return context
