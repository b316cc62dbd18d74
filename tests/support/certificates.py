"""Certificates for tests, made when they run: none is in the tree, and none expires there."""

from __future__ import annotations

import datetime
import ssl
from pathlib import Path
from typing import Any, Final

import attrs
import trustme
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

HOST: Final = "127.0.0.1"


@attrs.frozen
class Certificates:
    """A CA, a server's certificate and a client's, as files. `other_*` are of a CA that nobody trusts."""

    folder: Path
    ca: str
    server: str
    client: str
    other_ca: str
    other_client: str

    def server_keys(self, **changes: Any) -> dict[str, Any]:
        """The server's configuration."""
        return {"ssl_certificate_file": self.server, "ssl_client_ca_file": self.ca, **changes}

    def client_context(self, certificate: str | None = None, *, ca: str | None = None) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=ca or self.ca)
        if certificate is not None:
            context.load_cert_chain(certificate)
        return context


def make_certificates(folder: Path) -> Certificates:
    """Certificates for 127.0.0.1; the client is CN=client,OU=tests,O=triolog."""
    folder.mkdir(parents=True, exist_ok=True)
    ca, other = trustme.CA(), trustme.CA()
    paths = {name: str(folder / f"{name}.pem") for name in ("ca", "server", "client", "other_ca", "other_client")}
    ca.cert_pem.write_to_path(paths["ca"])
    other.cert_pem.write_to_path(paths["other_ca"])
    _write(ca.issue_cert(HOST, "localhost"), paths["server"])
    _write(other.issue_cert(common_name="stranger"), paths["other_client"])
    _write_client(ca, paths["client"])
    return Certificates(folder, **paths)


def _write(certificate: trustme.LeafCert, path: str) -> None:
    certificate.private_key_and_cert_chain_pem.write_to_path(path)


def _write_client(ca: trustme.CA, path: str) -> None:
    """One with a name of several parts, which trustme does not make."""
    key = ec.generate_private_key(ec.SECP256R1())
    organization, unit, name = NameOID.ORGANIZATION_NAME, NameOID.ORGANIZATIONAL_UNIT_NAME, NameOID.COMMON_NAME
    parts = [(organization, "triolog"), (unit, "tests"), (name, "client")]
    issuer_key = serialization.load_pem_private_key(ca.private_key_pem.bytes(), None)
    assert isinstance(issuer_key, ec.EllipticCurvePrivateKey)
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(oid, value) for oid, value in parts]))
        .issuer_name(x509.load_pem_x509_certificate(ca.cert_pem.bytes()).subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .sign(issuer_key, hashes.SHA256())
    )
    pem, private = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    data = key.private_bytes(pem, private, serialization.NoEncryption()) + certificate.public_bytes(pem)
    Path(path).write_bytes(data)
