"""An object that got past the webhook and makes no sense: it says so itself, and what was in force stays in force."""

import json
from functools import partial

import pytest

from tests.cluster.controlplane import ControlPlane
from tests.cluster.installing import Replicas, replicas
from tests.cluster.robustness.scene import Body, Scene
from tests.cluster.waiting import eventually

CONFIGURATION: Body = {
    "apiVersion": "bursar.dev/v1alpha1",
    "kind": "Configuration",
    "metadata": {"name": "default"},
    "spec": {"crossquota": {"gpu-resource-names": "nvidia.com/gpu", "quota.cpu": "many"}},
}
QUOTA: Body = {
    "apiVersion": "scheduling.sigs.k8s.io/v1alpha1",
    "kind": "ElasticQuota",
    "metadata": {"name": "orphan", "labels": {"quota.scheduling.koordinator.sh/parent": "nobody"}},
    "spec": {"min": {"cpu": "1"}, "max": {"cpu": "1"}},
}


@pytest.mark.parametrize(
    ("given", "problem", "cured"),
    [
        (CONFIGURATION, "quota.cpu", {"spec": {"crossquota": {"quota.cpu": "32"}}}),
        (QUOTA, "nobody", {"metadata": {"labels": {"quota.scheduling.koordinator.sh/parent": None}}}),
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


_MESSAGE = '{.status.conditions[?(@.type=="Invalid")].message}'


def _invalid(running: Replicas) -> float:
    return running.leader().metrics()["bursar_objects_invalid"]
