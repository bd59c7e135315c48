"""Running scenarios: step by step on a fresh cluster, until the end or the first step that fails."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Protocol

from bursar.control.settling import SettlingError
from bursar.objects.errors import ManifestError
from bursar.objects.kinds import Kind
from bursar.objects.manifests import Document
from bursar.policies.plugin import Registry
from bursar.sim.clock import show_duration
from bursar.sim.cluster import Cluster
from bursar.sim.expectations import NOTHING, Difference, differences
from bursar.sim.news import Happening
from bursar.sim.pods import PodView
from bursar.sim.scenarios import ABSENT, ObjectExpectation, PodExpectation, Scenario, Step


class Steered(Protocol):
    """What steps act upon: the embedded cluster, or anything else that scenarios are held to."""

    def apply(self, documents: Iterable[Document]) -> object: ...

    def delete(self, references: Iterable[tuple[Kind, str]]) -> None: ...

    def finish(self, keys: Iterable[str]) -> None: ...

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
        return f"apply {_few(names)}"
    if step.action == "delete":
        return f"delete {_few([f'{kind.kind} {key}' for kind, key in step.references])}"
    if step.action == "finish":
        return f"finish {_few(list(step.pods))}"
    if step.action == "advance":
        return f"advance {show_duration(step.duration)}"
    count = len(step.pod_expectations) + len(step.object_expectations)
    return f"expect {count} thing{'s' if count > 1 else ''}"


def _few(names: list[str], most: int = 3) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


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
            yield f"Pod {key} matches nothing: there is no such pod{_nearest(key, cluster.pods())}"
        return
    wrong = [line for difference in _pod_differences(wanted, found) for line in difference.lines()]
    if not wrong:
        return
    yield f"Pod {key} (- expected, + found)"
    yield from (f"  {line}" for line in wrong)
    if found.message:
        yield f"  {found.message}"
    yield from _explained(cluster, key)


def _pod_differences(wanted: PodExpectation, found: PodView) -> Iterator[Difference]:
    for name in ("phase", "node", "reason"):
        expected, got = getattr(wanted, name), getattr(found, name)
        if expected is not None and expected != got:
            yield Difference(name, expected, got or NOTHING)
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


def _nearest(key: str, keys: list[str]) -> str:
    close = difflib.get_close_matches(key, keys, n=1)
    return f"; did you mean {close[0]}?" if close else ""
