"""Tokens of an OIDC provider, which is a small server of this process."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import jwt
import pytest
import yaml
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from jwt.algorithms import ECAlgorithm

from bursar.server import oidc
from bursar.server.access import TokenFileError
from bursar.server.client import Client
from tests.server.live import Live, live, pod, quota, text, wait_for
from tests.server.test_changes import refused


class Provider:
    """Publishes keys and signs tokens."""

    def __init__(self) -> None:
        self.keys = {"k1": ec.generate_private_key(ec.SECP256R1())}
        self.asked: list[str] = []
        provider = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                provider.asked.append(self.path)
                body = json.dumps(provider.answer(self.path)).encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                """Says nothing."""

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        self.issuer = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def answer(self, path: str) -> dict[str, Any]:
        if path == "/.well-known/openid-configuration":
            return {"issuer": self.issuer, "jwks_uri": f"{self.issuer}/keys"}
        keys = [
            {**json.loads(ECAlgorithm.to_jwk(key.public_key())), "kid": name, "alg": "ES256", "use": "sig"}
            for name, key in self.keys.items()
        ]
        return {"keys": keys}

    def token(self, *groups: str, kid: str = "k1", key: Any = None, algorithm: str = "ES256", **more: Any) -> str:  # noqa: ANN401
        claims = {
            "iss": self.issuer, "aud": "bursar", "exp": int(time.time()) + 600, "sub": "u-7",
            "email": "ann@example.com", "groups": list(groups), **more,
        }  # fmt: skip
        claims = {name: value for name, value in claims.items() if value is not None}
        return jwt.encode(claims, key or self.keys[kid], algorithm, {"kid": kid})


@pytest.fixture
def provider() -> Iterator[Provider]:
    found = Provider()
    yield found
    found.server.shutdown()
    found.server.server_close()


def options(provider: Provider, **more: object) -> dict[str, object]:
    roles = [
        {"group": "platform", "role": "admin"},
        {"group": "vision", "role": "submitter", "namespaces": ["vision"]},
        {"group": "all", "role": "viewer"},
    ]
    return {"issuer": provider.issuer, "audience": "bursar", "usernameClaim": "email", "roles": roles, **more}


@pytest.fixture
def guarded(tmp_path: Path, provider: Provider) -> Iterator[Live]:
    path = tmp_path / "oidc.yaml"
    path.write_text(yaml.safe_dump(options(provider)))
    with live(tmp_path / "b.db", oidc=path) as bed:
        bed.client = Client(bed.address, token=provider.token("platform"))
        wait_for("keys", lambda: bed.raw("GET", "/api/v1", Authorization=f"Bearer {provider.token('all')}")[0] == 200)
        yield bed


def test_groups_of_a_token_give_a_role_and_a_change_has_the_name(guarded: Live, provider: Provider) -> None:
    assert guarded.give(quota("vision", 2)).actor == "ann@example.com"
    member = Client(guarded.address, token=provider.token("other", "vision", email="bob@example.com"))
    assert member.apply(text(pod("vision", "one"))).actor == "bob@example.com"
    assert refused(member.apply, text(pod("lab", "one"))).status == 403
    viewer = Client(guarded.address, token=provider.token("all"))
    assert viewer.nodes().items == []
    assert refused(viewer.apply, text(pod("vision", "two"))).status == 403
    stranger = refused(Client(guarded.address, token=provider.token("other")).nodes)
    assert (stranger.status, stranger.detail) == (403, "ann@example.com is in no group that has a role here")


def test_tokens_that_are_not_accepted(guarded: Live, provider: Provider) -> None:
    other = ec.generate_private_key(ec.SECP256R1())
    strong = rsa.generate_private_key(65537, 2048)
    secret = "s" * 64
    bad = {
        "expired": provider.token("platform", exp=int(time.time()) - 60),
        "for others": provider.token("platform", aud="other"),
        "by others": provider.token("platform", iss="https://example.com"),
        "without an end": provider.token("platform", exp=None),
        "signed by others": provider.token("platform", key=other),
        "another sort of key": provider.token("platform", key=strong, algorithm="RS256"),
        "by a secret": provider.token("platform", key=secret, algorithm="HS256"),
        "without a signature": provider.token("platform").rpartition(".")[0] + ".",
        "without a name": provider.token("platform", email=None),
        "rubbish": "a.b.c",
    }
    for name, token in bad.items():
        problem = refused(Client(guarded.address, token=token).nodes)
        assert problem.status == 401, name
    assert refused(Client(guarded.address, token="no-jwt-0123456789").nodes).status == 401  # noqa: S106 a test


def test_a_new_key_of_the_provider_is_fetched(
    guarded: Live, provider: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(oidc, "_PAUSE", 0.0)
    provider.keys["k2"] = ec.generate_private_key(ec.SECP256R1())
    client = Client(guarded.address, token=provider.token("all", kid="k2"))
    first = refused(client.nodes)
    assert first.status in {401, 503}
    wait_for("the new key", lambda: guarded.raw("GET", "/api/v1", Authorization=f"Bearer {client._token}")[0] == 200)


def test_a_token_is_verified_once_a_minute(provider: Provider, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    told = oidc.OidcOptions(provider.issuer, "bursar", [oidc.GroupRole("g", "viewer")])
    verifier = oidc.OidcVerifier(told, lambda: clock[0])
    wait_for("keys", lambda: not verifier._keys.fetching)
    verified: list[str] = []
    right = verifier._verified

    def counted(token: str) -> dict[str, Any]:
        verified.append(token)
        return right(token)

    monkeypatch.setattr(verifier, "_verified", counted)
    token = provider.token("g")
    for _ in range(3):
        assert verifier.identity(token) is not None
    clock[0] += 61
    verifier.identity(token)
    assert len(verified) == 2


def test_while_keys_are_missing_tokens_get_503(tmp_path: Path, provider: Provider) -> None:
    path = tmp_path / "oidc.yaml"
    path.write_text(yaml.safe_dump(options(provider, keysUrl="http://127.0.0.1:9/keys")))
    with live(tmp_path / "b.db", oidc=path) as bed:
        status, headers, _ = bed.raw("GET", "/api/v1", Authorization=f"Bearer {provider.token('all')}")
        assert (status, "retry-after" in headers) == (503, True)


@pytest.mark.parametrize(
    ("change", "wanted"),
    [
        ({"issuer": "http://example.com"}, "issuer: 'http://example.com' is no https address"),
        ({"keysUrl": "ftp://example.com"}, "keysUrl: 'ftp://example.com' is no https address"),
        ({"roles": [{"group": "a", "role": "boss"}]}, r"roles\[0\].role: 'boss' is none of viewer, submitter"),
        ({"roles": [{"group": "a", "role": "submitter"}]}, r"roles\[0\]: a submitter needs namespaces"),
        ({"audiences": ["a"]}, "unknown field `audiences`"),
    ],
)
def test_files_that_cannot_be_used(tmp_path: Path, provider: Provider, change: dict[str, object], wanted: str) -> None:
    path = tmp_path / "oidc.yaml"
    path.write_text(yaml.safe_dump(options(provider) | change))
    with pytest.raises(TokenFileError, match=f"oidc.yaml: .*{wanted}"):
        oidc.read_options(path)
