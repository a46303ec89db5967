"""Certificates of one cluster: a CA, one administrator's certificate that also serves, and the front proxy's.

A single certificate for all components, as of kwokctl, is enough for a cluster that listens on loopback only.
"""

from __future__ import annotations

import datetime
import ipaddress
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

VALID_DAYS = 365
SERVICE_NAMES = (
    "localhost",
    "kubernetes",
    "kubernetes.default",
    "kubernetes.default.svc",
    "kubernetes.default.svc.cluster.local",
    "metrics-server.kube-system.svc",
    "external-metrics.kube-system.svc",
    "keda-metrics-apiserver.keda.svc",
    "keda-operator.keda.svc",
)


@dataclass(frozen=True)
class Pki:
    """Paths of the certificates and keys (PEM)."""

    ca_cert: Path
    admin_cert: Path
    admin_key: Path
    proxy_cert: Path
    proxy_key: Path
    service_account_key: Path
    node_cert: Path
    """Certificate of the real node: its identity, and its kubelet's for serving."""
    node_key: Path

    @classmethod
    def at(cls, directory: Path) -> Pki:
        """The paths under `directory`, whether or not the files exist."""
        pairs = [f"{name}.{kind}" for name in ("admin", "front-proxy-client") for kind in ("crt", "key")]
        return cls(*(directory / name for name in ("ca.crt", *pairs, "sa.key", "node.crt", "node.key")))


def create(directory: Path, node: str | None = None, addresses: Sequence[str] = ()) -> Pki:
    """Write a new CA and its certificates; existing files are replaced. The CA's key is never written.

    node: name of a real node, for which a certificate is made that the Node authorizer knows.
    addresses: IP addresses beside 127.0.0.1 that the certificates are good for.
    """
    directory.mkdir(parents=True, exist_ok=True)
    pki = Pki.at(directory)
    ca_key = ec.generate_private_key(ec.SECP256R1())
    ca_cert = _certificate("rlscaler-devcluster-ca", [], ca_key, None, ca_key)
    _write(pki.ca_cert, ca_cert.public_bytes(serialization.Encoding.PEM))
    signed = [
        (pki.admin_cert, pki.admin_key, "kubernetes-admin", ["system:masters"]),
        (pki.proxy_cert, pki.proxy_key, "front-proxy-client", []),
    ]
    if node is not None:
        signed.append((pki.node_cert, pki.node_key, f"system:node:{node}", ["system:nodes"]))
    for cert_path, key_path, common_name, groups in signed:
        key = ec.generate_private_key(ec.SECP256R1())
        cert = _certificate(common_name, groups, key, ca_cert, ca_key, addresses)
        _write(cert_path, cert.public_bytes(serialization.Encoding.PEM))
        _write(key_path, _pem(key))
    _write(pki.service_account_key, _pem(rsa.generate_private_key(public_exponent=65537, key_size=2048)))
    return pki


def _certificate(
    common_name: str,
    groups: list[str],
    key: ec.EllipticCurvePrivateKey,
    issuer: x509.Certificate | None,
    issuer_key: ec.EllipticCurvePrivateKey,
    addresses: Sequence[str] = (),
) -> x509.Certificate:
    """A certificate signed by `issuer`; self-signed CA when `issuer` is None."""
    now = datetime.datetime.now(datetime.UTC)
    names = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
    subject = x509.Name([*names, x509.NameAttribute(NameOID.COMMON_NAME, common_name)])
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer.subject if issuer else subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=VALID_DAYS))
        .add_extension(x509.BasicConstraints(ca=issuer is None, path_length=None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )
    if issuer is not None:
        usages = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
        hosts: list[x509.GeneralName] = [x509.DNSName(name) for name in SERVICE_NAMES]
        hosts += [x509.IPAddress(ipaddress.ip_address(address)) for address in ("127.0.0.1", *addresses)]
        builder = builder.add_extension(x509.ExtendedKeyUsage(usages), critical=False)
        builder = builder.add_extension(x509.SubjectAlternativeName(hosts), critical=False)
        builder = builder.add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key()), critical=False
        )
    return builder.sign(issuer_key, hashes.SHA256())


def _pem(key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
    )


def _write(path: Path, content: bytes) -> None:
    """Readable by the owner only, from the moment it exists."""
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(content)
