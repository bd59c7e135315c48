"""What a connection may cost, tried by sockets: slow headers, slow bodies, idle and half-open connections, TLS."""

from __future__ import annotations

import json
import os
import resource
import socket
import ssl
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from bursar.server.app import RequestLimits
from bursar.server.client import Client
from bursar.server.connections import ConnectionLimits
from bursar.server.serve import ServeOptions, StartError
from bursar.sim.cluster import Cluster
from tests.server.certificates import key_and_certificate
from tests.server.live import Live, live, node, text, wait_for

HALF = b"GET /api/v1 HTTP/1.1\r\nHost: local"
WHOLE = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
APPLY = (
    b"POST /api/v1/apply HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
)


@contextmanager
def connected(bed: Live) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", bed.port), timeout=60) as found:
        yield found


def all_of(connection: socket.socket) -> bytes:
    """Everything until the server ends the connection."""
    parts = []
    try:
        while part := connection.recv(65536):
            parts.append(part)
    except ConnectionResetError:
        pass
    return b"".join(parts)


def closed_on(connection: socket.socket, part: bytes) -> bool:
    """Whether the server closes a connection that gets such a part again and again."""
    end = time.monotonic() + 60
    try:
        while time.monotonic() < end:
            connection.sendall(part)
            time.sleep(0.02)
    except OSError:
        return True
    return False


@pytest.mark.parametrize(
    ("sent", "answer"),
    [(b"", b""), (b"GET /healthz HT", b"408 Request Timeout"), (HALF, b"408 Request Timeout")],
)
def test_headers_that_do_not_come_end_the_connection(tmp_path: Path, sent: bytes, answer: bytes) -> None:
    with live(tmp_path / "b.db", connections=ConnectionLimits(headers=0.2)) as bed, connected(bed) as one:
        one.sendall(sent)
        found = all_of(one)
    assert answer in found
    assert bool(found) == bool(answer)


def test_headers_that_drip_end_the_connection(tmp_path: Path) -> None:
    with live(tmp_path / "b.db", connections=ConnectionLimits(headers=0.3)) as bed, connected(bed) as one:
        one.sendall(WHOLE)  # a first request does not buy time for the next one
        assert b"200 OK" in one.recv(65536)
        assert closed_on(one, b"G")


def test_headers_without_end_are_refused(tmp_path: Path) -> None:
    with live(tmp_path / "b.db", connections=ConnectionLimits(header_bytes=1000)) as bed, connected(bed) as one:
        one.sendall(b"GET /healthz HTTP/1.1\r\n" + b"X-Long: " + b"x" * 2000)
        assert b"431" in all_of(one)
        assert bed.raw("GET", "/healthz")[0] == 200


def test_a_slow_body_is_a_time_out_and_ends_the_connection(tmp_path: Path) -> None:
    with live(tmp_path / "b.db", limits=RequestLimits(body_seconds=0.3)) as bed, connected(bed) as one:
        one.sendall(APPLY % 1000 + b"{")
        head, _, body = all_of(one).partition(b"\r\n\r\n")
        assert b"408" in head.splitlines()[0]
        assert b"connection: close" in head.lower()
        assert json.loads(body)["detail"] == "the body did not come within 0.3 seconds"
        assert bed.give(node("n1")).objects


def test_a_body_that_no_handler_reads_does_not_keep_the_connection(tmp_path: Path) -> None:
    with live(tmp_path / "b.db", connections=ConnectionLimits(body=0.2)) as bed, connected(bed) as one:
        one.sendall(APPLY.replace(b"/apply", b"/none!") % 1000)
        assert closed_on(one, b"x")


def test_an_idle_connection_ends(tmp_path: Path) -> None:
    with live(tmp_path / "b.db", connections=ConnectionLimits(idle=1)) as bed, connected(bed) as one:
        one.sendall(WHOLE)
        assert all_of(one).endswith(b"ok\n")


def test_two_requests_on_one_connection(tmp_path: Path) -> None:
    with live(tmp_path / "b.db") as bed, connected(bed) as one:
        for _ in range(2):
            one.sendall(WHOLE)
            found = b""
            while not found.endswith(b"ok\n"):
                found += one.recv(65536)


def test_half_open_connections_cannot_close_the_server(tmp_path: Path) -> None:
    handles = resource.getrlimit(resource.RLIMIT_NOFILE)
    with live(tmp_path / "b.db") as bed:
        there = len(list(Path("/proc/self/fd").iterdir()))
        few = ConnectionLimits().most()
    assert few <= 1000
    with ExitStack() as stack:
        bed = stack.enter_context(live(tmp_path / "b.db", connections=ConnectionLimits(headers=60, connections=20)))
        for _ in range(300):
            stack.enter_context(connected(bed)).sendall(HALF)
        begun = len(list(Path("/proc/self/fd").iterdir()))
        assert begun < there + 300 + 60  # ours, and no more than 20 of the server's, besides what it is closing
        for _ in range(5):
            assert bed.raw("GET", "/healthz")[0] == 200
            assert bed.client.info().api == "v1"
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == handles


def test_a_busy_connection_is_not_closed_for_a_new_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with ExitStack() as stack:
        bed = stack.enter_context(live(tmp_path / "b.db", connections=ConnectionLimits(connections=2)))
        read, begun = bed.service.read, list[object]()

        def counted(look: Callable[[Cluster], object]) -> object:
            begun.append(look)
            return read(look)

        monkeypatch.setattr(bed.service, "read", counted)
        with bed.service.lock:
            busy = [stack.enter_context(connected(bed)) for _ in range(2)]
            for one in busy:
                one.sendall(b"GET /api/v1 HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            wait_for("both requests", lambda: len(begun) == 2)
            with connected(bed) as one:
                assert b"503 Service Unavailable" in all_of(one)
        assert all(b"200 OK" in all_of(one) for one in busy)


@pytest.mark.parametrize(("handles", "wanted"), [(256, 128), (64, 16), (4096, 1000), (resource.RLIM_INFINITY, 1000)])
def test_the_number_of_connections_leaves_handles_for_the_store(
    monkeypatch: pytest.MonkeyPatch, handles: int, wanted: int
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (handles, handles))
    assert ConnectionLimits().most() == wanted


def test_half_open_handshakes_do_not_count_for_long(tmp_path: Path) -> None:
    certificate, key = key_and_certificate(tmp_path)
    limits = ConnectionLimits(headers=60, connections=10)
    with ExitStack() as stack:
        options = {"certificate": certificate, "key": key, "connections": limits}
        bed = stack.enter_context(live(tmp_path / "b.db", **options))  # type: ignore[arg-type]
        for _ in range(40):
            stack.enter_context(connected(bed))  # says nothing, so no handshake is made
        client = Client(bed.address.replace("http:", "https:"), ca_file=certificate)
        assert client.info().api == "v1"
        client.apply(text(node("n1")))


def test_a_handshake_that_does_not_come_ends_the_connection(tmp_path: Path) -> None:
    certificate, key = key_and_certificate(tmp_path)
    limits = ConnectionLimits(headers=0.2)
    with live(tmp_path / "b.db", certificate=certificate, key=key, connections=limits) as bed, connected(bed) as one:
        assert all_of(one) == b""


@pytest.mark.parametrize(
    ("certificate", "key", "wanted"),
    [
        ("cert.pem", "none.pem", r"none\.pem: the private key cannot be read: No such file"),
        ("none.pem", "key.pem", r"none\.pem: the certificate cannot be read: No such file"),
        ("cert.pem", "junk.pem", r"junk\.pem: holds no private key in PEM without a password"),
        ("junk.pem", "key.pem", r"junk\.pem: holds no certificate in PEM"),
        ("cert.pem", "other.pem", r"other\.pem: is not the key of the certificate in .*cert\.pem"),
    ],
)
def test_a_wrong_tls_file_is_named(tmp_path: Path, certificate: str, key: str, wanted: str) -> None:
    key_and_certificate(tmp_path)
    (tmp_path / "other").mkdir()
    key_and_certificate(tmp_path / "other")[1].rename(tmp_path / "other.pem")
    (tmp_path / "junk.pem").write_text("no key")
    with pytest.raises(StartError, match=wanted):
        ServeOptions(tmp_path / "b.db", certificate=tmp_path / certificate, key=tmp_path / key).check()


def test_a_right_pair_of_tls_files_is_taken(tmp_path: Path) -> None:
    certificate, key = key_and_certificate(tmp_path)
    ServeOptions(tmp_path / "b.db", certificate=certificate, key=key).check()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)


def test_the_store_is_for_its_owner_alone(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        with live(tmp_path / "b.db") as bed:
            bed.give(node("n1"))
            modes = {path.name: path.stat().st_mode & 0o777 for path in tmp_path.iterdir() if path.is_file()}
    finally:
        os.umask(before)
    assert {"b.db", "b.db-wal", "b.db-shm"} <= set(modes)
    assert set(modes.values()) == {0o600}


def warnings(data: Path, **options: Any) -> list[str]:  # noqa: ANN401
    return list(ServeOptions(data, **options).warnings())


def test_what_is_open_is_said(tmp_path: Path) -> None:
    data = tmp_path / "b.db"
    assert warnings(data) == []
    (said,) = warnings(data, host="0.0.0.0", tokens=tmp_path / "tokens")  # noqa: S104 that is warned of
    assert said.startswith("0.0.0.0 has no TLS, so tokens and answers can be read on their way")
    assert warnings(data, host="0.0.0.0", certificate=data, key=data) == []  # noqa: S104
    data.write_bytes(b"")
    data.chmod(0o640)
    (said,) = warnings(data)
    assert said == f"{data} holds all manifests, and other users may read it: run: chmod 600 {data}"


def test_the_first_page_says_what_this_is_without_scripts(bed: Live) -> None:
    status, headers, content = bed.raw("GET", "/")
    page = content.decode()
    assert (status, headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert headers["content-security-policy"].startswith("default-src 'none'")
    plain = page[page.index("<noscript>") : page.index("</noscript>")]
    for part in ("bursar top", "bursar get queue", "bursar explain", 'href="api/v1"'):
        assert part in plain
    for path in ("/api/v1", "/openapi.json", "/metrics", "/readyz"):
        assert bed.raw("GET", path)[0] == 200
