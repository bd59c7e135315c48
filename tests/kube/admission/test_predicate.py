"""Which pods are governed: the table of the design, and CEL against Python over random pods."""

from dataclasses import replace
from functools import cache
from typing import Any

import cel
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bursar.kube.admission.predicate import (
    ASKS_FOR_DEVICES,
    ENFORCED,
    EXEMPT,
    GATE,
    MARKED,
    MARKING,
    NAMESPACE_LABEL,
    NAMESPACE_NAME,
    OWN_ANNOTATIONS,
    QUOTA_ANNOTATIONS,
    TAKEN,
    AdmissionOptions,
    Governed,
    Marked,
    Namespaces,
    PodFacts,
    Predicate,
    arms,
    facts_of,
    quota_labels,
    quoted,
)
from bursar.policies.gpus import worker
from tests.kube.admission.random_pods import pods

OPTIONS = AdmissionOptions()
EVERYWHERE = AdmissionOptions(everywhere=True, exempt_namespaces=("batch", "kube-system"))
YES = {NAMESPACE_LABEL: ENFORCED}
DAEMON = (("apps/v1", "DaemonSet"),)


def facts(**given: Any) -> PodFacts:  # noqa: ANN401 any field
    return replace(PodFacts({}, {}), **given)


TREE = facts(labels={"quota.bursar.dev/lab": "theory"})

GPUS = ("cpu", "nvidia.com/gpu")
MANY = tuple(f"r{number}" for number in range(101))
RECORD = {"bursar.dev/admission": "{}"}

CASES = [
    # namespace, its labels, pod, governed, governed once CrossQuota is in force
    ("team", YES, facts(), True, True),
    ("team", {}, facts(), False, True),
    ("team", {NAMESPACE_LABEL: "off"}, facts(), False, True),
    ("batch", {}, facts(), False, False),
    ("batch", YES, facts(), True, True),
    ("batch", {}, TREE, True, True),
    ("team", {}, TREE, True, True),
    ("team", {}, facts(labels={"quota.scheduling.koordinator.sh/name": "a"}), True, True),
    ("team", {}, facts(annotations={"tensor-fusion.ai/vram-limit": "1Gi"}), True, True),
    ("batch", {}, facts(labels={"tensor-fusion.ai/component": "worker"}), True, True),
    ("kube-system", YES, TREE, False, False),
    ("bursar-system", YES, TREE, False, False),
    ("team", YES, facts(controllers=DAEMON), False, False),
    ("team", YES, facts(controllers=DAEMON, labels=TREE.labels), False, False),
    ("team", YES, facts(controllers=(("apps/v1", "ReplicaSet"),)), True, True),
    ("team", YES, facts(annotations={"kubernetes.io/config.mirror": "x"}), False, False),
    # Agents of nodes never wait; a DaemonSet that asks for devices is like anybody else.
    ("team", YES, facts(controllers=DAEMON, limits=(GPUS,)), True, True),
    ("team", {}, facts(controllers=DAEMON, limits=(GPUS,)), False, True),
    ("team", {}, facts(controllers=DAEMON, limits=(GPUS,), labels=TREE.labels), True, True),
    ("team", YES, facts(controllers=DAEMON, limits=((), GPUS)), True, True),
    ("team", YES, facts(controllers=DAEMON, init_limits=(GPUS,)), True, True),
    ("team", YES, facts(controllers=DAEMON, limits=(("deviceclass.resource.kubernetes.io/gpu",),)), True, True),
    ("team", YES, facts(controllers=DAEMON, limits=(("cpu", "memory", "hugepages-2Mi"),)), False, False),
    ("team", YES, facts(controllers=DAEMON, limits=(("node.kubernetes.io/x",),)), False, False),
    ("team", YES, facts(controllers=DAEMON, claims=True), True, True),
    ("team", YES, facts(controllers=DAEMON, limits=((),) * 101), True, True),
    ("team", YES, facts(controllers=DAEMON, init_limits=((),) * 100), False, False),
    ("team", YES, facts(controllers=DAEMON, limits=(MANY,)), True, True),
    ("gpu-operator", YES, facts(controllers=DAEMON, limits=(GPUS,)), False, False),
    ("gpu-operator", YES, facts(limits=(GPUS,)), False, False),
    # One that runs without having been admitted counts, and no more.
    ("team", YES, facts(controllers=DAEMON, limits=(GPUS,), bound=True), False, False),
    ("team", YES, facts(controllers=DAEMON, limits=(GPUS,), bound=True, annotations=RECORD), True, True),
    ("team", YES, facts(bound=True), True, True),
    # One that has been taken in stays governed, whoever adopts it and whatever its namespace is labelled.
    ("team", YES, facts(controllers=DAEMON, gates=(GATE,)), True, True),
    ("batch", {}, facts(controllers=DAEMON, annotations={"bursar.dev/admission": "{}"}), True, True),
    ("batch", {}, facts(gates=(GATE,)), True, True),
    ("kube-system", YES, facts(gates=(GATE,)), False, False),
]


@pytest.mark.parametrize(("namespace", "labels", "pod", "usually", "everywhere"), CASES)
def test_who_is_governed(
    namespace: str, labels: dict[str, str], pod: PodFacts, usually: bool, everywhere: bool
) -> None:
    assert Governed(OPTIONS).holds(namespace, labels, pod) is usually
    assert Governed(EVERYWHERE).holds(namespace, labels, pod) is everywhere


# CEL against Python


@cache
def compiled(expression: str) -> cel.Program:
    return cel.compile(expression)


def judged(expression: str, body: dict[str, Any]) -> object:
    return compiled(expression).execute({"object": body})


ASKS_FOR_A_FRACTION, NAMES_A_QUOTA = MARKING
TERMS = [
    ASKS_FOR_DEVICES,
    EXEMPT,
    MARKED,
    TAKEN,
    ASKS_FOR_A_FRACTION,
    NAMES_A_QUOTA,
    OWN_ANNOTATIONS,
    QUOTA_ANNOTATIONS,
    quota_labels(OPTIONS),
]


@pytest.mark.parametrize("term", TERMS)
@given(body=pods)
@settings(max_examples=150)
def test_a_term_says_the_same_in_cel_and_in_python(term: Predicate, body: dict[str, Any]) -> None:
    assert judged(term.cel("object"), body) is term.holds(facts_of(body))


@given(
    body=pods,
    name=st.sampled_from(["team", "batch", "kube-system", "bursar-system", "gpu-operator"]),
    labelled=st.booleans(),
)
@settings(max_examples=300)
def test_selectors_and_cel_of_all_arms_say_the_same_as_the_predicate(
    body: dict[str, Any], name: str, labelled: bool
) -> None:
    labels = {NAMESPACE_NAME: name, **(YES if labelled else {})}
    for options in (OPTIONS, EVERYWHERE, AdmissionOptions(everywhere=True)):
        chosen = [arm for arm in arms(options) if selected(arm.namespaces.selector(), labels)]
        assert len(chosen) == (0 if name in options.never else 1)
        by_server = any(judged(arm.governs().cel("object"), body) for arm in chosen)
        assert by_server is Governed(options).holds(name, labels, facts_of(body))


def selected(selector: dict[str, Any], labels: dict[str, str]) -> bool:
    """A label selector as Kubernetes reads it."""
    for expression in selector["matchExpressions"]:
        inside = labels.get(expression["key"]) in expression["values"]
        if inside is not (expression["operator"] == "In"):
            return False
    return True


@given(body=pods)
def test_spared_are_those_that_would_be_governed_but_for_what_they_say_they_are(body: dict[str, Any]) -> None:
    pod = facts_of(body)
    for arm in arms(EVERYWHERE):
        reached = arm.reaches is None or arm.reaches.holds(pod)
        assert arm.spares().holds(pod) is (reached and not arm.governs().holds(pod))


@given(body=pods)
def test_a_fraction_is_asked_for_exactly_by_workers(body: dict[str, Any]) -> None:
    pod = facts_of(body)
    assert ASKS_FOR_A_FRACTION.holds(pod) is worker.is_worker(pod.labels, pod.annotations)


def test_every_annotation_of_the_contract_is_guarded() -> None:
    known = {value for value in vars(worker).values() if isinstance(value, str) and value.startswith(worker.DOMAIN)}
    guarded = {name for name in known if OWN_ANNOTATIONS.names(name) or QUOTA_ANNOTATIONS.names(name)}
    assert known - guarded == {worker.DOMAIN, worker.COMPONENT, worker.QOS}  # the last one is only shown


def test_what_makes_a_worker_is_what_the_contract_says() -> None:
    known = {value for value in vars(worker).values() if isinstance(value, str) and value.startswith(worker.DOMAIN)}
    for name in known - {worker.DOMAIN, worker.COMPONENT}:
        assert ASKS_FOR_A_FRACTION.holds(facts(annotations={name: "1"})) is worker.is_worker({}, {name: "1"})


def test_labels_of_a_selector_are_guarded_when_they_are_named() -> None:
    assert not quota_labels(OPTIONS).names("team")
    assert quota_labels(replace(OPTIONS, more_labels=("team",))).names("team")


def test_names_that_would_break_out_of_an_expression_are_refused() -> None:
    with pytest.raises(ValueError, match="cannot stand in a CEL expression"):
        quoted("a' || true || '")
    with pytest.raises(ValueError, match="cannot stand"):
        Marked("labels", ("a\\",)).cel("object")


def test_namespaces_can_be_named() -> None:
    assert Namespaces(("a",), among=("a", "b")).holds("b", {})
    assert not Namespaces(("a",), among=("a", "b")).holds("a", {})
    assert not Namespaces(("a",), among=("a", "b")).holds("c", {})
