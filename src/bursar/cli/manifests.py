"""Manifests from files, folders and stdin for the commands that take some, and where each of them came from."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from bursar.cli.connection import fail, refuse

if TYPE_CHECKING:
    from bursar.objects.manifests import Document
    from bursar.server.types import Problem


F = TypeVar("F", bound=Callable[..., Any])


def files_option(*, required: bool) -> Callable[[F], F]:
    return click.option(
        "-f",
        "--file",
        "files",
        type=click.Path(path_type=Path, allow_dash=True),
        multiple=True,
        required=required,
        help="A file, a folder of .yaml, .yml and .json files, or - for stdin; may be repeated.",
    )


@dataclass(frozen=True, slots=True)
class Manifests:
    """All documents, to be sent as one text."""

    documents: list[Document]

    @property
    def text(self) -> bytes:
        import msgspec

        return b"\n".join(msgspec.json.encode(document.body) for document in self.documents)

    @contextmanager
    def located(self) -> Iterator[None]:
        """A problem with the n-th document of the text, or with a named object, is one with a document of a file."""
        import msgspec

        from bursar.server.client import RequestFailedError

        try:
            yield
        except RequestFailedError as error:
            problem = error.problem
            found = self._document(problem)
            if found is None:
                raise
            rest = problem.detail.partition(f"document {problem.document}: ")[2] or problem.detail
            where = ": ".join(part for part in (found.source, f"document {found.number}", found.item) if part)
            refuse(msgspec.structs.replace(problem, detail=f"{where}: {rest}"))

    def _document(self, problem: Problem) -> Document | None:
        if 0 < problem.document <= len(self.documents):
            return self.documents[problem.document - 1]
        return next((one for one in self.documents if problem.detail.startswith(_beginnings(one))), None)


def _beginnings(document: Document) -> tuple[str, ...]:
    """How a sentence about the object begins, with and without the namespace that it gets where none is given."""
    from bursar.objects.kinds import subject_of

    kind, _, key = subject_of(document.body).partition(" ")
    return f"{kind} {key}: ", f"{kind} default/{key}: "


def read(files: tuple[Path, ...], namespace: str = "") -> Manifests:
    """Everything in the files, in that namespace if it names none; a file that cannot be read ends the program."""
    from bursar.objects.decode import ManifestError
    from bursar.objects.manifests import load_path, load_text

    found: list[Document] = []
    try:
        for file in files:
            found.extend(load_text(sys.stdin.read(), "stdin") if str(file) == "-" else load_path(file))
    except (ManifestError, UnicodeDecodeError) as error:
        fail(str(error))
    if not found:
        fail(f"{', '.join(map(str, files))}: no objects found")
    return Manifests(_placed(found, namespace) if namespace else found)


def _placed(documents: list[Document], namespace: str) -> list[Document]:
    """With the namespace, where they name none and belong to one."""
    from bursar.control.admission import known_kinds
    from bursar.policies.plugin import default_registry

    nowhere = [kind.kind for kind in known_kinds(default_registry()) if not kind.namespaced]
    return [one if one.body.get("kind") in nowhere else _placed_one(one, namespace) for one in documents]


def _placed_one(document: Document, namespace: str) -> Document:
    import dataclasses

    metadata = document.body.get("metadata")
    if not isinstance(metadata, dict) or metadata.get("namespace") not in (None, ""):
        return document  # the server reports what is wrong with it
    body = {**document.body, "metadata": {**metadata, "namespace": namespace}}
    return dataclasses.replace(document, body=body)
