"""The list of reasons is whole: whatever is said is declared, and whatever is declared is said in some test."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

from bursar.control.admission import all_reasons, known_kinds
from bursar.kube.controller import drift, patches, place_recovery
from bursar.policies.plugin import Reason, default_registry
from bursar.policies.results import Check
from bursar.sim import runner
from bursar.sim.cluster import Cluster
from bursar.sim.scenario import load_scenarios
from tests.reference import reference_page

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = [ROOT / "examples", ROOT / "tests" / "scenarios"]
REASONS = [reason for reasons in all_reasons(default_registry()).values() for reason in reasons]
SHOWN_BY = {  # tests that have a reason without saying its code
    "gpus.plugin.<resource>": "policies/gpus/test_preemption.py::test_a_min_is_reclaimed_in_the_set_of_the_plugin",
    "gpus.unknown": "policies/gpus/test_policy.py::test_a_record_of_a_gpu_that_is_not_known_yet_waits_for_it",
    "gpus.gone": "policies/gpus/test_vectors_allocator.py::test_a6_a_gpu_that_is_gone_does_not_keep_the_others",
    "engine.displaced": "policies/gpus/test_policy.py::test_a_worker_that_has_to_wait_again_loses_its_record",
}
ON_KUBERNETES = {
    patches.INVALID,
    patches.UNJUDGED,
    place_recovery.PLACE_LOST,
    patches.UNSCHEDULED,
    patches.OTHER_GATES,
    drift.DIFFERENT,
}
PLAIN_EVENT = re.compile(r"[A-Z]\w*")  # Admitted, Held, ...: named as Kubernetes names events, they are no reasons


@cache
def said() -> frozenset[str]:
    """What is said in the scenarios: to pods, in the explain trees of every step, in events."""
    found: set[str] = set()
    for scenario in load_scenarios(FOLDERS, known_kinds(default_registry())):
        cluster = Cluster()
        for step in scenario.steps:
            list(runner._run(cluster, step))
            for key in cluster.pods():
                pod, check = cluster.pod(key), cluster.explain(key)
                found |= {"" if pod is None else pod.reason, *(codes(check) if check is not None else ())}
        found |= {event.reason for event in cluster.events if not PLAIN_EVENT.fullmatch(event.reason)}
    return frozenset(found - {""})


def codes(check: Check) -> set[str]:
    return {check.reason}.union(*(codes(child) for child in check.children))


@cache
def all_tests() -> str:
    """All that tests say."""
    files = (path for path in (ROOT / "tests").rglob("*") if path.suffix in {".py", ".yaml"})
    return "\n".join(path.read_text() for path in files)


def test_whatever_is_said_is_declared() -> None:
    assert len(said()) > 30
    assert [code for code in said() if not any(reason.covers(code) for reason in REASONS)] == []


@pytest.mark.parametrize("reason", REASONS, ids=lambda reason: reason.code)
def test_whatever_is_declared_is_said(reason: Reason) -> None:
    if reason.code in SHOWN_BY:
        file, _, name = SHOWN_BY[reason.code].partition("::")
        assert f"def {name}(" in (ROOT / "tests" / file).read_text()
    elif not any(reason.covers(code) for code in said() | ON_KUBERNETES):
        quoted = re.escape(reason.code).replace("<resource>", r"[\w./{}-]+")
        assert re.search(rf"[\"' \[]{quoted}[\"' \],}}]", all_tests()), "no scenario and no test has it"


def test_codes_begin_with_who_says_them_and_are_declared_once() -> None:
    for name, reasons in all_reasons(default_registry()).items():
        for reason in reasons:
            seeds = name == "limits" and reason.code.startswith(("single.", "total."))
            assert reason.code.startswith(f"{name}.") or seeds
            assert reason.means.endswith(".")
            assert reason.helps.endswith(".")
    assert len({reason.code for reason in REASONS}) == len(REASONS)


def test_every_policy_declares_some() -> None:
    assert [*all_reasons(default_registry())] == [*(plugin.name for plugin in default_registry()), "engine", "control"]


def test_the_page_is_up_to_date(repository: Path) -> None:
    advice = "run: make reference"
    assert (repository / "docs" / "reasons.md").read_text() == reference_page("reasons.md"), advice


@pytest.mark.parametrize(
    ("code", "met", "covered"),
    [
        ("a.b", "a.b", True),
        ("a.b", "a.b.cpu", False),
        ("a.b.<resource>", "a.b.nvidia.com/gpu", True),
        ("a.b.<resource>", "a.b.", False),
        ("a.b.<resource>", "a.b", False),
    ],
)
def test_a_reason_covers_all_resources(code: str, met: str, covered: bool) -> None:
    assert Reason(code, "", "").covers(met) == covered
