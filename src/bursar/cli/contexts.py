"""Contexts: named targets of commands, kept in a file.

The file is the one that BURSAR_CONFIG names, else `bursar/config.yaml` in the folder for configuration. A context names
a server (with its token and certificates), a store file or a Kubernetes cluster, and a namespace. It holds the paths of
secrets and no secrets. Unknown fields are errors: a misspelt `server` would mean the server of this machine.
"""

from __future__ import annotations

import os
import tempfile
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from bursar.cli.connection import fail

_FIELDS = {
    "server": str, "data": str, "token-file": str, "ca-file": str, "cluster": bool, "kubeconfig": str,
    "kube-context": str, "namespace": str,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Context:
    """One named target; what is empty is not given."""

    server: str = ""
    data: str = ""
    token_file: str = ""
    ca_file: str = ""
    cluster: bool = False
    kubeconfig: str = ""
    kube_context: str = ""
    namespace: str = ""

    def plain(self) -> dict[str, object]:
        return {name.replace("_", "-"): value for name, value in asdict(self).items() if value}

    @property
    def where(self) -> str:
        """What it asks, in a word."""
        live = "the cluster of the kubeconfig" if self.cluster or self.kubeconfig or self.kube_context else ""
        return self.server or self.data or live


@dataclass(slots=True)
class ContextFile:
    """The contexts there are, by name, and the one in use."""

    path: Path
    current: str = ""
    contexts: dict[str, Context] = field(default_factory=dict)

    def find(self, name: str) -> Context:
        """The context; ends the program if there is none of that name."""
        if name not in self.contexts:
            from bursar.objects.decode import or_nearest

            fail(f"{self.path}: there is no context {name!r:.80}{or_nearest(name, self.contexts)}")
        return self.contexts[name]

    def save(self) -> None:
        """Replace the file as a whole, readable only by its owner."""
        import yaml

        body: dict[str, object] = {"current-context": self.current} if self.current else {}
        body["contexts"] = {name: context.plain() for name, context in sorted(self.contexts.items())}
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile("w", dir=self.path.parent, delete=False, encoding="utf-8") as file:
                file.write(yaml.safe_dump(body, sort_keys=False, allow_unicode=True))
            Path(file.name).replace(self.path)
        except OSError as error:
            fail(f"{self.path}: cannot be written: {error.strerror or error}")


def context_path() -> Path:
    given = os.environ.get("BURSAR_CONFIG", "")
    if given:
        return Path(given).expanduser()
    folder = os.environ.get("XDG_CONFIG_HOME", "")
    return (Path(folder) if folder else Path.home() / ".config") / "bursar" / "config.yaml"


def load_contexts() -> ContextFile:
    """What the file holds; nothing, if there is none. A file that cannot be read ends the program."""
    path = context_path()
    if not path.exists():
        return ContextFile(path)
    from bursar.objects.decode import ManifestError
    from bursar.objects.manifests import load_path

    try:
        documents = load_path(path)
        body = documents[0].body if documents else {}
        return ContextFile(path, str(body.get("current-context") or ""), _contexts(body))
    except ManifestError as error:
        fail(str(error.located(str(path))))


def _contexts(body: dict[str, Any]) -> dict[str, Context]:
    from bursar.objects.decode import ManifestError, or_nearest

    for name in body:
        if name not in {"current-context", "contexts"}:
            known = ["current-context", "contexts"]
            raise ManifestError(f"is not a known field{or_nearest(name, known)}", name)
    given = body.get("contexts") or {}
    if not isinstance(given, dict):
        raise ManifestError("expected a mapping", "contexts")
    return {str(name): _context(value, f"contexts.{name}") for name, value in given.items()}


def _context(value: object, path: str) -> Context:
    from bursar.objects.decode import ManifestError, join, or_nearest

    if not isinstance(value, dict):
        raise ManifestError("expected a mapping", path)
    for name, inner in value.items():
        wanted = _FIELDS.get(name)
        if wanted is None:
            raise ManifestError(f"is not a known field{or_nearest(name, _FIELDS)}", join(path, name))
        if not isinstance(inner, wanted):
            raise ManifestError("expected true or false" if wanted is bool else "expected text", join(path, name))
    return Context(**{one.name: value.get(one.name.replace("_", "-"), one.default) for one in fields(Context)})
