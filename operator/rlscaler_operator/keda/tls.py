"""TLS for the external scaler: certificates are read again when they change."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import grpc

from rlscaler_operator.cluster.models import stamp_of
from rlscaler_operator.exceptions import OperatorError

log = logging.getLogger("rlscaler.externalscaler")

CERTIFICATE, KEY, CLIENT_CA = "tls.crt", "tls.key", "ca.crt"
"""Files as in a Secret of the type kubernetes.io/tls; with ca.crt, clients have to show a certificate of that CA."""


def server_credentials(folder: Path) -> Any:
    """Return credentials for gRPC from the files of a folder. Raises OperatorError where one is missing."""
    certificates = Certificates(folder)
    return grpc.dynamic_ssl_server_credentials(
        certificates.configuration, certificates.look, require_client_authentication=certificates.wants_clients
    )


class Certificates:
    """The certificate in a folder; during a rotation that is half done the old one stays in force."""

    def __init__(self, folder: Path) -> None:
        self._files = [folder / name for name in (CERTIFICATE, KEY, CLIENT_CA)]
        self.wants_clients = self._files[2].exists()
        self._stamp = self._stamps()
        try:
            self.configuration = self._read()
        except OSError as error:
            raise OperatorError(
                f"{error.filename}: {error.strerror}; name a folder with {CERTIFICATE}, {KEY}"
            ) from error

    def look(self) -> Any:
        """Return the configuration where it has changed, else None. gRPC calls this for every handshake."""
        stamp = self._stamps()
        if stamp == self._stamp:
            return None
        try:
            self.configuration, self._stamp = self._read(), stamp
        except OSError as error:
            log.warning("the old certificate goes on: %s: %s", error.filename, error.strerror)
            return None
        return self.configuration

    def _stamps(self) -> tuple[object, ...]:
        return tuple(stamp_of(file) for file in self._files)

    def _read(self) -> Any:
        certificate, key, ca = self._files
        clients = ca.read_bytes() if self.wants_clients else None
        return grpc.ssl_server_certificate_configuration([(key.read_bytes(), certificate.read_bytes())], clients)
