"""Who talks to the API server: users with tokens, kubeconfig files, the key that signs service account tokens.

The components run under the names they have in a real cluster, so that RBAC and admission policies meet the same users
there and here. Tokens are random for each control plane. The API server reads them once, at its start.
"""

import base64
import json
import secrets
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

ADMIN = "admin"
SCHEDULER = "system:kube-scheduler"
CONTROLLER_MANAGER = "system:kube-controller-manager"
KWOK = "kwok"
BURSAR = "system:serviceaccount:bursar-system:bursar"
ALICE = "alice"
BOB = "bob"


class User(NamedTuple):
    name: str
    groups: tuple[str, ...] = ()


USERS = (
    User(ADMIN, ("system:masters",)),
    User(SCHEDULER),
    User(CONTROLLER_MANAGER),
    User(KWOK, ("system:masters",)),
    User(BURSAR, ("system:serviceaccounts", "system:serviceaccounts:bursar-system")),
    User(ALICE),
    User(BOB),
)


class Identities:
    """The users of one control plane and their files in one folder."""

    def __init__(self, folder: Path, url: str, ca_path: Path, extra: Iterable[User]) -> None:
        self._folder = folder
        self._url = url
        self._ca_path = ca_path
        self._tokens = {user: secrets.token_urlsafe(24) for user in (*USERS, *extra)}
        self.token_file = folder / "tokens.csv"
        self.service_account_key = folder / "service-accounts.key"
        self.token_file.write_text("".join(_token_line(user, token) for user, token in self._tokens.items()))
        self.service_account_key.write_text(signing_key())

    def token(self, name: str) -> str:
        for user, token in self._tokens.items():
            if user.name == name:
                return token
        raise KeyError(f"no user {name}; there are {', '.join(user.name for user in self._tokens)}")

    def kubeconfig(self, name: str) -> Path:
        """The kubeconfig file of a user, written when it is first asked for."""
        file = self._folder / f"{name.replace(':', '-')}.kubeconfig"
        if not file.exists():
            file.write_text(json.dumps(self._kubeconfig(name, self.token(name)), indent=1) + "\n")
            file.chmod(0o600)
        return file

    def _kubeconfig(self, name: str, token: str) -> dict[str, object]:
        cluster = {"server": self._url, "certificate-authority": str(self._ca_path)}
        return {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "bursar",
            "clusters": [{"name": "bursar", "cluster": cluster}],
            "users": [{"name": name, "user": {"token": token}}],
            "contexts": [{"name": "bursar", "context": {"cluster": "bursar", "user": name, "namespace": "default"}}],
        }


def _token_line(user: User, token: str) -> str:
    return f'{token},{user.name},{user.name},"{",".join(user.groups)}"\n'


def signing_key() -> str:
    """A new private key on the curve P-256, as PEM: a random number below the group's order and the curve's name."""
    order = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
    number = (1 + secrets.randbelow(order - 1)).to_bytes(32, "big")
    curve = bytes.fromhex("a00a06082a8648ce3d030107")  # [0] object identifier 1.2.840.10045.3.1.7
    body = bytes.fromhex("0201010420") + number + curve  # version 1, octet string of 32 bytes
    text = base64.encodebytes(bytes((0x30, len(body))) + body).decode()
    return f"-----BEGIN EC PRIVATE KEY-----\n{text}-----END EC PRIVATE KEY-----\n"
