"""The condition of a guard lets through exactly the calls that all of its checks let through.

Conditions do not know variables, so they are written out there; here both readings judge the same random calls. How the
API server takes them is tested on a real one.
"""

import re
from functools import cache
from typing import Any

import cel
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bursar.kube.admission.policies import NODES_GROUP, guards, policies
from bursar.kube.admission.policy_objects import Guard, PolicyCheck, rule
from bursar.kube.admission.predicate import MOST, TERM_ANNOTATION, AdmissionOptions, Namespaces
from tests.kube.admission.random_pods import pods

EVERYWHERE = AdmissionOptions(everywhere=True, exempt_namespaces=("batch",), more_labels=("app",))
OPTIONS = AdmissionOptions()
POLICIES = {
    one["metadata"]["name"]: one["spec"]
    for options in (EVERYWHERE, OPTIONS)
    for one in guards(options)
    if one["kind"] == "ValidatingAdmissionPolicy"
}
# Growth is compared by a library of Kubernetes that Python's CEL does not have.
JUDGED = sorted(name for name in POLICIES if not name.startswith("bursar-guard-resize-"))

_users = st.sampled_from([*OPTIONS.accounts, *OPTIONS.schedulers, *OPTIONS.daemon_set_accounts, "alice", "node"])
_groups = st.sampled_from([None, [], [NODES_GROUP], ["system:masters"]])
_terms = st.sampled_from([{}, {"annotations": {}}, *({"annotations": {TERM_ANNOTATION: term}} for term in "12")])


@st.composite
def calls(draw: st.DrawFn) -> dict[str, Any]:
    """A call about a pod: often one that changes little, by somebody who may or may not."""
    before, after = draw(pods), draw(pods)
    for part in ("labels", "annotations", "ownerReferences"):
        if draw(st.booleans()) and part in before["metadata"]:
            after["metadata"][part] = before["metadata"][part]
    if draw(st.integers(0, 9)) == 0:
        _crowd(draw(st.sampled_from([before, after])), draw(st.sampled_from([MOST, MOST + 1])))
    if draw(st.booleans()):
        after["spec"]["nodeName"] = draw(st.sampled_from(["", "somewhere"]))
    if draw(st.booleans()):
        after["spec"]["schedulerName"] = draw(st.sampled_from([*OPTIONS.scheduler_names, OPTIONS.cluster_scheduler]))
    if draw(st.booleans()):
        marks = after["metadata"].get("annotations") or {}
        after["metadata"]["annotations"] = {**marks, TERM_ANNOTATION: draw(st.sampled_from(["0", "1", "2"]))}
    user: dict[str, Any] = {"username": draw(_users)}
    groups = draw(_groups)
    if groups is not None:
        user["groups"] = groups
    return {"object": after, "oldObject": before, "request": {"userInfo": user}, "params": {"metadata": draw(_terms)}}


def _crowd(pod: dict[str, Any], count: int) -> None:
    pod["spec"]["schedulingGates"] = [{"name": f"example.com/{number}"} for number in range(count)]
    owner = {"apiVersion": "v1", "kind": "Node", "name": "a"}
    pod["metadata"]["ownerReferences"] = [{**owner, "uid": str(number)} for number in range(count)]


@cache
def compiled(expression: str) -> cel.Program:
    return cel.compile(expression)


def passes(policy: dict[str, Any], call: dict[str, Any]) -> bool:
    """Whether all checks hold, with the variables evaluated first, each with those before it."""
    variables: dict[str, Any] = {}
    for one in policy.get("variables", ()):
        variables[one["name"]] = compiled(one["expression"]).execute({**call, "variables": variables})
    known = {**call, "variables": variables}
    return all(compiled(one["expression"]).execute(known) for one in policy["validations"])


def offends(policy: dict[str, Any], call: dict[str, Any]) -> bool:
    return all(compiled(one["expression"]).execute(call) for one in policy["matchConditions"])


@pytest.mark.parametrize("name", JUDGED)
@given(call=calls())
@settings(max_examples=200)
def test_the_condition_is_that_a_check_fails(name: str, call: dict[str, Any]) -> None:
    assert offends(POLICIES[name], call) is not passes(POLICIES[name], call)


@pytest.mark.parametrize("name", sorted(POLICIES))
def test_every_check_stands_in_the_condition(name: str) -> None:
    """Also where Python cannot judge: without its variables a check is part of the condition, letter by letter."""
    policy = POLICIES[name]
    condition = policy["matchConditions"][-1]
    assert condition["name"] == "offends"
    assert "variables." not in condition["expression"]
    for check in policy["validations"]:
        if "variables." not in check["expression"]:
            assert f"({check['expression']})" in condition["expression"]


# Loops, which `terms` says how to write

_LOOP = re.compile(r"(\S+)\.(exists|exists_one|all|map|filter)\((\w), (\S+ \S+)")


@pytest.mark.parametrize("options", [OPTIONS, EVERYWHERE])
def test_marks_are_looked_through_by_filters_that_cost_little(options: AdmissionOptions) -> None:
    found = [
        one.get("jsonPatch", one)["expression"]
        for policy in policies(options)
        for part in ("matchConditions", "variables", "validations", "mutations")
        for one in policy["spec"].get(part, ())
    ]
    loops = [loop for expression in found for loop in _LOOP.findall(expression) if "resources" not in loop[0]]
    assert {"filter", "exists"} <= {macro for _, macro, _, _ in loops}
    for over, macro, name, test in loops:
        if over.endswith(("schedulingGates", "ownerReferences", "']")):
            assert macro == "exists"
        elif not over.endswith("ontainers"):
            assert (macro, test.lstrip("(")) == ("filter", f"{name} in"), over


@pytest.mark.parametrize("part", ["spec.schedulingGates", "metadata.ownerReferences"])
@pytest.mark.parametrize("options", [OPTIONS, EVERYWHERE])
def test_lists_are_looked_through_when_they_are_short(options: AdmissionOptions, part: str) -> None:
    text = repr(policies(options))
    loops = re.findall(rf"(.{{60}})bject\.{part}\.exists", text)
    assert loops
    for before in loops:
        assert re.search(rf"bject\.{part}\.size\(\) (<=|>) {MOST} ", before), before


def test_variables_are_written_out_whole() -> None:
    """One that is made of others, and one whose name begins like another's."""
    checks = (PolicyCheck("variables.a || variables.ab", "m"), PolicyCheck("!variables.c", "m"))
    variables = {"a": "x == 1", "ab": "x == 2", "c": "variables.a && y"}
    (policy, _) = Guard("g", Namespaces(()), (rule(["CREATE"], "pods"),), checks, variables=variables).objects()
    (condition,) = policy["spec"]["matchConditions"]
    assert condition["expression"] == "!(((x == 1) || (x == 2)) && (!((x == 1) && y)))"
