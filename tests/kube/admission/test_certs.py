"""Certificates: what is made is accepted by a TLS client, and new ones are due in time."""

import asyncio
import base64
import ssl
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509

from bursar.kube.admission.certs import (
    LIFETIME,
    RENEWED_BEFORE,
    CertificateError,
    Certificates,
    make,
    read_secret,
    renewal_reason,
    secret_data,
    trusted,
)
from bursar.kube.admission.webhook import TlsContext, WebhookServer
from tests.kube.admission.review_client import webhook

NOW = datetime(2026, 1, 1, tzinfo=UTC)
NAMES = ["bursar-webhook.bursar-system.svc", "127.0.0.1"]
MADE = make(NAMES, NOW)


def authorities(state: Certificates) -> list[x509.Certificate]:
    return x509.load_pem_x509_certificates(state.authorities)


def test_a_new_certificate_is_not_due() -> None:
    assert renewal_reason(MADE, NAMES, NOW) == ""


@pytest.mark.parametrize(
    ("after", "due"),
    [
        (LIFETIME - RENEWED_BEFORE - timedelta(seconds=1), ""),
        (LIFETIME - RENEWED_BEFORE, "valid for 30 more days"),
        (LIFETIME, "valid for 0 more days"),
        (LIFETIME * 2, "valid for 0 more days"),
    ],
)
def test_it_is_due_a_month_before_its_end(after: timedelta, due: str) -> None:
    reason = renewal_reason(MADE, NAMES, NOW + after)
    assert due in reason if due else reason == ""


def test_it_is_due_when_it_lacks_a_name() -> None:
    assert renewal_reason(MADE, [*NAMES, "other"], NOW) == "the certificate does not name other"


@pytest.mark.parametrize("part", ["authorities", "certificate", "key"])
def test_it_is_due_when_a_part_is_rubbish_or_anothers(part: str) -> None:
    other = make(NAMES, NOW)
    assert renewal_reason(replace(MADE, **{part: b"rubbish"}), NAMES, NOW).startswith("what is stored cannot be read")
    assert "stored" in renewal_reason(replace(MADE, **{part: getattr(other, part)}), NAMES, NOW)


def damaged(pem: bytes, at: int, by: int) -> bytes:
    head, *lines, foot, _ = pem.decode().split("\n")
    content = bytearray(base64.b64decode("".join(lines)))
    content[at % len(content)] ^= by
    return f"{head}\n{base64.encodebytes(content).decode()}{foot}\n".encode()


@pytest.mark.filterwarnings("ignore:Parsed a serial number")
@pytest.mark.parametrize("part", ["authorities", "certificate", "key"])
@pytest.mark.parametrize("by", [0x01, 0x24, 0x80])
def test_one_wrong_byte_is_due_to_be_replaced_or_does_no_harm(part: str, by: int) -> None:
    for at in range(len(getattr(MADE, part)) * 3 // 4):
        stored = replace(MADE, **{part: damaged(getattr(MADE, part), at, by)})
        reason = renewal_reason(stored, NAMES, NOW)
        if not reason:
            assert trusted(stored)
            TlsContext().load(stored)
        elif at % 20 == 0:
            assert renewal_reason(make(NAMES, NOW, stored), NAMES, NOW) == ""


def test_the_authority_before_stays_trusted_until_it_expires() -> None:
    second = make(NAMES, NOW + timedelta(days=60), MADE)
    assert authorities(second)[1:] == authorities(MADE)
    third = make(NAMES, NOW + timedelta(days=120), second)
    assert authorities(third)[1:] == authorities(second)[:1]


def test_rubbish_before_is_no_obstacle() -> None:
    assert len(authorities(make(NAMES, NOW, replace(MADE, authorities=b"rubbish")))) == 1


def test_a_bundle_has_each_authority_once() -> None:
    second = make(NAMES, NOW, MADE)
    twice = replace(second, authorities=second.authorities + MADE.authorities)
    assert trusted(twice) == second.authorities


def test_the_secret_holds_everything() -> None:
    assert read_secret(secret_data(MADE)) == MADE


@pytest.mark.parametrize("field", ["ca.crt", "tls.crt", "tls.key"])
def test_a_secret_that_lacks_a_field_is_refused(field: str) -> None:
    with pytest.raises(CertificateError, match=field):
        read_secret(secret_data(MADE) | {field: b""})


def test_the_key_of_the_authority_is_kept_nowhere() -> None:
    assert b"".join(secret_data(MADE).values()).count(b"PRIVATE KEY") == 2  # begin and end of the server's own


# Serving


async def served_by(port: int, state: Certificates) -> bytes:
    """The certificate that a client sees that trusts the authorities of a state."""
    context = ssl.create_default_context(cadata=state.authorities.decode())
    _reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
    tls: ssl.SSLObject = writer.get_extra_info("ssl_object")
    found = tls.getpeercert(binary_form=True)
    writer.close()
    await writer.wait_closed()
    assert found is not None
    return found


async def _serve_and_exchange(first: Certificates, second: Certificates) -> list[bytes]:
    tls = TlsContext()
    tls.load(first)
    server = WebhookServer(webhook(), tls, "127.0.0.1", 0)
    await server.start()
    seen = [await served_by(server.port, first)]
    tls.load(second)
    seen.append(await served_by(server.port, second))
    with pytest.raises(ssl.SSLError):
        await served_by(server.port, first)
    with pytest.raises(ssl.SSLError):
        tls.load(replace(second, key=first.key))
    seen.append(await served_by(server.port, second))
    await server.stop()
    return seen


def test_certificates_are_exchanged_while_it_serves() -> None:
    now = datetime.now(UTC)
    first, second = make(NAMES, now), make(NAMES, now)
    seen = asyncio.run(_serve_and_exchange(first, second))
    assert seen[0] != seen[1] == seen[2]
