"""Running scenarios step by step on a fresh cluster, until the end or the first step that fails.

Expectations match subsets: everything expected must be there, and more may be. Mappings match key by key (null: the key
must be absent). Lists whose items have a ``type`` or ``name`` match item by item by that name; other lists match in
order and in full. Quantities match by value where a mapping holds resources: ``1`` is ``1000m``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from bursar.control.pacing import SettlingError
from bursar.objects.decode import ManifestError, join, or_nearest
from bursar.objects.kinds import Kind
from bursar.objects.manifests import Document
from bursar.objects.validation import few, is_qualified, show_duration
from bursar.policies.plugin import Registry
from bursar.quantity import QuantityError
from bursar.resources import dimension
from bursar.sim.cluster import Cluster
from bursar.sim.pods import Happening, PodView
from bursar.sim.scenario import ABSENT, ObjectExpectation, PodExpectation, Scenario, Step

_PLAIN_RESOURCES = ("cpu", "memory", "pods", "storage", "ephemeral-storage", "tflops", "vram", "gpu")
_NO_RESOURCES = ("labels", "annotations", "nodeSelector", "matchLabels")
_MARKS = ("type", "name")


class _Nothing:
    """Stands for what is not there."""

    def __repr__(self) -> str:
        return "nothing"


NOTHING = _Nothing()


@dataclass(frozen=True, slots=True)
class Mismatch:
    path: str
    expected: object
    found: object

    def lines(self) -> list[str]:
        return [f"- {self.path}: {_shown(self.expected)}", f"+ {self.path}: {_shown(self.found)}"]


def differences(expected: object, found: object, path: str = "") -> Iterator[Mismatch]:
    """All places where what was found is not what was expected."""
    if isinstance(expected, Mapping) and isinstance(found, Mapping):
        yield from _in_mapping(expected, found, path)
    elif isinstance(expected, list | tuple) and isinstance(found, list | tuple):
        yield from _in_list(list(expected), list(found), path)
    elif type(expected) is not type(found) or expected != found:
        yield Mismatch(path, expected, found)


def _in_mapping(expected: Mapping[str, Any], found: Mapping[str, Any], path: str) -> Iterator[Mismatch]:
    resources = _holds_resources(found, path)
    for key, wanted in expected.items():
        where = join(path, str(key))
        got = found.get(key, NOTHING)
        if wanted is None:
            if got is not NOTHING and got is not None:
                yield Mismatch(where, NOTHING, got)
        elif got is NOTHING:
            yield Mismatch(where, wanted, NOTHING)
        elif not (resources and _same_amount(key, wanted, got)):
            yield from differences(wanted, got, where)


def _in_list(expected: list[Any], found: list[Any], path: str) -> Iterator[Mismatch]:
    mark = next((mark for mark in _MARKS if _all_marked(expected, mark) and _all_marked(found, mark)), None)
    if mark is None or not expected:
        if len(expected) != len(found):
            yield Mismatch(path, expected, found)
            return
        for index, (wanted, got) in enumerate(zip(expected, found, strict=True)):
            yield from differences(wanted, got, f"{path}[{index}]")
        return
    by_mark = {item[mark]: item for item in reversed(found)}
    for wanted in expected:
        where = f"{path}[{wanted[mark]}]"
        if wanted[mark] in by_mark:
            yield from differences(wanted, by_mark[wanted[mark]], where)
        else:
            yield Mismatch(where, wanted, NOTHING)


def _all_marked(items: list[Any], mark: str) -> bool:
    return all(isinstance(item, Mapping) and isinstance(item.get(mark), str) for item in items)


def _holds_resources(mapping: Mapping[str, Any], path: str) -> bool:
    if path.rpartition(".")[2] in _NO_RESOURCES:
        return False
    return all(_is_resource(str(key)) and _amount(str(key), value) is not None for key, value in mapping.items())


def _is_resource(name: str) -> bool:
    return name in _PLAIN_RESOURCES or name.startswith("hugepages-") or ("/" in name and is_qualified(name))


def _same_amount(name: str, expected: object, found: object) -> bool:
    wanted = _amount(name, expected)
    return wanted is not None and wanted == _amount(name, found)


def _amount(name: str, value: object) -> int | None:
    try:
        return dimension(name).parse(value, negative=True)
    except QuantityError:
        return None


def _shown(value: object) -> str:
    if isinstance(value, str):
        return value if value and value.isprintable() and value == value.strip() else repr(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    return repr(value)


class Steered(Protocol):
    """What steps act upon: the embedded cluster, or anything else that scenarios are held to."""

    def apply(self, documents: Iterable[Document]) -> object: ...

    def delete(self, references: Iterable[tuple[Kind, str]]) -> object: ...

    def finish(self, keys: Iterable[str]) -> object: ...

    def advance(self, duration: int) -> None: ...


@dataclass(frozen=True, slots=True)
class StepResult:
    """What a step did; ``failure``: what was wrong, line by line."""

    step: Step
    title: str
    happenings: tuple[Happening, ...]
    failure: tuple[str, ...] = ()


@dataclass(slots=True)
class Result:
    scenario: Scenario
    steps: list[StepResult] = field(default_factory=list)

    @property
    def failed(self) -> StepResult | None:
        return self.steps[-1] if self.steps and self.steps[-1].failure else None


def run_scenario(scenario: Scenario, registry: Registry | None = None) -> Result:
    """Run it; a step that fails ends it."""
    cluster = Cluster(registry)
    result = Result(scenario)
    for step in scenario.steps:
        seen = len(cluster.happenings)
        failure = tuple(_run(cluster, step))
        result.steps.append(StepResult(step, _title(step), tuple(cluster.happenings[seen:]), failure))
        if failure:
            break
    return result


def _run(cluster: Cluster, step: Step) -> Iterator[str]:
    """Run a step; yields what is wrong."""
    if step.action == "expect":
        yield from _expect(cluster, step)
        return
    try:
        act(cluster, step)
    except SettlingError as error:
        yield str(error)
        return
    except ManifestError as error:
        if step.refused is None:
            yield f"refused: {error}"
        elif step.refused not in str(error):
            yield from ["refused, but not with the text expected", f"- {step.refused}", f"+ {error}"]
        return
    if step.refused is not None:
        yield f"was accepted, but must be refused with: {step.refused}"


def act(cluster: Steered, step: Step) -> None:
    """Do what a step says, if it is not one that only looks."""
    if step.action == "apply":
        cluster.apply(step.documents)
    elif step.action == "delete":
        cluster.delete(step.references)
    elif step.action == "finish":
        cluster.finish(step.pods)
    elif step.action == "advance":
        cluster.advance(step.duration)


def _title(step: Step) -> str:
    if step.action == "apply":
        names = [f"{d.body.get('kind', '?')} {(d.body.get('metadata') or {}).get('name', '?')}" for d in step.documents]
        return f"apply {few(names)}"
    if step.action == "delete":
        return f"delete {few([f'{kind.kind} {key}' for kind, key in step.references])}"
    if step.action == "finish":
        return f"finish {few(list(step.pods))}"
    if step.action == "advance":
        return f"advance {show_duration(step.duration)}"
    count = len(step.pod_expectations) + len(step.object_expectations)
    return f"expect {count} thing{'s' if count > 1 else ''}"


# Expectations


def _expect(cluster: Cluster, step: Step) -> Iterator[str]:
    for key, wanted in step.pod_expectations:
        yield from _expect_pod(cluster, key, wanted)
    for expectation in step.object_expectations:
        yield from _expect_object(cluster, expectation)


def _expect_pod(cluster: Cluster, key: str, wanted: PodExpectation) -> Iterator[str]:
    found = cluster.pod(key)
    if found is None:
        if wanted.phase != ABSENT:
            yield f"Pod {key} matches nothing: there is no such pod{or_nearest(key, cluster.pods())}"
        return
    wrong = [line for difference in _pod_differences(wanted, found) for line in difference.lines()]
    if not wrong:
        return
    yield f"Pod {key} (- expected, + found)"
    yield from (f"  {line}" for line in wrong)
    if found.message:
        yield f"  {found.message}"
    yield from _explained(cluster, key)


def _pod_differences(wanted: PodExpectation, found: PodView) -> Iterator[Mismatch]:
    for name in ("phase", "node", "reason"):
        expected, got = getattr(wanted, name), getattr(found, name)
        if expected is not None and expected != got:
            yield Mismatch(name, expected, got or NOTHING)
    yield from differences(wanted.labels, found.labels, "labels")
    yield from differences(wanted.annotations, found.annotations, "annotations")


def _explained(cluster: Cluster, key: str) -> Iterator[str]:
    check = cluster.explain(key)
    if check is not None:
        yield "  explained:"
        yield from (f"    {line}" for line in check.lines())


def _expect_object(cluster: Cluster, expectation: ObjectExpectation) -> Iterator[str]:
    found = cluster.find(expectation.kind, expectation.key)
    if expectation.wanted is None:
        if found is not None:
            yield f"{expectation.text} exists, but was expected to be {ABSENT}"
        return
    if found is None:
        yield f"{expectation.text} matches nothing: there is no such object"
        return
    wrong = [line for difference in differences(expectation.wanted, found) for line in difference.lines()]
    if wrong:
        yield f"{expectation.text} (- expected, + found)"
        yield from (f"  {line}" for line in wrong)
        if expectation.kind.name == "Pod":
            yield from _explained(cluster, expectation.key)
