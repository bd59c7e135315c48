"""The generated files: as committed, complete, and closed when something fails."""

import re
from pathlib import Path
from typing import Any

import cel
import pytest
import yaml
from click.testing import CliRunner

from bursar.kube.admission.__main__ import main
from bursar.kube.admission.manifests import files, quota_hooks, quota_kinds
from bursar.kube.admission.predicate import NAMESPACE_NAME, AdmissionOptions
from bursar.policies.plugin import default_registry

FOLDER = Path(__file__).resolve().parents[3] / "deploy" / "admission"
FILES = files(AdmissionOptions())
FOUND = [(name, one) for name, text in FILES.items() for one in yaml.safe_load_all(text)]
OBJECTS = [pytest.param(one, id=f"{name}:{one['kind']}:{one['metadata']['name']}") for name, one in FOUND]


@pytest.mark.parametrize("name", FILES)
def test_committed_files_are_what_would_be_generated(name: str) -> None:
    assert (FOLDER / name).read_text() == FILES[name], "run python -m bursar.kube.admission"


def test_nothing_else_is_committed() -> None:
    assert {str(path.relative_to(FOLDER)) for path in FOLDER.rglob("*.yaml")} == set(FILES)


@pytest.mark.parametrize("one", OBJECTS)
def test_everything_fails_closed_and_spares_the_system(one: dict[str, Any]) -> None:
    without = {"key": NAMESPACE_NAME, "operator": "NotIn", "values": ["kube-system", "bursar-system", "gpu-operator"]}
    if one["kind"].endswith("Binding"):
        assert one["spec"].get("validationActions", ["Deny"]) == ["Deny"]
        assert without in one["spec"]["matchResources"]["namespaceSelector"]["matchExpressions"]
        return
    for rule_set in one.get("webhooks", [one.get("spec")]):
        assert rule_set["failurePolicy"] == "Fail"
    for hook in one.get("webhooks", ()):
        assert without in hook["namespaceSelector"]["matchExpressions"]


@pytest.mark.parametrize("one", OBJECTS)
def test_policies_do_not_select_by_labels(one: dict[str, Any]) -> None:
    """That would cost every call about anything; their bindings do."""
    if one["kind"].endswith("Policy"):
        assert set(one["spec"]["matchConstraints"]) == {"matchPolicy", "resourceRules"}


@pytest.mark.parametrize("one", OBJECTS)
def test_every_policy_has_its_binding(one: dict[str, Any]) -> None:
    names = [(other["kind"], other["metadata"]["name"]) for _, other in FOUND]
    if one["kind"].endswith("Policy"):
        assert (f"{one['kind']}Binding", one["metadata"]["name"]) in names


@pytest.mark.parametrize("one", OBJECTS)
def test_messages_are_short(one: dict[str, Any]) -> None:
    for check in one.get("spec", {}).get("validations", ()):
        assert 20 < len(check["message"]) <= 120


@pytest.mark.parametrize("one", OBJECTS)
def test_conditions_are_cel(one: dict[str, Any]) -> None:
    for holder in [one.get("spec", {}), *one.get("webhooks", ())]:
        for condition in holder.get("matchConditions", ()):
            cel.compile(condition["expression"])
        for mutation in holder.get("mutations", ()):
            patches = mutation["jsonPatch"]["expression"].replace("JSONPatch{", "{")  # a kind that only servers know
            cel.compile(re.sub(r"\b(op|path|value): ", r"'\1': ", patches))


def test_webhooks_are_about_quota_kinds_and_quick() -> None:
    patience: list[int] = []
    for configuration in quota_hooks(AdmissionOptions(), default_registry()):
        for hook in configuration["webhooks"]:
            removals = {operation for rule in hook["rules"] for operation in rule["operations"]} == {"DELETE"}
            assert hook["timeoutSeconds"] == (30 if removals else 5), "who looks through all pods needs time"
            patience.append(hook["timeoutSeconds"])
            assert hook["sideEffects"] == "None"
            assert "pods" not in [name for rule in hook["rules"] for name in rule["resources"]]
            assert "*" not in str(hook["rules"])
    assert patience == [5, 5, 30]


def test_the_kinds_that_are_judged() -> None:
    assert [kind.name for kind in quota_kinds(default_registry())] == [
        "CompositeElasticQuota.n8s.nebuly.ai",
        "Configuration.bursar.dev",
        "ElasticQuota.n8s.nebuly.ai",
        "ElasticQuota.scheduling.sigs.k8s.io",
        "ElasticQuotaProfile.quota.koordinator.sh",
        "GPUResourceQuota.tensor-fusion.ai",
        "QuotaTree.bursar.dev",
    ]


def test_names_can_be_chosen(tmp_path: Path) -> None:
    arguments = ["--out", str(tmp_path), "--namespace", "quota", "--account", "system:serviceaccount:quota:b"]
    done = CliRunner().invoke(main, [*arguments, "--scheduler", "sched", "--exempt", "batch", "--label", "team"])
    assert done.exit_code == 0, done.output
    text = "".join(path.read_text() for path in tmp_path.rglob("*.yaml"))
    assert "bursar-system" not in text
    assert "system:kube-scheduler" not in text
    for wanted in ("- batch", "'team'", "'sched'", "system:serviceaccount:quota:b"):
        assert wanted in text
