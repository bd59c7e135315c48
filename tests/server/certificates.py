"""Keys and certificates for tests."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID


def key_and_certificate(folder: Path) -> tuple[Path, Path]:
    """(certificate, key) files for this machine, which signs itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.now(UTC)
    here = [x509.DNSName("localhost"), x509.IPAddress(ip_address("127.0.0.1"))]
    builder = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
    builder = builder.not_valid_before(now - timedelta(days=1)).not_valid_after(now + timedelta(days=1))
    builder = builder.add_extension(x509.SubjectAlternativeName(here), critical=False)
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    certificate, private = folder / "cert.pem", folder / "key.pem"
    certificate.write_bytes(builder.sign(key, hashes.SHA256()).public_bytes(Encoding.PEM))
    private.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    private.chmod(0o600)
    return certificate, private
