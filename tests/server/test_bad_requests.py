"""Bad requests, access, limits, health, metrics; and that none of it changes anything."""

from __future__ import annotations

import re
import time
from pathlib import Path

import msgspec
import pytest

from bursar.server.access import Access, TokenFileError
from bursar.server.app import RequestLimits
from bursar.server.client import Client
from bursar.server.serve import ServeOptions, UnsafeError
from tests.server.live import Live, live, node, pod, text
from tests.server.test_changes import refused

API = "/api/v1"
JSON = "application/json"
YAML = "application/yaml"
ADMIN, READER, GUESS = "admin-0123456789abc", "reader-0123456789", "guess-0123456789"

BAD: list[tuple[str, str, bytes | None, str, int]] = [
    ("GET", "/nothing", None, JSON, 404),
    ("GET", f"{API}/nothing", None, JSON, 404),
    ("DELETE", f"{API}/objects", None, JSON, 405),
    ("GET", f"{API}/apply", None, JSON, 405),
    ("GET", f"{API}/objects?namspace=a", None, JSON, 400),
    ("GET", f"{API}/objects?limit=0", None, JSON, 400),
    ("GET", f"{API}/objects?limit=x", None, JSON, 400),
    ("GET", f"{API}/objects?limit=1&limit=2", None, JSON, 400),
    ("GET", f"{API}/objects?kind=Nonsense", None, JSON, 400),
    ("GET", f"{API}/objects?continue=rubbish", None, JSON, 400),
    ("GET", f"{API}/objects?label=a=b=c", None, JSON, 400),
    ("GET", f"{API}/objects/Pod/%00", None, JSON, 400),
    ("GET", f"{API}/objects/Pod/a/none", None, JSON, 404),
    ("GET", f"{API}/claims/a/none", None, JSON, 404),
    ("GET", f"{API}/diff", None, JSON, 400),
    ("POST", f"{API}/changes/x/undo", b"", JSON, 400),
    ("POST", f"{API}/changes/77/undo", b"", JSON, 404),
    ("POST", f"{API}/apply", b"", YAML, 400),
    ("POST", f"{API}/apply", b"{", JSON, 422),
    ("POST", f"{API}/apply", b"\xff\xfe", YAML, 400),
    ("POST", f"{API}/apply", b"a: [", YAML, 422),
    ("POST", f"{API}/apply", b"kind: Pod", "text/plain", 415),
    ("POST", f"{API}/apply", b'{"apiVersion":"v1","kind":"Pod","metadata":{"name":"\\ud800"}}', JSON, 422),
    ("POST", f"{API}/apply", b'{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p"},"spec":{"x":1e999}}', JSON, 422),
    ("POST", f"{API}/apply", b"[" * 100_000, YAML, 422),
    ("POST", f"{API}/delete", b'{"objects":[]}', JSON, 400),
    ("POST", f"{API}/delete", b'{"objects":[1]}', JSON, 400),
    ("POST", f"{API}/delete", b'{"objects":["Pod"]}', JSON, 400),
    ("POST", f"{API}/delete", b'{"object":["Pod/a/b"]}', JSON, 400),
    ("POST", f"{API}/finish", b'{"pods":["a/b"]}', JSON, 404),
    ("POST", f"{API}/what-if", text(node("n1")), JSON, 422),
    ("POST", f"{API}/plan?horizon=99d", text(node("n2")), JSON, 400),
    ("POST", f"{API}/plan?delete=Pod/a/none", b"", JSON, 404),
]  # fmt: skip


@pytest.mark.parametrize("case", BAD, ids=lambda case: f"{case[0]} {case[1]} {case[4]}")
def test_bad_requests_are_problems_and_change_nothing(bed: Live, case: tuple[str, str, bytes | None, str, int]) -> None:
    method, path, body, content_type, wanted = case
    before = bed.position()
    status, headers, content = bed.raw(method, path, body, Content_Type=content_type)
    assert status == wanted, content
    if status >= 400:
        assert headers["content-type"] == "application/problem+json"
        assert msgspec.json.decode(content)["status"] == status
        assert bed.position() == before


def test_a_body_that_is_too_large_is_refused(tmp_path: Path) -> None:
    with live(tmp_path / "b.db", limits=RequestLimits(body=1000)) as bed:
        before = bed.position()
        status, _, _ = bed.raw("POST", f"{API}/apply", b"#" * 1001, Content_Type=YAML)
        assert status == 413
        assert bed.position() == before


def test_a_request_that_takes_too_long_is_given_up(tmp_path: Path) -> None:
    with live(tmp_path / "b.db", limits=RequestLimits(seconds=0.3)) as bed, bed.service.lock:
        status, _, content = bed.raw("GET", f"{API}/claims")
        assert status == 503
        assert "not done within 0.3 seconds" in content.decode()


def test_other_hosts_are_refused_without_tokens(bed: Live) -> None:
    status, _, content = bed.raw("GET", f"{API}/claims", Host="attacker.example")
    assert (status, "localhost only" in content.decode()) == (403, True)
    assert bed.raw("GET", f"{API}/claims", Host="localhost:1")[0] == 200


@pytest.fixture
def tokens(tmp_path: Path) -> Path:
    path = tmp_path / "tokens"
    path.write_text("# who\nread reader-0123456789\nadmin admin-0123456789abc boss\n")
    path.chmod(0o600)
    return path


def test_roles_of_tokens(tmp_path: Path, tokens: Path) -> None:
    with live(tmp_path / "b.db", tokens=tokens, token=ADMIN) as bed:
        bed.give(node("n1"))
        reader = Client(bed.address, token=READER)
        assert [row.name for row in reader.nodes().items] == ["n1"]
        assert refused(reader.apply, text(node("n2"))).status == 403
        assert reader.what_if(text(pod("a", "p"))).pods[0].verdict == "now"
        assert refused(Client(bed.address).nodes).status == 401
        assert refused(Client(bed.address, token=GUESS).nodes).status == 401
        assert bed.raw("GET", "/healthz")[0] == 200
        assert bed.raw("GET", "/metrics")[0] == 401
        tokens.write_text("admin other-0123456789abc\n")
        assert refused(bed.client.nodes).status == 401


@pytest.mark.parametrize(
    ("content", "mode", "wanted"),
    [
        ("read short", 0o600, "line 1: a token has at least 16 characters"),
        ("write 0123456789abcdef", 0o600, "line 1: expected: viewer|submitter|quota-editor|admin|agent TOKEN"),
        ("# nothing", 0o600, "holds no token"),
        ("submitter 0123456789abcdef ci", 0o600, "line 1: a submitter needs namespaces: a,b or * for all"),
        ("viewer 0123456789abcdef me a", 0o600, "line 1: only a submitter has namespaces, not a viewer"),
        ("viewer 0123456789abcdef\nadmin 0123456789abcdef", 0o600, "line 2: this token has a line already"),
        ("read 0123456789abcdef", 0o644, "others may read it"),
    ],
)
def test_token_files_that_cannot_be_used(tmp_path: Path, content: str, mode: int, wanted: str) -> None:
    path = tmp_path / "tokens"
    path.write_text(content)
    path.chmod(mode)
    with pytest.raises(TokenFileError, match=re.escape(wanted)):
        Access(path)


def test_only_loopback_is_open(tmp_path: Path) -> None:
    for host in ("127.0.0.1", "localhost", "::1", "127.8.9.1"):
        ServeOptions(tmp_path / "b.db", host=host).check()
    for host in ("0.0.0.0", "::", "example.com"):  # noqa: S104 must be refused
        with pytest.raises(UnsafeError, match="--tokens FILE"):
            ServeOptions(tmp_path / "b.db", host=host).check()
    ServeOptions(tmp_path / "b.db", host="0.0.0.0", tokens=tmp_path / "t").check()  # noqa: S104 with tokens
    with pytest.raises(UnsafeError, match="both a certificate and its key"):
        ServeOptions(tmp_path / "b.db", certificate=tmp_path / "c").check()


def test_metrics_tell_usage_borrowing_and_the_audit(bed: Live) -> None:
    bed.give(pod("b", "loan", 3), pod("a", "p", 9))
    status, headers, content = bed.raw("GET", "/metrics")
    lines = content.decode().splitlines()
    named = 'kind="ElasticQuota.n8s.nebuly.ai",namespace="b",node="",policy="elastic",quota="quota"'
    labels = f'{named},resource="nvidia.com/gpu"'
    assert status == 200
    assert headers["content-type"].startswith("text/plain")
    assert f"bursar_quota_used{{{labels}}} 3.0" in lines
    assert f"bursar_quota_borrowed{{{labels}}} 1.0" in lines
    assert 'bursar_claims_pending{reason="elastic.total.nvidia.com/gpu"} 1.0' in lines
    assert 'bursar_decisions_total{outcome="admitted",reason=""} 1.0' in lines
    assert "bursar_audit_failures_total 0.0" in lines
    assert "bursar_accepting_changes 1.0" in lines
    assert any(line.startswith("bursar_build_info{") for line in lines)


def test_the_audit_follows_the_journal(tmp_path: Path) -> None:
    with live(tmp_path / "b.db") as bed:
        bed.give(node("n1"), pod("a", "p1"))
        wanted = f"bursar_audited_seq {float(bed.position()[0])}"
        end = time.monotonic() + 60
        found = ""
        while wanted not in found and time.monotonic() < end:
            time.sleep(0.1)
            found = bed.raw("GET", "/metrics")[2].decode()
        assert wanted in found
        assert "bursar_audit_failures_total 0.0" in found


def test_metrics_count_annotations_that_cannot_be_read(bed: Live) -> None:
    crossquota = {"gpu-resource-names": "nvidia.com/gpu", "quota.cpu": "4"}
    configuration = {
        "apiVersion": "bursar.dev/v1alpha1",
        "kind": "Configuration",
        "metadata": {"name": "default"},
        "spec": {"crossquota": crossquota},
    }
    marked = node("n2")
    marked["metadata"]["annotations"] = {"volcano.sh/crossquota-cpu": "NaN"}
    bed.give(configuration, marked)
    found = bed.raw("GET", "/metrics")[2].decode()
    assert 'bursar_policy_events_total{event="bad_annotations",policy="crossquota"} 1.0' in found
