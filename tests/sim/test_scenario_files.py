"""Scenario files are checked before anything runs: one line with file, document and path for each mistake."""

from pathlib import Path
from typing import Any

import pytest

from bursar.control.admission import known_kinds
from bursar.objects.decode import ManifestError
from bursar.objects.kinds import Kind
from bursar.objects.manifests import Document, load_text
from bursar.policies.plugin import Plugin, Registry, default_registry
from bursar.sim.scenario import load_scenarios, read_scenario
from tests.sim.purse import Purse, PursePolicy, registry

KINDS = known_kinds(default_registry())


def error_of(text: str) -> str:
    with pytest.raises(ManifestError) as caught:
        [read_scenario(document, KINDS) for document in load_text(text, "x.yaml")]
    return str(caught.value)


def step(text: str) -> str:
    return f"name: x\nsteps:\n- {text}\n"


POD = "{apiVersion: v1, kind: Pod, metadata: {name: p}, spec: {containers: [{}]}}"


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("steps: []", "name: is required"),
        ("name: x", "steps: is required"),
        ("name: x\nsteps: []", "steps: must not be empty"),
        ("name: ' '\nsteps: [{advance: 1s}]", "name: must not be empty"),
        ("name: x\nstep: []\nsteps: []", "step: is not a known field; did you mean steps?"),
        (step("aply: []"), "steps[0].aply: is not a known field; did you mean apply?"),
        (
            step("{}"),
            "steps[0]: a step is exactly one of apply, delete, finish, advance, expect, not none of them",
        ),
        (
            step("{advance: 1s, finish: [p]}"),
            "steps[0]: a step is exactly one of apply, delete, finish, advance, expect, not finish and advance",
        ),
        (step("apply: []"), "steps[0].apply: must not be empty"),
        (step("apply: [{kind: Pod}]"), "Pod: steps[0].apply[0].apiVersion: is required, as text"),
        (step("apply: [{apiVersion: v1, kind: Pot}]"), "Pot: steps[0].apply[0].kind: v1 Pot is not handled"),
        (step("delete: []"), "steps[0].delete: must not be empty"),
        (step("delete: [Pot/x]"), "steps[0].delete[0]: the kind 'Pot' is not known"),
        (step("delete: [Pod/x]"), "steps[0].delete[0]: 'Pod/x' does not have the form Pod/namespace/name"),
        (step("finish: [a/b/c]"), "steps[0].finish[0]: 'a/b/c' is not a pod: namespace/name"),
        (step("advance: soon"), "steps[0].advance: 'soon' is not a duration"),
        (step("advance: 5"), "steps[0].advance: 5 is not a duration"),
        (step("expect:"), "steps[0]: a step is exactly one of"),
        (step("expect: {}"), "steps[0].expect: expects nothing: name pods or objects"),
        (step("expect: {pods: {a/p: {}}}"), "steps[0].expect.pods.a/p: expects nothing"),
        (step("expect: {pods: {a/p: {fase: Running}}}"), "steps[0].expect.pods.a/p.fase: is not a known field"),
        (
            step("expect: {pods: {a/p: {phase: Runing}}}"),
            "steps[0].expect.pods.a/p.phase: 'Runing' is none of Pending, Running, Terminating, Succeeded, Evicted",
        ),
        (
            step("expect: {pods: {a/p: {phase: Absent, node: n}}}"),
            "steps[0].expect.pods.a/p: nothing else can be expected of what is Absent",
        ),
        (step("expect: {objects: {Pod/a/p: {}}}"), "steps[0].expect.objects.Pod/a/p: expects nothing"),
        (
            step("expect: {objects: {Pod/a/p: {phase: Absent, spec: {}}}}"),
            "steps[0].expect.objects.Pod/a/p: nothing else can be expected of what is Absent",
        ),
        (step("{advance: 1s, refused: x}"), "steps[0].refused: is the text of a refusal, beside apply or delete"),
        (step("{delete: [Pod/a/p], refused: ''}"), "steps[0].refused: is the text of a refusal"),
        (
            step(f"apply: [{POD}, {POD}]"),
            "Pod default/p: steps[0].apply[1]: is given twice, first in document 1",
        ),
        (
            step("apply: [{apiVersion: v1, kind: Node, metadata: {name: n}, status: {allocatable: {cpu: many}}}]"),
            "Node n: steps[0].apply[0].status.allocatable.cpu: 'many' is not a quantity",
        ),
        (
            step(f"apply: [{POD}]").replace("name: p}", "name: p, annotations: {sim.bursar.dev/runs-for: x}}"),
            "steps[0].apply[0].metadata.annotations.sim.bursar.dev/runs-for: 'x' is not a duration",
        ),
        (step("advance: 1s") + "objects: [{apiVersion: v1, kind: Pod}]", "Pod: objects[0].metadata.name: is required"),
        ("name: a\nsteps: [{advance: 1s}]\n---\nname: b\nsteps: 5", "steps: expected a list, not a whole number"),
        ("[1, 2]", "an object must be a mapping, not a list"),
    ],
)
def test_a_mistake_is_one_clear_line(text: str, line: str) -> None:
    found = error_of(text)
    assert found.startswith("x.yaml: document ")
    assert line in found
    assert "\n" not in found


def test_the_document_is_named() -> None:
    good = step("advance: 1s")
    assert error_of(f"{good}---\n{good.replace('advance', 'advence')}").startswith("x.yaml: document 2: steps[0]")


def test_what_must_be_refused_is_not_checked_before() -> None:
    document = load_text(step("{apply: [{apiVersion: v1, kind: Pot}], refused: Pot}"))[0]
    assert read_scenario(document, KINDS).steps[0].refused == "Pot"


def test_pods_without_a_namespace_are_in_the_default_one() -> None:
    scenario = read_scenario(load_text(step("finish: [p]"))[0], KINDS)
    assert scenario.steps[0].pods == ("default/p",)


def test_a_kind_of_two_groups_must_be_named_with_its_group() -> None:
    both = registry()
    kind = Kind("other.dev", "v1", "Purse", "purses", True, Purse, strict=True)
    both.add(Plugin("second", 46, PursePolicy, (kind,)))
    kinds = known_kinds(both)
    body: dict[str, Any] = {"name": "x", "steps": [{"delete": ["Purse/a/b"]}]}
    with pytest.raises(ManifestError) as caught:
        read_scenario(Document("x.yaml", 1, body), kinds)
    problem = "the kind 'Purse' is ambiguous: type Purse.other.dev or Purse.test.dev"
    assert str(caught.value) == f"x.yaml: document 1: steps[0].delete[0]: {problem}"
    body["steps"][0]["delete"] = ["Purse.other.dev/a/b"]
    assert read_scenario(Document("x.yaml", 1, body), kinds).steps[0].references == ((kind, "a/b"),)


class TestFiles:
    def test_a_folder_stands_for_all_files_in_it(self, tmp_path: Path) -> None:
        (tmp_path / "deeper").mkdir()
        (tmp_path / "b.yaml").write_text(step("advance: 1s") + "---\n" + step("advance: 2s").replace("x", "y"))
        (tmp_path / "deeper" / "a.json").write_text('{"name": "z", "steps": [{"advance": "1s"}]}')
        (tmp_path / "notes.txt").write_text("no scenario")
        found = load_scenarios([tmp_path], KINDS)
        assert [(s.name, s.number) for s in found] == [("x", 1), ("y", 2), ("z", 1)]

    @pytest.mark.parametrize("text", ["", "---\n"])
    def test_no_scenario_is_an_error(self, tmp_path: Path, text: str) -> None:
        file = tmp_path / "a.yaml"
        file.write_text(text)
        with pytest.raises(ManifestError, match="no scenarios found"):
            load_scenarios([file], KINDS)

    def test_an_empty_folder_is_an_error(self, tmp_path: Path) -> None:
        with pytest.raises(ManifestError, match="no scenarios found"):
            load_scenarios([tmp_path], KINDS)

    def test_two_scenarios_of_one_file_need_two_names(self, tmp_path: Path) -> None:
        file = tmp_path / "a.yaml"
        file.write_text(step("advance: 1s") + "---\n" + step("advance: 2s"))
        with pytest.raises(ManifestError, match="document 2: name: 'x' is also the name of document 1"):
            load_scenarios([file], KINDS)


def test_the_registry_of_the_tests_is_not_the_default_one() -> None:
    assert isinstance(registry(), Registry)
    assert "purse" not in {plugin.name for plugin in default_registry()}
