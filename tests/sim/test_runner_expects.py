"""The runner of scenarios compares all that a step expects: each wrong expectation fails, and says what it found."""

from __future__ import annotations

import pytest

from bursar.control.admission import known_kinds
from bursar.objects.manifests import load_text
from bursar.policies.plugin import default_registry
from bursar.sim.runner import run_scenario
from bursar.sim.scenario import read_scenario

KINDS = known_kinds(default_registry())
WORLD = """
name: x
objects:
- {apiVersion: v1, kind: Node, metadata: {name: n1}, status: {allocatable: {cpu: 1}}}
- {apiVersion: v1, kind: Pod, metadata: {namespace: a, name: p, labels: {team: red}, annotations: {note: hello}},
   spec: {containers: [{resources: {requests: {cpu: 1}}}]}}
- {apiVersion: v1, kind: Pod, metadata: {namespace: a, name: q},
   spec: {containers: [{resources: {requests: {cpu: 1}}}]}}
steps:
- """

BAD_NODE = "{apiVersion: v1, kind: Node, metadata: {name: n2}, status: {allocatable: {cpu: x}}}"


def failure(step: str) -> list[str]:
    (document,) = load_text(WORLD + step, "x.yaml")
    failed = run_scenario(read_scenario(document, KINDS)).failed
    return [] if failed is None else [line.strip() for line in failed.failure]


@pytest.mark.parametrize(
    "expected",
    [
        "{expect: {pods: {a/p: {phase: Running, node: n1, labels: {team: red}, annotations: {note: hello}}}}}",
        "{expect: {pods: {a/q: {phase: Pending, reason: nodes.full}}}}",
        "{expect: {objects: {Pod/a/other: {phase: Absent}}}}",
        f"{{apply: [{BAD_NODE}], refused: allocatable.cpu}}",
    ],
)
def test_what_is_so_passes(expected: str) -> None:
    assert failure(expected) == []


@pytest.mark.parametrize(
    ("expected", "said"),
    [
        ("{expect: {pods: {a/q: {phase: Pending, reason: nodes.none}}}}", "nodes.full"),
        ("{expect: {pods: {a/p: {phase: Running, labels: {team: blue}}}}}", "red"),
        ("{expect: {pods: {a/p: {phase: Running, annotations: {note: bye}}}}}", "hello"),
        ("{expect: {pods: {a/p: {phase: Running, node: n2}}}}", "n1"),
        ("{expect: {pods: {a/p: {phase: Pending}}}}", "Running"),
        ("{expect: {objects: {Node/n1: {phase: Absent}}}}", "n1"),
        ("{apply: [{apiVersion: v1, kind: Node, metadata: {name: n2}}], refused: no such thing}", "no such thing"),
        (
            f"{{apply: [{BAD_NODE}], refused: no such thing}}",
            "no such thing",
        ),
    ],
)
def test_what_is_not_so_fails(expected: str, said: str) -> None:
    assert said in " ".join(failure(expected))


LEAVES = """
name: x
objects:
- {apiVersion: v1, kind: Node, metadata: {name: n1}, status: {allocatable: {cpu: 1}}}
- {apiVersion: v1, kind: Pod, metadata: {namespace: a, name: p,
   annotations: {sim.bursar.dev/runs-for: 10s, sim.bursar.dev/leaves-after: 60s}},
   spec: {containers: [{resources: {requests: {cpu: 1}}}]}}
steps:
- advance: 5s
- apply:
  - {apiVersion: v1, kind: Pod, metadata: {namespace: a, name: q},
     spec: {priority: 9, containers: [{resources: {requests: {cpu: 1}}}]}}
- advance: 10s
- expect: {pods: {a/p: {phase: Terminating}, a/q: {phase: Pending}}}
- advance: 50s
- expect: {pods: {a/p: {phase: Evicted}, a/q: {phase: Running}}}
"""


def test_a_pod_that_was_evicted_while_it_ran_leaves_when_it_said() -> None:
    """Not when it would have ended."""
    (document,) = load_text(LEAVES, "x.yaml")
    assert run_scenario(read_scenario(document, KINDS)).failed is None
