"""What cannot be accepted: one clear error each, and a manager that is unchanged, to the byte."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from bursar.objects.decode import ManifestError
from bursar.objects.kinds import KindSet
from bursar.objects.manifests import Document
from bursar.policies.trees import NORMAL, QuotaError, QuotaManager, consumer_from_plain, read_consumer
from bursar.policies.trees.api import QUOTA_TREE
from tests.policies.trees.world import World, forest_consumer, wish

Plain = dict[str, Any]


def document(**changes: object) -> Plain:
    spec: Plain = {"resourceNames": ["cpu"], "nodes": {"R": {"parent": "nil", "quota": {"cpu": "4"}}}}
    whole: Plain = {"kind": "QuotaTree", "metadata": {"name": "T"}, "spec": spec}
    for path, value in changes.items():
        *steps, last = path.split("__")
        target = whole
        for step in steps:
            target = target[step]
        target[last] = value
    return whole


TREES = [
    ("kind", document(kind="Tree"), "kind: 'Tree' is not QuotaTree"),
    ("no name", document(metadata={}), "metadata.name: '' is not the name of a tree"),
    ("slash", document(metadata={"name": "a/b"}), "metadata.name: 'a/b' is not the name of a tree"),
    ("unknown key", document(spec__node={}), "spec.node: is not a known field; did you mean nodes?"),
    ("no quota", document(spec__nodes__R={"parent": "nil"}), "spec.nodes.R.quota: is required"),
    ("negative", document(spec__nodes__R__quota={"cpu": -1}), "spec.nodes.R.quota.cpu: '-1' must not be negative"),
    ("negative text", document(spec__nodes__R__quota={"cpu": "-1"}), "spec.nodes.R.quota.cpu: '-1' must not be"),
    ("fraction", document(spec__nodes__R__quota={"cpu": 1.5}), "spec.nodes.R.quota.cpu: 1.5 is not a whole number"),
    ("fraction text", document(spec__nodes__R__quota={"cpu": "1.5"}), "spec.nodes.R.quota.cpu: '1.5' is not a whole"),
    ("rubbish", document(spec__nodes__R__quota={"cpu": "x"}), "spec.nodes.R.quota.cpu: 'x' is not a quantity"),
    ("hex", document(spec__nodes__R__quota={"cpu": "0x10"}), "spec.nodes.R.quota.cpu: '0x10' is not a quantity"),
    ("null quota", document(spec__nodes__R__quota={"cpu": None}), "spec.nodes.R.quota.cpu: expected"),
    ("hard", document(spec__nodes__R__hard="yes"), "spec.nodes.R.hard: 'yes' is neither true nor false"),
    ("empty node", document(spec__nodes={"": {"quota": {}}}), "is not the name of a node"),
    ("resource", document(spec__resourceNames=["a b"]), "spec.resourceNames[0]: 'a b' is not the name of a resource"),
]


@pytest.mark.parametrize(("given", "message"), [t[1:] for t in TREES], ids=[t[0] for t in TREES])
def test_trees(given: Plain, message: str) -> None:
    manager = QuotaManager()
    before = manager.plain()
    with pytest.raises(ManifestError) as caught:
        manager.add_tree_from_struct(given)
    assert message in str(caught.value)
    assert manager.plain() == before


SPELLINGS = [
    ("hard text", {"R": {"hard": "T", "quota": {"cpu": "4"}}}, True, "4"),
    ("hard bool", {"R": {"hard": True, "quota": {"cpu": 4}}}, True, "4"),
    ("no parent", {"R": {"quota": {"cpu": "+4"}}}, False, "4"),
    ("null parent", {"R": {"parent": None, "quota": {"cpu": "007"}}}, False, "7"),
    ("suffix", {"R": {"quota": {"cpu": "500m"}}}, False, "500m"),
    ("whole float", {"R": {"quota": {"cpu": 2.0}}}, False, "2"),
    ("unlimited", {"R": {"quota": {}}}, False, ""),
]


@pytest.mark.parametrize(("nodes", "hard", "quota"), [s[1:] for s in SPELLINGS], ids=[s[0] for s in SPELLINGS])
def test_what_is_read_leniently(nodes: Plain, hard: bool, quota: str) -> None:
    manager = QuotaManager()
    report = manager.add_tree_from_struct(document(spec__nodes=nodes))
    root = manager.get_tree_state("T")["R"]
    assert (root.hard, root.quota.get("cpu", "")) == (hard, quota)
    assert bool(report.warnings) == (not quota)


def test_the_published_tree_with_its_trailing_comma() -> None:
    text = """
    {"kind": "QuotaTree", "metadata": {"name": "TestTree"},
     "spec": {"resourceNames": ["cpu", "memory"], "nodes": {
       "A": {"parent": "nil", "hard": "true", "quota": {"cpu": "10", "memory": "256"}},
       "B": {"parent": "A", "hard": "true", "quota": {"cpu": "2", "memory": "64"}},
       "C": {"parent": "A", "hard": "false", "quota": {"cpu": "6", "memory": "64"}},
     }}}
    """
    manager = QuotaManager()
    assert manager.add_tree_from_string(text).clean
    assert sorted(manager.get_tree_state("TestTree")) == ["A", "B", "C"]


def test_malformed_text_is_reported_with_its_line() -> None:
    with pytest.raises(ManifestError, match="line 3"):
        QuotaManager().add_tree_from_string('{"kind": "QuotaTree",\n "metadata": {"name": "T"},\n "spec": ]\n}')


def consumer(trees: object, **spec: object) -> Plain:
    return {"kind": "Consumer", "spec": {"id": "c", "trees": trees, **spec}}


ROW: Plain = {"treeName": "T", "groupID": "A", "request": {"cpu": 1}}
CONSUMERS = [
    ("kind", {"kind": "Job", "spec": {"id": "c"}}, "kind: 'Job' is not Consumer"),
    ("no id", {"kind": "Consumer", "spec": {"trees": [ROW]}}, "spec.id: is required"),
    ("empty id", consumer([ROW], id=""), "spec.id: '' is not an id"),
    ("no trees", consumer([]), "spec.trees: a consumer must name a tree"),
    ("twice", consumer([ROW, ROW]), "spec.trees[1].treeName: the tree T is named twice"),
    ("no group", consumer([ROW | {"groupID": ""}]), "spec.trees[0].groupID: must not be empty"),
    ("negative", consumer([ROW | {"request": {"cpu": -1}}]), "spec.trees[0].request.cpu: '-1' must not be negative"),
    ("fraction", consumer([ROW | {"request": {"cpu": 1.5}}]), "spec.trees[0].request.cpu: 1.5 is not a whole number"),
    (
        "unpreemptable",
        consumer([ROW | {"unPreemptable": "true"}]),
        "spec.trees[0].unPreemptable: expected true or false",
    ),
    ("unknown key", consumer([ROW | {"prio": 1}]), "spec.trees[0].prio: is not a known field; did you mean priority?"),
    (
        "both spellings",
        consumer([ROW]) | {"spec": {"id": "c", "trees": [ROW], "trees:": [ROW]}},
        "spec.trees:: is given",
    ),
]


@pytest.mark.parametrize(("given", "message"), [c[1:] for c in CONSUMERS], ids=[c[0] for c in CONSUMERS])
def test_consumers(given: Plain, message: str) -> None:
    with pytest.raises(ManifestError) as caught:
        consumer_from_plain(given)
    assert message in str(caught.value)


def test_a_consumer_that_is_no_json() -> None:
    with pytest.raises(ManifestError):
        read_consumer("{")


def used() -> World:
    """Two trees in a forest with a consumer on each, and one by itself."""
    world = World(T="R4(A2,B2)", U="R4(A4)", V="R4(A4)")
    world.forest("F", "T", "U")
    world.manager.add_consumer(forest_consumer("x", wish("T", "A", 1), wish("U", "A", 1)))
    world.manager.allocate_forest("F", "x")
    world.allocate("v", "A", 1, tree_name="V")
    world.know("idle", "A", 1)
    return world


def into_second_forest(manager: QuotaManager) -> None:
    manager.add_forest("G")
    manager.add_tree_to_forest("G", "T")


CALLS: list[tuple[str, Callable[[QuotaManager], object], str]] = [
    ("mode", lambda m: m.set_mode(7), "7 is no mode"),
    ("unknown tree", lambda m: m.allocate("Z", "idle"), "no tree Z"),
    ("unknown consumer", lambda m: m.allocate("T", "nobody"), "no consumer nobody"),
    ("unknown forest", lambda m: m.allocate_forest("Z", "idle"), "no forest Z"),
    ("not its tree", lambda m: m.allocate("V", "idle"), "does not name the tree V"),
    ("allocated", lambda m: m.allocate("V", "v"), "already"),
    ("same tree", lambda m: m.add_tree_by_name("T"), "a tree T already"),
    ("same forest", lambda m: m.add_forest("F"), "a forest F already"),
    ("empty forest", lambda m: m.add_forest(""), "not the name of a forest"),
    ("same consumer", lambda m: m.add_consumer(forest_consumer("v", wish("T", "A", 1))), "a consumer v already"),
    ("tree in use", lambda m: m.delete_tree("V"), "in use"),
    ("tree of a forest", lambda m: m.delete_tree("T"), "in use"),
    ("forest in use", lambda m: m.delete_forest("F"), "in use"),
    ("tree leaves its forest", lambda m: m.delete_tree_from_forest("F", "T"), "in use"),
    ("not of the forest", lambda m: m.delete_tree_from_forest("F", "V"), "has no tree V"),
    ("second forest", into_second_forest, "belongs to the forest F"),
    ("consumer in use", lambda m: m.remove_consumer("x"), "is allocated on T, U"),
    ("unknown removal", lambda m: m.remove_consumer("nobody"), "no consumer nobody"),
    ("held by a forest", lambda m: m.deallocate("T", "x"), "allocated on the forest F"),
    ("rename onto a node", lambda m: m.get_tree_cache("T").rename_node("A", "B"), "has a node B already"),
    ("rename of nothing", lambda m: m.get_tree_cache("T").rename_node("Z", "Y"), "no node Z"),
    ("delete nothing", lambda m: m.get_tree_cache("T").delete_node("Z"), "no node Z"),
    ("resource", lambda m: m.get_tree_cache("T").add_resource_name("a b"), "not the name of a resource"),
]


@pytest.mark.parametrize(("call", "message"), [c[1:] for c in CALLS], ids=[c[0] for c in CALLS])
def test_refused_calls_change_nothing(call: Callable[[QuotaManager], object], message: str) -> None:
    manager = used().manager
    before = {name: cells for name, cells in _tables(manager).items() if name != "trees.forests"}
    with pytest.raises(QuotaError, match=message):
        call(manager)
    assert {name: cells for name, cells in _tables(manager).items() if name != "trees.forests"} == before


def _tables(manager: QuotaManager) -> Plain:
    plain = manager.plain()
    return {"claims": plain["claims"], "accounts": plain["accounts"], **_mapping(plain["tables"])}


def _mapping(value: object) -> Plain:
    assert isinstance(value, dict)
    return value


def test_one_bad_node_leaves_the_cache_as_it_was() -> None:
    manager = used().manager
    cache = manager.get_tree_cache("T")
    with pytest.raises(ManifestError, match=r"nodes\.D\.quota\.count"):
        cache.add_node_specs(
            {"C": {"parent": "R", "quota": {"count": 1}}, "D": {"parent": "R", "quota": {"count": -1}}}
        )
    assert cache.get_node_names() == ["A", "B", "R"]


def test_tries_need_normal_mode() -> None:
    manager = QuotaManager()
    manager.add_tree_by_name("T")
    manager.add_consumer(forest_consumer("c", wish("T", "A", 1)))
    with pytest.raises(QuotaError, match="normal mode"):
        manager.try_allocate("T", "c")
    manager.set_mode(NORMAL)
    with pytest.raises(QuotaError, match="no group A"):
        manager.try_allocate("T", "c")


def test_deallocating_what_is_not_allocated_is_false() -> None:
    manager = used().manager
    assert not manager.deallocate("T", "idle")
    assert not manager.deallocate("T", "nobody")
    assert not manager.deallocate_forest("F", "idle")
    assert not manager.is_allocated("T", "nobody")
    assert not manager.is_allocated_forest("F", "nobody")


SHAPES = [
    ("unknown parent", {"R": "", "A": "R", "B": "Z"}, ("B",), "spec.nodes.B: its parent Z is not a node of the tree"),
    ("second root", {"R": "", "S": "", "A": "S"}, ("A", "S"), "spec.nodes.S: is a second root beside R"),
    ("cycle", {"R": "", "A": "B", "B": "A"}, ("A", "B"), "spec.nodes.A: is its own ancestor, or hangs from a node"),
    ("own parent", {"R": "", "A": "A"}, ("A",), "spec.nodes.A: is its own ancestor"),
    ("no root", {"A": "B", "B": "A"}, ("A", "B"), "spec.nodes.A: no node is a root"),
]


@pytest.mark.parametrize(("parents", "dangling", "message"), [s[1:] for s in SHAPES], ids=[s[0] for s in SHAPES])
def test_what_is_no_tree_dangles_in_the_library_and_is_refused_as_a_manifest(
    parents: dict[str, str], dangling: tuple[str, ...], message: str
) -> None:
    given = document(spec__nodes={name: {"parent": parent, "quota": {}} for name, parent in parents.items()})
    report = QuotaManager().add_tree_from_struct(given)
    assert (report.dangling, report.clean) == (dangling, False)
    with pytest.raises(ManifestError) as caught:
        KindSet([QUOTA_TREE]).read(Document("t.yaml", 1, given))
    assert message in str(caught.value)
    assert "t.yaml: document 1: QuotaTree T" in str(caught.value)


def test_a_node_is_not_renamed_to_what_is_no_name() -> None:
    cache = World(T="R10(A3)").manager.get_tree_cache("T")
    with pytest.raises(ManifestError, match="not the name of a node"):
        cache.rename_node("A", "")


def test_a_tree_that_does_not_exist_joins_no_forest() -> None:
    manager = World(T="R10(A3)").manager
    manager.add_forest("F")
    with pytest.raises(QuotaError, match="nothing"):
        manager.add_tree_to_forest("F", "nothing")
