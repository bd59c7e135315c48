"""The definitions of kinds on a real API server: accepted, every rule both ways, columns, the originals' manifests."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from tests.cluster.controlplane import ControlPlane
from tests.cluster.controlplane.api import ApiError
from tests.cluster.installation import CRDS, ROOT, await_definitions
from tests.cluster.waiting import eventually
from tests.objects.crd_cases import GOOD, PYTHON_ONLY, RULES, SCHEMA, SECTIONS, SERVER_ONLY, Case, Manifest

NAMES = sorted(path.stem for path in CRDS.glob("*.yaml"))
GROUPS = {name.partition(".")[2] for name in NAMES}
CLUSTER_SCOPED = {"GPU", "GPUPool", "SchedulingConfigTemplate", "QuotaTree", "Configuration"}


@pytest.fixture(scope="module")
def server(plane: ControlPlane) -> Iterator[ControlPlane]:
    """The shared plane with all definitions, which are taken away again."""
    plane.kubectl("apply", "--server-side", "-f", str(CRDS))
    await_definitions(plane)
    yield plane
    plane.kubectl("delete", "--wait=true", "-f", str(CRDS))


@pytest.fixture(scope="module")
def plurals(server: ControlPlane) -> dict[str, str]:
    found = json.loads(server.kubectl("get", "crd", "-o", "json"))["items"]
    return {f"{crd['spec']['group']} {crd['spec']['names']['kind']}": crd["spec"]["names"]["plural"] for crd in found}


def path_of(manifest: Manifest, plurals: dict[str, str], namespace: str = "default") -> str:
    group = manifest["apiVersion"].partition("/")[0]
    inside = "" if manifest["kind"] in CLUSTER_SCOPED else f"/namespaces/{namespace}"
    plural = plurals[f"{group} {manifest['kind']}"]
    return f"/apis/{manifest['apiVersion']}{inside}/{plural}"


def created_in_a_dry_run(server: ControlPlane, manifest: Manifest, plurals: dict[str, str]) -> None:
    server.api().create(path_of(manifest, plurals) + "?dryRun=All&fieldValidation=Strict", manifest)


def named(case: Case) -> str:
    return f"{case.kind} {case.spec}"[:60]


def apply(server: ControlPlane, *manifests: Manifest, namespace: str = "default") -> str:
    return server.kubectl("apply", "-n", namespace, "-f", "-", input=yaml.safe_dump_all(manifests))


@pytest.mark.parametrize("name", NAMES)
def test_definitions_are_in_force(server: ControlPlane, name: str) -> None:
    status = json.loads(server.kubectl("get", "crd", name, "-o", "json"))["status"]
    conditions = {condition["type"]: condition["status"] for condition in status["conditions"]}
    assert conditions.pop("KubernetesAPIApprovalPolicyConformant", "True") == "True"
    assert conditions == {"NamesAccepted": "True", "Established": "True"}


@pytest.mark.parametrize("case", GOOD + PYTHON_ONLY, ids=named)
def test_the_server_accepts(server: ControlPlane, plurals: dict[str, str], case: Case) -> None:
    created_in_a_dry_run(server, case.manifest(), plurals)


@pytest.mark.parametrize("case", RULES + SCHEMA + SECTIONS + SERVER_ONLY, ids=named)
def test_the_server_refuses(server: ControlPlane, plurals: dict[str, str], case: Case) -> None:
    with pytest.raises(ApiError) as caught:
        created_in_a_dry_run(server, case.manifest(), plurals)
    assert case.message in str(caught.value)


def test_the_configuration_has_one_name(server: ControlPlane, plurals: dict[str, str]) -> None:
    with pytest.raises(ApiError, match="there is one Configuration"):
        created_in_a_dry_run(server, Case("Configuration", "").manifest("other"), plurals)


def test_a_category_lists_all_kinds(server: ControlPlane) -> None:
    listed = server.kubectl("api-resources", "--categories=bursar", "--no-headers", "-o", "name").split()
    assert sorted(listed) == NAMES


def test_short_names_are_taken(server: ControlPlane) -> None:
    for name in NAMES:
        names = yaml.safe_load((CRDS / f"{name}.yaml").read_text())["spec"]["names"]
        for short in names.get("shortNames", []):
            told = server.kubectl("get", f"{short}.{name.partition('.')[2]}", "-A", "-o", "json")
            assert json.loads(told)["kind"] == "List"


STATUSES: list[tuple[Manifest, Manifest, list[str], list[str]]] = [
    (
        Case("GPUResourceQuota", "{total: {requests: {tflops: 100, vram: 80Gi}, maxWorkers: 5}}").manifest(),
        {
            "used": {"requests": {"tflops": "30", "vram": "24Gi"}, "limits": {"tflops": "60"}, "workers": 2},
            "availablePercent": {"requests.tflops": "70.00", "workers": "60.00"},
            "conditions": [
                {"type": "Ready", "status": "True", "reason": "QuotaReady", "message": "the quota is in force"},
                {"type": "Exceeded", "status": "False", "reason": "QuotaNotExceeded", "message": ""},
            ],
        },
        ["NAME", "TFLOPS", "VRAM", "WORKERS", "EXCEEDED", "READY", "AGE"],
        ["case", "30", "24Gi", "2", "False", "True"],
    ),
    (
        Case("ElasticQuota", "{min: {cpu: 2}, max: {cpu: 10}}").manifest(),
        {"used": {"cpu": "1"}, "reserved": {"cpu": "3"}, "borrowed": {"cpu": "1"}},
        ["NAME", "USED", "MIN", "MAX", "AGE"],
        ["case", '{"cpu":"1"}', '{"cpu":2}', '{"cpu":10}'],
    ),
    (
        Case("CompositeElasticQuota", "{namespaces: [a], min: {cpu: 2}}").manifest(),
        {"used": {"cpu": "1"}},
        ["NAME", "USED", "MIN", "MAX", "AGE"],
        ["case", '{"cpu":"1"}', '{"cpu":2}'],
    ),
    (
        Case("PoolQuota", "{max: {cpu: 10}}").manifest()
        | {
            "metadata": {
                "name": "case",
                "labels": {"quota.scheduling.koordinator.sh/parent": "top"},
                "annotations": {"quota.scheduling.koordinator.sh/runtime": '{"cpu":"7"}'},
            }
        },
        {"used": {"cpu": "1"}},
        ["NAME", "PARENT", "USED", "RUNTIME", "MAX", "AGE"],
        ["case", "top", '{"cpu":"1"}', '{"cpu":"7"}', '{"cpu":10}'],
    ),
    (
        Case("ElasticQuotaProfile", "{quotaName: root-a, nodeSelector: {}}").manifest(),
        {"nodes": 3, "total": {"cpu": "9"}, "treeId": "17"},
        ["NAME", "ROOT", "QUOTA", "TREE", "NODES", "AGE"],
        ["case", "root-a", "17", "3"],
    ),
    (
        Case("GPU", "").manifest(),
        {
            "phase": "Running",
            "gpuModel": "A100",
            "capacity": {"tflops": "312", "vram": "80Gi"},
            "available": {"tflops": "12", "vram": "1Gi"},
            "runningApps": [{"namespace": "a", "name": "w", "count": 1, "pods": [{"name": "w-0", "uid": "1"}]}],
            "nodeSelector": {"kubernetes.io/hostname": "n1"},
            "theirs": {"stays": True},
        },
        ["NAME", "PHASE", "MODEL", "TFLOPS", "VRAM", "FREE", "TFLOPS", "FREE", "VRAM", "AGE"],
        ["case", "Running", "A100", "312", "80Gi", "12", "1Gi"],
    ),
    (
        Case("GPUPool", "{}").manifest(),
        {"totalNodes": 1, "totalGPUs": 8, "totalTFlops": "800", "totalVRAM": "640Gi", "availableTFlops": "1"},
        ["NAME", "NODES", "GPUS", "TFLOPS", "VRAM", "FREE", "TFLOPS", "FREE", "VRAM", "AGE"],
        ["case", "1", "8", "800", "640Gi", "1"],
    ),
    (
        Case("QuotaTree", "{nodes: {root: {quota: {cpu: 10}}}}").manifest(),
        {
            "nodes": {"root": {"used": {"cpu": "1"}, "claims": 1, "borrowing": ["a/p"]}},
            "conditions": [{"type": "Ready", "status": "True"}, {"type": "Exceeded", "status": "False"}],
            "warnings": [],
        },
        ["NAME", "READY", "EXCEEDED", "AGE"],
        ["case", "True", "False"],
    ),
    (
        Case("TensorFusionWorkload", "{replicas: 3, gpuCount: 2}").manifest(),
        {"theirs": {"stays": True}},
        ["NAME", "REPLICAS", "GPUS", "AGE"],
        ["case", "3", "2"],
    ),
    (
        Case("WorkloadProfile", "{replicas: 3, gpuCount: 2}").manifest(),
        {"theirs": {"stays": True}},
        ["NAME", "REPLICAS", "GPUS", "AGE"],
        ["case", "3", "2"],
    ),
    (
        Case("SchedulingConfigTemplate", "{placement: {mode: CompactFirst}}").manifest(),
        {"theirs": {"stays": True}},
        ["NAME", "MODE", "AGE"],
        ["case", "CompactFirst"],
    ),
    (
        Case("Configuration", "{}").manifest(),
        {"conditions": [{"type": "Ready", "status": "True"}]},
        ["NAME", "AGE"],
        ["default"],
    ),
]


def test_every_kind_is_listed_below() -> None:
    listed = {f"{manifest['apiVersion'].partition('/')[0]} {manifest['kind']}" for manifest, *_ in STATUSES}
    assert len(listed) == len(NAMES)


@pytest.mark.parametrize(("manifest", "status", "header", "row"), STATUSES, ids=[m["kind"] for m, *_ in STATUSES])
def test_listings_show_the_status(
    server: ControlPlane,
    plurals: dict[str, str],
    manifest: Manifest,
    status: Manifest,
    header: list[str],
    row: list[str],
) -> None:
    namespace = server.create_namespace()
    try:
        path = path_of(manifest, plurals, namespace)
        server.api().create(f"{path}?fieldValidation=Strict", manifest)
        # Strict: a field that the schema does not know would be an error, not a silent loss.
        name = manifest["metadata"]["name"]
        server.api().patch(f"{path}/{name}/status?fieldValidation=Strict", {"status": status})
        kind = f"{path.rpartition('/')[2]}.{manifest['apiVersion'].partition('/')[0]}"
        scope = [] if manifest["kind"] in CLUSTER_SCOPED else ["-n", namespace]
        lines = server.kubectl("get", kind, *scope).splitlines()
        assert lines[0].split() == header
        found = lines[1].split()
        assert [cell for cell in found if cell != "<none>"][: len(row)] == row
        assert server.kubectl("get", kind, *scope, "-o", "wide").splitlines()[0].split() == all_columns(kind)
        assert server.api().get(f"{path}/{name}")["status"] == status
        server.api().delete(f"{path}/{name}")
    finally:
        server.delete_namespace(namespace)


def all_columns(kind: str) -> list[str]:
    """The words of a wide listing's header."""
    version = yaml.safe_load((CRDS / f"{kind}.yaml").read_text())["spec"]["versions"][0]
    names = ["name", *(column["name"] for column in version["additionalPrinterColumns"])]
    return " ".join(names).upper().split()


def of_the_examples() -> list[Any]:
    """Every manifest of the examples that is of a kind of ours, with the place where it stands."""
    found: list[Any] = []
    for file in sorted((ROOT / "examples").rglob("*.yaml")):
        scenario = yaml.safe_load(file.read_text())
        manifests = scenario["objects"] + [given for step in scenario["steps"] for given in step.get("apply", [])]
        ours = [given for given in manifests if given.get("apiVersion", "").partition("/")[0] in GROUPS]
        found.extend(pytest.param(given, id=f"{file.stem} {index}") for index, given in enumerate(ours))
    return found


def of_the_originals() -> list[Any]:
    documents = yaml.safe_load_all((ROOT / "tests" / "cluster" / "originals.yaml").read_text())
    return [pytest.param(document, id=document["metadata"]["name"]) for document in documents]


@pytest.mark.parametrize("manifest", of_the_examples() + of_the_originals())
def test_manifests_apply_unchanged(server: ControlPlane, plurals: dict[str, str], manifest: Manifest) -> None:
    metadata = {key: value for key, value in manifest["metadata"].items() if key != "namespace"}
    created_in_a_dry_run(server, manifest | {"metadata": metadata}, plurals)


def test_what_is_written_to_the_status_by_others_is_dropped(server: ControlPlane, namespace: str) -> None:
    manifest = Case("ElasticQuota", "{min: {cpu: 2}}").manifest() | {"status": {"used": {"cpu": "5"}}}
    apply(server, manifest, namespace=namespace)
    found = json.loads(server.kubectl("get", "eq.n8s.nebuly.ai", "case", "-n", namespace, "-o", "json"))
    assert "status" not in found


def test_explain_tells_what_a_field_means(server: ControlPlane) -> None:
    def told() -> bool:
        """The server publishes its schemas some time after it serves the kinds."""
        text = server.kubectl("explain", "compositeelasticquotas.spec.takeover", check=False)
        return "Replace the ElasticQuotas of these namespaces." in text

    eventually(told, "the field is explained")
