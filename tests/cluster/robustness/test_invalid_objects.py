"""An object that got past the webhook and makes no sense: it says so itself, and what was in force stays in force."""

import json
from functools import partial

import pytest

from tests.cluster.controlplane import ControlPlane
from tests.cluster.installation import Replicas, replicas
from tests.cluster.robustness.scene import GPU, Body, Scene
from tests.cluster.waiting import eventually

PARENT = "quota.scheduling.koordinator.sh/parent"
CONFIGURATION: Body = {
    "apiVersion": "bursar.dev/v1alpha1",
    "kind": "Configuration",
    "metadata": {"name": "default"},
    "spec": {"crossquota": {"gpu-resource-names": "nvidia.com/gpu", "quota.cpu": "many"}},
}
QUOTA: Body = {
    "apiVersion": "scheduling.sigs.k8s.io/v1alpha1",
    "kind": "ElasticQuota",
    "metadata": {"name": "orphan", "labels": {PARENT: "nobody"}},
    "spec": {"min": {"cpu": "1"}, "max": {"cpu": "1"}},
}


@pytest.mark.parametrize(
    ("given", "problem", "cured"),
    [
        (CONFIGURATION, "quota.cpu", {"spec": {"crossquota": {"quota.cpu": "32"}}}),
        (QUOTA, "nobody", {"metadata": {"labels": {PARENT: None}}}),
    ],
    ids=["configuration", "quota"],
)
def test_what_is_wrong_says_so_until_it_is_right(
    plane: ControlPlane, scene: Scene, given: Body, problem: str, cured: Body
) -> None:
    what = (f"{given['kind'].lower()}s.{given['apiVersion'].partition('/')[0]}", given["metadata"]["name"])
    there = partial(plane.kubectl, "-n", scene.namespace)
    with replicas(plane) as running:
        there("apply", "-f", "-", input=json.dumps(given))
        try:
            eventually(lambda: problem in there("get", *what, "-o", f"jsonpath={_MESSAGE}"), "its condition to say so")
            assert _invalid(running) == 1
            there("patch", *what, "--type=merge", "-p", json.dumps(cured))
            eventually(lambda: not there("get", *what, "-o", f"jsonpath={_MESSAGE}"), "its condition to go")
            assert _invalid(running) == 0
        finally:
            there("delete", *what)


def test_a_quota_that_turns_wrong_goes_on_limiting_as_it_did(plane: ControlPlane, scene: Scene) -> None:
    """The same change raises it: nobody starts for that before it is right."""
    kind, name = "elasticquotas.scheduling.sigs.k8s.io", scene.namespace  # it governs the namespace that has its name
    there = partial(plane.kubectl, "-n", scene.namespace)
    quota = {**QUOTA, "metadata": {"name": name}, "spec": {"min": {GPU: "1"}, "max": {GPU: "1"}}}
    scene.nodes(1)
    with replicas(plane) as running:
        there("apply", "-f", "-", input=json.dumps(quota))
        try:
            scene.wait_running(scene.pod("first"))
            change = {"metadata": {"labels": {PARENT: "nobody"}}, "spec": {"max": {GPU: "2"}}}
            there("patch", kind, name, "--type=merge", "-p", json.dumps(change))
            eventually(lambda: _invalid(running) == 1, "it is found wrong")
            scene.pod("second")
            scene.wait_told("second", "pools.")
            assert scene.gated("second")
            there("patch", kind, name, "--type=merge", "-p", json.dumps({"metadata": {"labels": {PARENT: None}}}))
            scene.wait_running("second")
        finally:
            there("delete", kind, name)


_MESSAGE = '{.status.conditions[?(@.type=="Invalid")].message}'


def _invalid(running: Replicas) -> float:
    return running.leader().metrics()["bursar_objects_invalid"]
