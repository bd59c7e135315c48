"""The definitions themselves, and Python's judgement of the cases that the API server is asked about too."""

import importlib.util
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import msgspec
import pytest

from bursar.control.admission import known_kinds
from bursar.objects.crds import definitions, status_schema
from bursar.objects.decode import ManifestError
from bursar.objects.kinds import Kind, PrinterColumn
from bursar.objects.manifests import Document
from bursar.policies.plugin import ObjectEdit, default_registry
from tests.objects.crd_cases import GOOD, PYTHON_ONLY, RULES, SCHEMA, SECTIONS, SERVER_ONLY, Case, Manifest

ROOT = Path(__file__).parent.parent.parent
REGISTRY = default_registry()
KINDS = known_kinds(REGISTRY)
CRDS = definitions(KINDS)


def named(case: Case) -> str:
    return f"{case.kind} {case.spec}"[:60]


def judge(manifest: Manifest) -> None:
    """Read it as any manifest, then let the policies admit and translate it, as if it were alone in the world."""
    found = KINDS.read(Document("", 0, manifest))
    for plugin in REGISTRY:
        if found.kind.kind == "Configuration":
            section: Any = getattr(found.typed, "spec", None)
            if plugin.section is not None and (given := getattr(section, plugin.name)) is not None:
                plugin.translate["Configuration"]("default", given)
        elif found.kind.name in plugin.admit:
            plugin.admit[found.kind.name](Alone(), None, found.body)
        elif plugin.review is not None and found.kind.name in plugin.reviewed:
            plugin.review(Alone(), [ObjectEdit(found.kind.name, found.key, None, found.body)])


class Alone:
    def get(self, _kind: str, _key: str) -> None:
        return None

    def list(self, _kind: str, _namespace: str | None = None) -> list[Manifest]:
        return []


@pytest.mark.parametrize("case", GOOD + SERVER_ONLY, ids=named)
def test_python_accepts(case: Case) -> None:
    judge(case.manifest())


@pytest.mark.parametrize("case", RULES + SCHEMA + SECTIONS + PYTHON_ONLY, ids=named)
def test_python_refuses(case: Case) -> None:
    with pytest.raises(ManifestError):
        judge(case.manifest())


def test_the_configuration_has_one_name() -> None:
    with pytest.raises(ManifestError, match="its name is 'default'"):
        judge(Case("Configuration", "").manifest("other"))


class Ruled(NamedTuple):
    """A rule of a definition, where it stands."""

    kind: str
    path: str
    rule: str
    message: str


def ruled(kind: str, schema: Any, path: str = "") -> Iterator[Ruled]:  # noqa: ANN401 any part of a schema
    for given in schema.get("x-kubernetes-validations", []):
        yield Ruled(kind, path, given["rule"], given["message"])
    for name, inner in schema.get("properties", {}).items():
        yield from ruled(kind, inner, f"{path}.{name}")
    for several in ("items", "additionalProperties"):
        if isinstance(schema.get(several), dict):
            yield from ruled(kind, schema[several], f"{path}.*")


def called(crd: dict[str, Any]) -> str:
    """The name of a kind among the cases."""
    names = crd["spec"]["names"]
    return "PoolQuota" if crd["spec"]["group"] == "scheduling.sigs.k8s.io" else str(names["kind"])


def parts(value: Any, path: str) -> list[Any]:  # noqa: ANN401 any part of a manifest
    """What stands at a path of a manifest; ``*`` is every entry."""
    found = [value]
    for step in path.split(".")[1:]:
        inside = [one for one in found if isinstance(one, dict)]
        found = [inner for one in inside for name, inner in one.items() if step in {"*", name}]
    return found


def is_about(rule: Ruled, case: Case) -> bool:
    """Whether the object has all that the rule compares: without it the rule is kept, whatever it says."""
    wanted = set(re.findall(r"has\(self\.([\w.]+)\)", rule.rule))
    subjects = parts(case.manifest(), rule.path)
    return case.kind == rule.kind and any(all(parts(one, f".{path}") for path in wanted) for one in subjects)


ALL_RULES = [
    rule for crd in CRDS for rule in ruled(called(crd), crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"])
]
OF_SPECS = [pytest.param(one, id=f"{one.kind}{one.path} {one.message}") for one in ALL_RULES if one.path]


def test_rules_are_found_wherever_they_stand() -> None:
    assert len(ALL_RULES) == str(CRDS).count("'rule':")
    assert [rule.kind for rule in ALL_RULES if not rule.path] == ["Configuration"]  # its name has a test of its own


@pytest.mark.parametrize("rule", OF_SPECS)
def test_every_rule_is_broken_by_a_case(rule: Ruled) -> None:
    of_kind = [case for case in RULES if case.kind == rule.kind and case.message in rule.message]
    assert [case for case in of_kind if parts(case.manifest(), rule.path)]


@pytest.mark.parametrize("rule", OF_SPECS)
def test_every_rule_is_kept_by_an_object_that_it_is_about(rule: Ruled) -> None:
    assert [case for case in GOOD if is_about(rule, case)]


def test_every_kind_that_is_not_kubernetes_own_is_defined() -> None:
    assert [crd["metadata"]["name"] for crd in CRDS] == [
        "compositeelasticquotas.n8s.nebuly.ai",
        "configurations.bursar.dev",
        "elasticquotaprofiles.quota.koordinator.sh",
        "elasticquotas.n8s.nebuly.ai",
        "elasticquotas.scheduling.sigs.k8s.io",
        "gpupools.tensor-fusion.ai",
        "gpuresourcequotas.tensor-fusion.ai",
        "gpus.tensor-fusion.ai",
        "quotatrees.bursar.dev",
        "schedulingconfigtemplates.tensor-fusion.ai",
        "tensorfusionworkloads.tensor-fusion.ai",
        "workloadprofiles.tensor-fusion.ai",
    ]


@pytest.mark.parametrize("crd", CRDS, ids=[crd["metadata"]["name"] for crd in CRDS])
def test_age_comes_last_and_status_is_apart(crd: dict[str, Any]) -> None:
    (version,) = crd["spec"]["versions"]
    assert version["additionalPrinterColumns"][-1] == {
        "name": "Age",
        "type": "date",
        "jsonPath": ".metadata.creationTimestamp",
    }
    assert version["subresources"] == {"status": {}}
    assert crd["spec"]["names"]["categories"] == ["bursar"]


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind.strict], ids=lambda kind: kind.name)
def test_fields_of_strict_kinds_are_explained(kind: Kind) -> None:
    (crd,) = [crd for crd in CRDS if crd["metadata"]["name"] == f"{kind.plural}.{kind.group}"]
    schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]
    for part in ("spec", "status"):
        for name, inner in schema[part]["properties"].items():
            assert "description" in inner or kind.kind == "Configuration", name


def test_a_column_of_no_field_is_refused() -> None:
    kind = next(kind for kind in KINDS if kind.kind == "QuotaTree")
    broken = Kind("g", "v1", "K", "ks", True, kind.struct, columns=(PrinterColumn("X", ".spec.nothing"),))
    with pytest.raises(ValueError, match=r"the column X prints \.spec\.nothing, which has no \.nothing"):
        definitions([broken])


def test_types_without_a_structural_schema_are_refused() -> None:
    struct = msgspec.defstruct("Odd", [("spec", int | bool, 1)])
    with pytest.raises(TypeError, match="no structural schema"):
        definitions([Kind("g", "v1", "Odd", "odds", True, struct)])


def test_of_kinds_that_others_write_too_the_status_is_open() -> None:
    lenient = next(kind for kind in KINDS if kind.kind == "WorkloadProfile")
    assert status_schema(lenient) == {"type": "object", "x-kubernetes-preserve-unknown-fields": True}


def tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("manifests", ROOT / "tools" / "manifests.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_generated_files_are_current() -> None:
    module = tool()
    assert module.stale(module.generated()) == [], "run: PYTHONPATH=src python tools/manifests.py"
