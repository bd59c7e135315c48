"""Certificates of the webhook: how they are made and when they are renewed. No clock and no I/O.

Each new authority signs one serving certificate, and its key is discarded at once. The CA bundle holds the new
authority and the earlier ones that have not expired, so a replica that still serves the previous certificate is
trusted.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from ipaddress import ip_address

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

LIFETIME = timedelta(days=90)
RENEWED_BEFORE = timedelta(days=30)
_SKEW = timedelta(days=1)  # clocks of clients may be behind, or that of the certificate's maker ahead


class CertificateError(ValueError):
    """Stored certificates that cannot be used: which part, and why."""


@dataclass(frozen=True, slots=True)
class Certificates:
    """What the Secret holds, as PEM."""

    authorities: bytes  # the bundle to trust, newest first
    certificate: bytes
    key: bytes


def make(names: Iterable[str], now: datetime, before: Certificates | None = None) -> Certificates:
    """A new authority and serving certificate for these names; the authorities of ``before`` stay trusted."""
    listed = list(names)
    authority_key = ec.generate_private_key(ec.SECP256R1())
    authority = _sign("bursar webhook authority", authority_key.public_key(), None, authority_key, now, [])
    key = ec.generate_private_key(ec.SECP256R1())
    certificate = _sign(listed[0], key.public_key(), authority, authority_key, now, listed)
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    bundle = [authority, *([] if before is None else _still_valid(before, now))]
    return Certificates(b"".join(map(_pem, bundle)), _pem(certificate), private)


def renewal_reason(stored: Certificates, names: Iterable[str], now: datetime) -> str:
    """Why new certificates are due; "" when they are not."""
    try:
        return _fault(stored, names, now)
    except Exception as error:  # noqa: BLE001 many kinds, some of them only when a part is looked at; one meaning
        return f"what is stored cannot be read: {error}"


def _fault(stored: Certificates, names: Iterable[str], now: datetime) -> str:
    certificate = x509.load_pem_x509_certificate(stored.certificate)
    authorities = x509.load_pem_x509_certificates(stored.authorities)
    key = serialization.load_pem_private_key(stored.key, None)
    if key.public_key() != certificate.public_key():
        return "the stored key is not that of the certificate"
    if not any(_signed_by(certificate, authority) for authority in authorities):
        return "the stored certificate is signed by none of the stored authorities"
    missing = sorted(set(names) - set(_names_of(certificate)))
    if missing:
        return f"the certificate does not name {', '.join(missing)}"
    left = certificate.not_valid_after_utc - now
    if left <= RENEWED_BEFORE:
        return f"the certificate is valid for {max(left.days, 0)} more days only"
    return ""


def trusted(stored: Certificates) -> bytes:
    """The bundle of all authorities, each once."""
    return b"".join(dict.fromkeys(map(_pem, x509.load_pem_x509_certificates(stored.authorities))))


def read_secret(data: dict[str, bytes]) -> Certificates:
    """From the fields of a Secret of type kubernetes.io/tls; raises ``CertificateError``."""
    missing = [field for field in ("ca.crt", "tls.crt", "tls.key") if not data.get(field)]
    if missing:
        raise CertificateError(f"{missing[0]} is missing")
    return Certificates(data["ca.crt"], data["tls.crt"], data["tls.key"])


def secret_data(state: Certificates) -> dict[str, bytes]:
    """The fields of the Secret."""
    return {"ca.crt": state.authorities, "tls.crt": state.certificate, "tls.key": state.key}


def _sign(
    name: str,
    public: ec.EllipticCurvePublicKey,
    issuer: x509.Certificate | None,
    signer: ec.EllipticCurvePrivateKey,
    now: datetime,
    names: list[str],
) -> x509.Certificate:
    """An authority when there is no issuer, else a serving certificate."""
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name[:64])])
    basic = x509.BasicConstraints(ca=issuer is None, path_length=0 if issuer is None else None)
    by = signer.public_key()
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject if issuer is None else issuer.subject)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _SKEW)
        .not_valid_after(now + LIFETIME)
        .add_extension(basic, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(by), critical=False)
        .add_extension(_usage(authority=issuer is None), critical=True)
    )
    if names:
        builder = builder.add_extension(x509.SubjectAlternativeName([_general_name(n) for n in names]), critical=False)
        builder = builder.add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
    return builder.sign(signer, hashes.SHA256())


def _usage(*, authority: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=authority,
        crl_sign=authority,
        encipher_only=False,
        decipher_only=False,
    )


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _names_of(certificate: x509.Certificate) -> list[str]:
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return []
    return [*names.get_values_for_type(x509.DNSName), *map(str, names.get_values_for_type(x509.IPAddress))]


def _signed_by(certificate: x509.Certificate, authority: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(authority)
    except Exception:  # noqa: BLE001 several kinds, one meaning
        return False
    return True


def _still_valid(before: Certificates, now: datetime) -> list[x509.Certificate]:
    try:
        authorities = x509.load_pem_x509_certificates(before.authorities)
        return [authority for authority in authorities if authority.not_valid_after_utc > now]
    except Exception:  # noqa: BLE001 as above
        return []


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)
