"""Statements about a pod, each written once and read twice: as CEL by the API server, as Python by Bursar.

A term says the same in both readings, for every pod that the API server can hold; tests compare them over random
pods. CEL text uses only what every server knows that has admission policies: ``has``, ``in``, ``exists``, ``filter``,
``size``, ``startsWith`` and the operators.

Whoever may create pods chooses how many labels, annotations, gates and owners the API server loops over, and CEL counts
the cost of a loop in a way that takes the square of its length: a stack that every step adds to is searched for every
name. So pods are looked through in two ways only. One is lists of at most ``MOST`` things; the guards let no pod have
more. The other is ``filter`` over labels and annotations by a test that begins with ``k in [...]``: what remains of it
is where the next step cuts the stack, so that it takes time in proportion to the length, as ``exists``, ``all`` and
``map`` never do. A test on a real API server holds the policies to it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol

MOST = 100  # scheduling gates, and owners, of a pod; containers, and requests of each, of one that is resized

_PLAIN = re.compile(r"[A-Za-z0-9 ._/:@-]*")


@dataclass(frozen=True, slots=True)
class PodFacts:
    """What terms look at. ``controllers``: (apiVersion, kind) of owners that control the pod."""

    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    gates: tuple[str, ...] = ()
    controllers: tuple[tuple[str, str], ...] = ()


def facts_of(pod: Mapping[str, Any]) -> PodFacts:
    """The facts of a pod as the API server writes it."""
    metadata = pod.get("metadata") or {}
    spec = pod.get("spec") or {}
    return PodFacts(
        metadata.get("labels") or {},
        metadata.get("annotations") or {},
        tuple(gate["name"] for gate in spec.get("schedulingGates") or ()),
        tuple(
            (owner.get("apiVersion", ""), owner.get("kind", ""))
            for owner in metadata.get("ownerReferences") or ()
            if owner.get("controller")
        ),
    )


class Term(Protocol):
    """One statement. ``subject`` is the variable that holds the pod: ``object`` or ``oldObject``."""

    def cel(self, subject: str) -> str: ...

    def holds(self, pod: PodFacts) -> bool: ...


@dataclass(frozen=True, slots=True)
class Marked:
    """A label or annotation is there whose key is one of ``keys`` or begins with one of ``prefixes``."""

    part: Literal["labels", "annotations"]
    keys: tuple[str, ...] = ()
    prefixes: tuple[str, ...] = ()

    def cel(self, subject: str) -> str:
        marks = f"{subject}.metadata.{self.part}"
        if self.prefixes:
            return f"(has({marks}) && {marks}.filter(k, {self.cel_of_key('k')}).size() > 0)"
        if len(self.keys) == 1:
            return f"(has({marks}) && {quoted(self.keys[0])} in {marks})"
        return f"(has({marks}) && {listed(self.keys)}.exists(k, k in {marks}))"

    def cel_of_key(self, key: str) -> str:
        """Whether a key, in a variable of that name, is one of these: cheap for ``filter``, as said above."""
        tests = [f"{key}.startsWith({quoted(prefix)})" for prefix in self.prefixes]
        return " || ".join((f"{key} in {listed(self.keys or self.prefixes)}", *tests))

    def names(self, key: str) -> bool:
        """Whether a key is one of these."""
        return key in self.keys or key.startswith(self.prefixes)

    def holds(self, pod: PodFacts) -> bool:
        return any(self.names(key) for key in (pod.labels if self.part == "labels" else pod.annotations))


@dataclass(frozen=True, slots=True)
class Labelled:
    """A label has that value."""

    key: str
    value: str

    def cel(self, subject: str) -> str:
        labels = f"{subject}.metadata.labels"
        key = quoted(self.key)
        return f"(has({labels}) && {key} in {labels} && {labels}[{key}] == {quoted(self.value)})"

    def holds(self, pod: PodFacts) -> bool:
        return pod.labels.get(self.key) == self.value


@dataclass(frozen=True, slots=True)
class Controlled:
    """The pod belongs to a controller of that kind."""

    api_version: str
    kind: str

    def cel(self, subject: str) -> str:
        owners = f"{subject}.metadata.ownerReferences"
        ours = f"o.apiVersion == {quoted(self.api_version)} && o.kind == {quoted(self.kind)}"
        some = f"{owners}.exists(o, {ours} && has(o.controller) && o.controller)"
        return f"(has({owners}) && {owners}.size() <= {MOST} && {some})"

    def holds(self, pod: PodFacts) -> bool:
        return (self.api_version, self.kind) in pod.controllers


@dataclass(frozen=True, slots=True)
class Gated:
    """The pod has that scheduling gate."""

    gate: str

    def cel(self, subject: str) -> str:
        gates = f"{subject}.spec.schedulingGates"
        return f"(has({gates}) && ({gates}.size() > {MOST} || {gates}.exists(g, g.name == {quoted(self.gate)})))"

    def holds(self, pod: PodFacts) -> bool:
        return self.gate in pod.gates


@dataclass(frozen=True, slots=True)
class AnyOf:
    """One of the terms holds."""

    terms: tuple[Term, ...]

    def cel(self, subject: str) -> str:
        return "(" + " || ".join(term.cel(subject) for term in self.terms) + ")"

    def holds(self, pod: PodFacts) -> bool:
        return any(term.holds(pod) for term in self.terms)


@dataclass(frozen=True, slots=True)
class AllOf:
    """All of the terms hold."""

    terms: tuple[Term, ...]

    def cel(self, subject: str) -> str:
        return "(" + " && ".join(term.cel(subject) for term in self.terms) + ")"

    def holds(self, pod: PodFacts) -> bool:
        return all(term.holds(pod) for term in self.terms)


@dataclass(frozen=True, slots=True)
class Not:
    """The term does not hold."""

    term: Term

    def cel(self, subject: str) -> str:
        return f"!{self.term.cel(subject)}"

    def holds(self, pod: PodFacts) -> bool:
        return not self.term.holds(pod)


def quoted(text: str) -> str:
    """A CEL string. Names of Kubernetes need no escapes, so anything that would is a mistake."""
    if _PLAIN.fullmatch(text) is None:
        raise ValueError(f"{text!r} cannot stand in a CEL expression")
    return f"'{text}'"


def listed(texts: Iterable[str]) -> str:
    """A CEL list of strings."""
    return "[" + ", ".join(quoted(text) for text in texts) + "]"
