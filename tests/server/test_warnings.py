"""What is probably not meant so is answered with a warning, and done nevertheless."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bursar.objects.known_fields import unknown_fields
from tests.server.live import Live, ManualClock, live, node, pod, quota, text


@pytest.fixture(scope="module")
def bed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    with live(tmp_path_factory.mktemp("warnings") / "bursar.db", clock=ManualClock()) as bed:
        bed.give(node("n1"), quota("a", 2))
        yield bed


def container(**fields: object) -> dict[str, Any]:
    return {**pod("a", "p"), "spec": {"containers": [{"name": "main", **fields}]}}


@pytest.mark.parametrize(
    ("body", "warnings"),
    [
        (pod("a", "p"), []),
        (container(resources={"limit": {"nvidia.com/gpu": 1}}),
         ['unknown field "spec.containers[0].resources.limit"; did you mean limits?']),
        (container(img="x"), ['unknown field "spec.containers[0].img"; did you mean image?']),
        (container(env=[{"name": "A", "valu": "1"}]),
         ['unknown field "spec.containers[0].env[0].valu"; did you mean value?']),
        ({**pod("a", "p"), "spce": {}}, ['unknown field "spce"; did you mean spec?']),
        ({**pod("a", "p"), "metadata": {"name": "p", "lables": {}}},
         ['unknown field "metadata.lables"; did you mean labels?']),
        ({**pod("a", "p"), "spec": {"zzz": 1}}, ['unknown field "spec.zzz"']),
        ({**node("n"), "spec": {"unscheduleable": True}},
         ['unknown field "spec.unscheduleable"; did you mean unschedulable?']),
        (quota("a", 1), []),
        ({"apiVersion": "other.dev/v1", "kind": "Pod", "spce": {}}, []),
        ({**pod("a", "p"), "spec": "text"}, []),
        ({**pod("a", "p"), "spec": {"containers": "text"}}, []),
    ],
)  # fmt: skip
def test_fields_that_kubernetes_does_not_have(body: dict[str, Any], warnings: list[str]) -> None:
    assert unknown_fields(body) == warnings


def test_a_whole_pod_of_kubernetes_is_not_warned_about() -> None:
    body = {
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "p", "annotations": {"a": "b"}, "finalizers": [], "ownerReferences": [
            {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "u", "controller": True}]},
        "spec": {
            "restartPolicy": "Never", "serviceAccountName": "s", "dnsPolicy": "None", "dnsConfig": {"whatever": 1},
            "volumes": [{"name": "v", "emptyDir": {"medium": "Memory"}}, {"name": "c", "configMap": {"name": "c"}}],
            "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": []}},
            "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule",
                                           "labelSelector": {"matchLabels": {"a": "b"}}}],
            "containers": [{
                "name": "m", "image": "i", "command": ["c"], "args": [], "ports": [{"containerPort": 1}],
                "env": [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "x"}}}],
                "volumeMounts": [{"name": "v", "mountPath": "/v", "readOnly": True}],
                "livenessProbe": {"httpGet": {"path": "/", "port": 1}, "periodSeconds": 5},
                "securityContext": {"runAsUser": 1}, "resources": {"limits": {"cpu": 1}, "claims": [{"name": "x"}]}}],
        },
        "status": {"anything": 1},
    }  # fmt: skip
    assert unknown_fields(body) == []


def test_the_answer_of_an_apply_warns(bed: Live) -> None:
    change = bed.give(container(resources={"limit": {"nvidia.com/gpu": 1}}))
    assert change.warnings == ['Pod a/p: unknown field "spec.containers[0].resources.limit"; did you mean limits?']
    assert [one.result for one in change.objects] == ["created"]


def test_resources_that_no_node_has(bed: Live) -> None:
    misspelt = text({**container(resources={"limits": {"nvidia.com/gpus": 1}}), "metadata": {"name": "q"}})
    said = ["Pod q: no node has nvidia.com/gpus: did you mean nvidia.com/gpu?"]
    assert bed.client.plan(misspelt).warnings == said
    assert bed.client.what_if(misspelt).warnings == said
    assert bed.client.apply(misspelt, dry_run=True).warnings == said


def test_the_command_line_prints_warnings_beside_its_output(bed: Live, tmp_path: Path) -> None:
    from click.testing import CliRunner

    from bursar.cli.main import cli

    file = tmp_path / "pod.yaml"
    file.write_bytes(text(container(resources={"limit": {"nvidia.com/gpu": 1}})))
    env = {"BURSAR_SERVER": bed.address, "BURSAR_CONFIG": "/nowhere"}
    result = CliRunner().invoke(cli, ["apply", "--dry-run", "-f", str(file)], env=env)
    assert result.stderr.startswith("Warning: Pod a/p: unknown field ")
    assert "Warning" not in result.stdout
