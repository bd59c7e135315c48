"""Certificates for tests of TLS."""

from __future__ import annotations

import datetime as dt
import ipaddress
from dataclasses import dataclass

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


@dataclass(frozen=True, slots=True)
class Certificate:
    pem: str
    key: str

    @property
    def serial(self) -> str:
        """As the ssl module writes it."""
        text = f"{x509.load_pem_x509_certificate(self.pem.encode()).serial_number:X}"
        return text if len(text) % 2 == 0 else f"0{text}"


def authority(name: str) -> Certificate:
    return _made(name, None)


def issued_by(issuer: Certificate, name: str) -> Certificate:
    """For clients, and for a server on the loopback address."""
    return _made(name, issuer)


def _made(name: str, issuer: Certificate | None) -> Certificate:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = dt.datetime.now(dt.UTC)
    signer, signed_by = key, subject
    if issuer is not None:
        loaded = serialization.load_pem_private_key(issuer.key.encode(), None)
        assert isinstance(loaded, ec.EllipticCurvePrivateKey)
        signer, signed_by = loaded, x509.load_pem_x509_certificate(issuer.pem.encode()).subject
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(signed_by)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(hours=1))
        .not_valid_after(now + dt.timedelta(hours=1))
        .add_extension(x509.BasicConstraints(ca=issuer is None, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
    )
    pem = builder.sign(signer, hashes.SHA256()).public_bytes(serialization.Encoding.PEM).decode()
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return Certificate(pem, private.decode())
