"""Scenario files, read and checked as a whole before anything runs.

A document is one scenario: a name, manifests that are applied first, and steps of exactly one action each. An unknown
key, an unreadable manifest or a reference to an unknown kind is a ``ManifestError`` with the file, the document and the
path. Manifests of a step that must be ``refused`` are checked when the step runs.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast

from msgspec import field

from bursar.objects.core import Part, Pod
from bursar.objects.decode import ManifestError, decode, join
from bursar.objects.kinds import DEFAULT_NAMESPACE, POD, Kind, KindSet
from bursar.objects.manifests import SUFFIXES, Document, load_path
from bursar.objects.validation import duration_ms
from bursar.sim.pods import pod_times

ABSENT = "Absent"
ACTIONS = ("apply", "delete", "finish", "advance", "expect")


class PodExpectation(Part, frozen=True):
    """What must be true of a pod; a label or annotation that must not be there is null."""

    phase: Literal["Pending", "Running", "Terminating", "Succeeded", "Evicted", "Absent"] | None = None
    node: str | None = None
    reason: str | None = None
    labels: dict[str, str | None] = field(default_factory=dict)
    annotations: dict[str, str | None] = field(default_factory=dict)


class ExpectSpec(Part, frozen=True):
    pods: dict[str, PodExpectation] = field(default_factory=dict)
    objects: dict[str, dict[str, Any]] = field(default_factory=dict)


class StepSpec(Part, frozen=True):
    apply: tuple[dict[str, Any], ...] | None = None
    delete: tuple[str, ...] | None = None
    finish: tuple[str, ...] | None = None
    advance: str | int | None = None
    expect: ExpectSpec | None = None
    refused: str | None = None  # with apply or delete: it must be refused, with this text in the refusal


class ScenarioSpec(Part, frozen=True):
    name: str
    steps: tuple[StepSpec, ...]
    objects: tuple[dict[str, Any], ...] = ()


@dataclass(frozen=True, slots=True)
class ObjectExpectation:
    """What an object must have; None: it must not exist."""

    text: str  # as the file names it
    kind: Kind
    key: str
    wanted: dict[str, Any] | None


@dataclass(frozen=True, slots=True)
class Step:
    """One step, ready to run: ``action`` says which of the fields counts."""

    number: int  # from 1; 0: the objects applied first
    action: str
    documents: tuple[Document, ...] = ()
    references: tuple[tuple[Kind, str], ...] = ()
    pods: tuple[str, ...] = ()
    duration: int = 0
    pod_expectations: tuple[tuple[str, PodExpectation], ...] = ()
    object_expectations: tuple[ObjectExpectation, ...] = ()
    refused: str | None = None


@dataclass(frozen=True, slots=True)
class Scenario:
    source: str
    number: int  # of the document, from 1
    name: str
    steps: tuple[Step, ...]


def load_scenarios(paths: Iterable[Path], kinds: KindSet) -> list[Scenario]:
    """All scenarios of files and folders (and the folders inside them); at least one, or it is an error."""
    found: list[Scenario] = []
    for path in paths:
        before = len(found)
        for file in _files(path):
            found.extend(_scenarios_of(file, kinds))
        if len(found) == before:
            raise ManifestError("no scenarios found", source=str(path))
    return found


def _files(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    return sorted(file for file in path.rglob("*") if file.suffix in SUFFIXES and file.is_file())


def _scenarios_of(file: Path, kinds: KindSet) -> list[Scenario]:
    found: dict[str, Scenario] = {}
    for document in load_path(file):
        scenario = read_scenario(document, kinds)
        first = found.setdefault(scenario.name, scenario)
        if first is not scenario:
            problem = f"{scenario.name!r} is also the name of document {first.number}"
            raise document.error(ManifestError(problem, "name"))
    return list(found.values())


def read_scenario(document: Document, kinds: KindSet) -> Scenario:
    """The scenario of a document, with everything checked that can be before it runs."""
    try:
        spec, _ = decode(document.body, ScenarioSpec)
        if not spec.name.strip():
            raise ManifestError("must not be empty", "name")
        if not spec.steps:
            raise ManifestError("must not be empty", "steps")
        reader = _StepReader(document, kinds)
        steps = [reader.step(one, index) for index, one in enumerate(spec.steps)]
        if spec.objects:
            steps.insert(0, Step(0, "apply", reader.manifests(spec.objects, "objects", check=True)))
    except ManifestError as error:
        raise document.error(error) from None
    return Scenario(document.source, document.number, spec.name, tuple(steps))


class _StepReader:
    """Reads the steps of one document."""

    def __init__(self, document: Document, kinds: KindSet) -> None:
        self._document = document
        self._kinds = kinds

    def step(self, given: StepSpec, index: int) -> Step:
        path = f"steps[{index}]"
        actions = [action for action in ACTIONS if getattr(given, action) is not None]
        if len(actions) != 1:
            problem = f"a step is exactly one of {', '.join(ACTIONS)}"
            raise ManifestError(f"{problem}, not {' and '.join(actions) or 'none of them'}", path)
        action = actions[0]
        if given.refused is not None and (action not in {"apply", "delete"} or not given.refused):
            raise ManifestError("is the text of a refusal, beside apply or delete", join(path, "refused"))
        step: Step = getattr(self, f"_{action}")(given, index + 1, join(path, action))
        return step

    def manifests(self, bodies: tuple[dict[str, Any], ...], path: str, *, check: bool) -> tuple[Document, ...]:
        source, number = self._document.source, self._document.number
        documents = tuple(Document(source, number, body, f"{path}[{i}]") for i, body in enumerate(bodies))
        if check:
            for document, read in zip(documents, self._kinds.read_all(documents), strict=True):
                if read.kind.name == POD.name:
                    _check_times(document, cast("Pod", read.typed))
        return documents

    def _apply(self, given: StepSpec, number: int, path: str) -> Step:
        bodies = _some(given.apply, path)
        documents = self.manifests(bodies, path, check=given.refused is None)
        return Step(number, "apply", documents, refused=given.refused)

    def _delete(self, given: StepSpec, number: int, path: str) -> Step:
        texts = _some(given.delete, path)
        references = tuple(self._reference(text, f"{path}[{i}]") for i, text in enumerate(texts))
        return Step(number, "delete", references=references, refused=given.refused)

    def _finish(self, given: StepSpec, number: int, path: str) -> Step:
        keys = _some(given.finish, path)
        return Step(number, "finish", pods=tuple(_pod_key(key, f"{path}[{i}]") for i, key in enumerate(keys)))

    def _advance(self, given: StepSpec, number: int, path: str) -> Step:
        return Step(number, "advance", duration=duration_ms(given.advance, path))

    def _expect(self, given: StepSpec, number: int, path: str) -> Step:
        expect = cast("ExpectSpec", given.expect)
        if not expect.pods and not expect.objects:
            raise ManifestError("expects nothing: name pods or objects", path)
        pods = tuple(_pod_expectation(key, wanted, join(path, "pods")) for key, wanted in expect.pods.items())
        objects = tuple(
            self._object_expectation(text, wanted, join(path, "objects")) for text, wanted in expect.objects.items()
        )
        return Step(number, "expect", pod_expectations=pods, object_expectations=objects)

    def _object_expectation(self, text: str, wanted: dict[str, Any], path: str) -> ObjectExpectation:
        kind, key = self._reference(text, join(path, text))
        if not wanted:
            raise ManifestError("expects nothing", join(path, text))
        absent = wanted.get("phase") == ABSENT
        if absent and len(wanted) > 1:
            raise ManifestError(f"nothing else can be expected of what is {ABSENT}", join(path, text))
        return ObjectExpectation(text, kind, key, None if absent else wanted)

    def _reference(self, text: str, path: str) -> tuple[Kind, str]:
        try:
            return self._kinds.reference(text)
        except ManifestError as error:
            raise ManifestError(error.problem, path) from None


def _check_times(document: Document, pod: Pod) -> None:
    try:
        pod_times(pod)
    except ManifestError as error:
        raise document.error(error) from None


def _pod_expectation(key: str, wanted: PodExpectation, path: str) -> tuple[str, PodExpectation]:
    where = join(path, key)
    if wanted == PodExpectation():
        raise ManifestError("expects nothing", where)
    if wanted.phase == ABSENT and wanted != PodExpectation(phase=ABSENT):
        raise ManifestError(f"nothing else can be expected of what is {ABSENT}", where)
    return _pod_key(key, where), wanted


def _pod_key(text: str, path: str) -> str:
    parts = text.split("/")
    if not all(parts) or len(parts) > 2:
        raise ManifestError(f"{text!r:.80} is not a pod: namespace/name", path)
    return text if len(parts) == 2 else f"{DEFAULT_NAMESPACE}/{text}"


def _some(items: tuple[Any, ...] | None, path: str) -> tuple[Any, ...]:
    if not items:
        raise ManifestError("must not be empty", path)
    return items
