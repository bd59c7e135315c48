"""Admission of quotas, profiles and pods: vectors 6.6 and 6.8, the rulings' additions, and bad input."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pytest

from bursar.objects.decode import ManifestError
from bursar.policies.plugin import ObjectEdit, Registry
from bursar.policies.pools.api import PROFILE, QUOTA
from bursar.policies.pools.plugin import PLUGIN
from bursar.policies.pools.settings import PREFIX, PROFILE_OBJECT, QUOTA_OBJECT, ROOT, SYSTEM
from tests.builders import Manifest, node, pod

P = PREFIX


class View:
    """The objects of a cluster, as admission sees them."""

    def __init__(self, *manifests: Manifest) -> None:
        self.objects: dict[tuple[str, str], Manifest] = {}
        for manifest in manifests:
            self.put(manifest)

    def put(self, manifest: Manifest) -> None:
        self.objects[_kind(manifest), _key(manifest)] = manifest

    def get(self, kind: str, key: str) -> Mapping[str, Any] | None:
        return self.objects.get((kind, key))

    def list(self, kind: str, namespace: str | None = None) -> Iterable[Mapping[str, Any]]:
        found = [manifest for (known, _), manifest in sorted(self.objects.items()) if known == kind]
        return [one for one in found if namespace in {None, one["metadata"].get("namespace", "")}]

    def apply(self, *manifests: Manifest) -> Manifest:
        """Admitted as a whole and stored; returns the first."""
        admitted = self.judged(manifests)
        assert self.judged(admitted) == admitted  # idempotent
        for manifest in admitted:
            self.put(manifest)
        return admitted[0]

    def judged(self, manifests: Sequence[Manifest]) -> tuple[Manifest, ...]:
        edits = [ObjectEdit(_kind(one), _key(one), self.get(_kind(one), _key(one)), one) for one in manifests]
        if any(edit.kind in PLUGIN.reviewed for edit in edits):
            assert PLUGIN.review is not None
            edits = PLUGIN.review(self, edits)
        alone = [(edit, PLUGIN.admit.get(edit.kind)) for edit in edits]
        return tuple(
            edit.new or {} if admit is None else admit(self, edit.old, edit.new or {}) for edit, admit in alone
        )

    def refuses(self, manifest: Manifest) -> tuple[str, str]:
        """(path, problem); and nothing changed."""
        before = json.dumps([list(self.objects), list(self.objects.values())])
        with pytest.raises(ManifestError) as caught:
            self.apply(manifest)
        assert json.dumps([list(self.objects), list(self.objects.values())]) == before
        return caught.value.path, caught.value.problem

    def delete(self, *names: tuple[str, str]) -> None:
        assert PLUGIN.review is not None
        PLUGIN.review(self, [ObjectEdit(kind, key, self.objects[kind, key], None) for kind, key in names])
        for name in names:
            del self.objects[name]

    def keeps(self, kind: str, key: str) -> str:
        with pytest.raises(ManifestError) as caught:
            self.delete((kind, key))
        return str(caught.value.problem)


def _kind(manifest: Manifest) -> str:
    kind = str(manifest["kind"])
    return {"ElasticQuota": QUOTA_OBJECT, "ElasticQuotaProfile": PROFILE_OBJECT}.get(kind, kind)


def _key(manifest: Manifest) -> str:
    metadata = manifest["metadata"]
    return f"{metadata['namespace']}/{metadata['name']}" if metadata.get("namespace") else str(metadata["name"])


def quota(
    name: str,
    maximum: Manifest | None = None,
    minimum: Manifest | None = None,
    parent: str = "",
    *,
    namespace: str = "quotas",
    annotations: dict[str, str] | None = None,
    **labels: str,
) -> Manifest:
    marks = {P + key.replace("_", "-"): value for key, value in labels.items()}
    if parent:
        marks[P + "parent"] = parent
    notes = {P + key: value for key, value in (annotations or {}).items()}
    metadata = {"name": name, "namespace": namespace, "labels": marks, "annotations": notes}
    spec = {"max": maximum or {}} | ({"min": minimum} if minimum is not None else {})
    return {"apiVersion": QUOTA.api_version, "kind": "ElasticQuota", "metadata": metadata, "spec": spec}


def profile(name: str, root: str, match: dict[str, str], **more: object) -> Manifest:
    labels = more.pop("labels", {})
    spec = {"quotaName": root, "nodeSelector": {"matchLabels": match}, "quotaLabels": {P + "is-parent": "true"}}
    metadata = {"name": name, "namespace": "kube-system", "labels": labels}
    return {
        "apiVersion": PROFILE.api_version,
        "kind": "ElasticQuotaProfile",
        "metadata": metadata,
        "spec": spec | more,
    }


def cm(cpu: object, memory: object) -> Manifest:
    return {"cpu": cpu, "memory": memory}


def weight_of(manifest: Manifest) -> Manifest:
    return json.loads(manifest["metadata"]["annotations"][P + "shared-weight"])  # type: ignore[no-any-return]


BIG = cm(1000, 10**9)


def family(minimum: Manifest | None = None) -> View:
    """A parent ``temp`` of min 64/51200."""
    view = View()
    view.apply(quota("temp", BIG, minimum or cm(64, 51200), is_parent="true"))
    return view


class TestSelf:
    @pytest.mark.parametrize(
        ("given", "path"),
        [
            (quota("q", {"cpu": -1}), "spec.max.cpu"),
            (quota("q", {"cpu": 1}, {"cpu": -1}), "spec.min.cpu"),
            (quota("q", {"cpu": 1}, annotations={"shared-weight": '{"cpu":-1}'}), f"{P}shared-weight.cpu"),
            (quota("q", {"cpu": 1}, annotations={"shared-weight": "{"}), f"{P}shared-weight"),
            (quota("q", {"cpu": 1}, annotations={"shared-weight": "[1]"}), f"{P}shared-weight"),
            (quota("q", {"cpu": 1}, annotations={"namespaces": "team"}), f"{P}namespaces"),
            (quota("q", {"cpu": 1}, annotations={"namespaces": "[1]"}), f"{P}namespaces"),
            (quota("q", {"cpu": 10}, cm(1, 1)), "spec.min.memory"),
            (quota("q", {"cpu": 10}, {"cpu": 12}), "spec.min.cpu"),
            (quota("q", {"cpu": "many"}), "spec.max.cpu"),
            (quota("q", {"cpu": 1}, is_parent="yes"), f"{P}is-parent"),
        ],
    )
    def test_refused(self, given: Manifest, path: str) -> None:
        assert View().refuses(given)[0].endswith(path)

    def test_max_only_is_enough(self) -> None:
        View().apply(quota("q", {"cpu": 1}))

    @pytest.mark.parametrize(
        ("strict", "maximum", "used", "fine"),
        [
            (["cpu", "memory"], cm(1, 1048576), cm(0, 10485760), False),
            (["cpu"], cm(1, 1048576), cm(0, 10485760), True),
            (["cpu", "memory"], cm(1, 1048576), {"cpu": 0}, True),
            (["cpu", "memory"], {"cpu": 1}, cm(0, 10485760), False),
        ],
    )
    def test_strict_keys(self, strict: list[str], maximum: Manifest, used: Manifest, fine: bool) -> None:
        annotations = {"max-strict-check-resource-keys": json.dumps(strict)}
        given = quota("q", maximum, annotations=annotations) | {"status": {"used": used}}
        if fine:
            View().apply(given)
        else:
            assert View().refuses(given)[0] == "spec.max.memory"


class TestDefaults:
    def test_parent_and_weight(self) -> None:
        found = View().apply(quota("q", cm(120, 1048576)))
        assert found["metadata"]["labels"] == {P + "parent": ROOT}
        assert weight_of(found) == {"cpu": "120", "memory": "1Mi"}

    def test_the_tree_of_the_parent(self) -> None:
        view = View()
        view.apply(quota("with", BIG, is_parent="true", tree_id="tree-1"))
        view.apply(quota("without", BIG, is_parent="true"))
        assert view.apply(quota("a", BIG, parent="with"))["metadata"]["labels"][P + "tree-id"] == "tree-1"
        assert P + "tree-id" not in view.apply(quota("b", BIG, parent="without"))["metadata"]["labels"]

    @pytest.mark.parametrize(
        ("weight", "maximum", "expected"),
        [
            (cm(0, 0), cm(2, 3), {"cpu": "0", "memory": "0"}),
            (cm(0, 0), {"memory": 3}, {"memory": "0"}),
            ({"cpu": 0}, cm(2, 3), {"cpu": "0", "memory": "3"}),
            ({"cpu": 0}, {"memory": 3}, {"memory": "3"}),
        ],
    )
    def test_the_weight_gets_the_keys_of_max(self, weight: Manifest, maximum: Manifest, expected: Manifest) -> None:
        found = View().apply(quota("q", maximum, annotations={"shared-weight": json.dumps(weight)}))
        assert weight_of(found) == expected

    def test_ruled_a_weight_that_was_filled_in_follows_max(self) -> None:
        view = View()
        stored = view.apply(quota("q", {"cpu": 10}))
        raised = {**stored, "spec": {"max": {"cpu": 20}}}
        assert weight_of(view.apply(raised)) == {"cpu": "20"}
        view.apply(quota("w", {"cpu": 10}, annotations={"shared-weight": '{"cpu":5}'}))
        kept = view.apply(quota("w", {"cpu": 20}, annotations={"shared-weight": '{"cpu":5}'}))
        assert weight_of(kept) == {"cpu": "5"}


class TestPlace:
    def test_keys_must_be_the_parents(self) -> None:
        view = family()
        path, problem = view.refuses(quota("c", {"cpu": 1}, parent="temp"))
        assert (path, problem) == ("spec.max", "c does not list memory, which its parent temp does")
        view.apply(quota("c", cm(1, 1), parent="temp"))
        smaller = quota("temp", {"cpu": 1000}, {"cpu": 64}, is_parent="true")
        assert view.refuses(smaller)[0] == "spec.max"

    def test_keys_of_min_must_be_the_parents_too(self) -> None:
        view = View()
        view.apply(quota("temp", BIG, {"cpu": 5}, is_parent="true"))
        assert view.refuses(quota("c", cm(1, 1), cm(1, 1), "temp")) == (
            "spec.min",
            "c lists memory, which its parent temp does not",
        )

    def test_trees_must_agree(self) -> None:
        view = View()
        view.apply(quota("p", BIG, is_parent="true", tree_id="tree-1"))
        view.apply(quota("c", BIG, parent="p", is_parent="true"))
        view.apply(quota("g", BIG, parent="c", tree_id="tree-1"))
        assert view.refuses(quota("x", BIG, parent="p", tree_id="tree-2"))[0].endswith("tree-id")

    @pytest.mark.parametrize(("before", "after"), [("", "tree-1"), ("tree-2", "tree-1"), ("tree-2", "")])
    def test_the_tree_of_a_first_level_quota_never_changes(self, before: str, after: str) -> None:
        view = View()
        view.apply(quota("q", BIG, tree_id=before))
        assert view.refuses(quota("q", BIG, tree_id=after))[0].endswith("tree-id")

    def test_a_quota_that_was_stored_without_its_tree_is_changed_within_that_of_its_parent(self) -> None:
        view = View(*(quota(f"root-{tree}", BIG, tree_id=tree, is_parent="true") for tree in "ab"))
        view.put(quota("q", cm(1, 1), parent="root-a"))
        assert view.apply(quota("q", BIG, parent="root-a"))["metadata"]["labels"][P + "tree-id"] == "a"
        view.put(quota("q", BIG, parent="gone"))
        assert view.apply(quota("q", BIG, parent="root-b"))["metadata"]["labels"][P + "tree-id"] == "b"

    def test_who_promises_no_more_is_not_held_to_what_the_tree_has_lost(self) -> None:
        view = family()
        for name in "ab":
            view.apply(quota(name, BIG, cm(32, 0), "temp"))
        view.put({**view.objects[QUOTA_OBJECT, "quotas/temp"], "spec": {"max": BIG, "min": cm(32, 0)}})
        view.apply(quota("a", BIG, cm(32, 0), "temp", allow_lent_resource="false"))
        assert view.refuses(quota("a", BIG, cm(33, 0), "temp"))[0] == "spec.min.cpu"

    def test_sums_of_min(self) -> None:
        view = family()
        for name in "ab":
            view.apply(quota(name, BIG, cm(16, 12800), "temp"))
        path, problem = view.refuses(quota("c", BIG, cm(33, 0), "temp"))
        assert path == "spec.min.cpu"
        assert problem == "65 for a, b, c together is more than the 64 of their parent temp"
        assert view.refuses(quota("temp", BIG, cm(31, 51200), is_parent="true"))[0] == "spec.min.cpu"
        assert view.refuses(quota("temp", BIG, cm(64, 25599), is_parent="true"))[0] == "spec.min.memory"
        view.apply(quota("temp", BIG, cm(32, 25600), is_parent="true"))
        view.apply(quota("c", BIG, cm(33, 0), "temp", allow_force_update="true"))

    def test_a_parent_without_min_promises_nothing(self) -> None:
        view = View()
        view.apply(quota("temp", BIG, is_parent="true"))
        assert view.refuses(quota("c", BIG, cm(1, 1), "temp"))[0] == "spec.min"

    def test_first_level_mins_may_exceed_the_cluster(self) -> None:
        view = View(node("n1", {"cpu": 1}))
        for name in "ab":
            view.apply(quota(name, {"cpu": 9}, {"cpu": 9}))

    def test_names_are_unique(self) -> None:
        view = family()
        assert view.refuses(quota("temp", BIG, namespace="elsewhere"))[0] == "metadata.name"

    @pytest.mark.parametrize("parent", ["missing", "leaf", "me", "below"])
    def test_parents_that_are_none(self, parent: str) -> None:
        view = View()
        view.apply(quota("leaf", BIG))
        view.apply(quota("me", BIG, is_parent="true"))
        view.apply(quota("below", BIG, parent="me", is_parent="true"))
        path, problem = view.refuses(quota("me", BIG, parent=parent, is_parent="true"))
        assert path.endswith("parent")
        assert parent in problem

    def test_moving_a_child(self) -> None:
        view = family()
        view.apply(quota("temp2", BIG, cm(64, 51200), is_parent="true"))
        view.apply(quota("c", cm(120, 1), cm(60, 1), "temp"))
        view.apply(quota("c", cm(120, 1), cm(60, 1), "temp2"))
        assert view.refuses(quota("c", cm(120, 1), cm(121, 1), "temp"))[0] == "spec.min.cpu"
        view.apply(quota("d", cm(120, 1), cm(60, 1), "temp"))

    def test_only_the_weight_changed(self) -> None:
        view = family()
        view.apply(quota("c", BIG, cm(1, 1), "temp"))
        view.apply(quota("c", BIG, cm(1, 1), "temp", annotations={"shared-weight": '{"cpu":1,"memory":1}'}))
        bad = quota("c", BIG, cm(1, 1), "temp", annotations={"shared-weight": "none"})
        assert view.refuses(bad)[0].endswith("shared-weight")  # B17: checked on update too

    def test_is_parent_changes_only_while_nobody_minds(self) -> None:
        view = family()
        view.apply(quota("temp", BIG, cm(64, 51200)))
        view.apply(quota("temp", BIG, cm(64, 51200), is_parent="true"))
        view.apply(quota("c", BIG, cm(1, 1), "temp"))
        assert view.refuses(quota("temp", BIG, cm(64, 51200)))[0].endswith("is-parent")
        view.put(pod("p", "default", labels={P + "name": "c"}))
        assert view.refuses(quota("c", BIG, cm(1, 1), "temp", is_parent="true"))[1].endswith("default/p belong to it")

    def test_is_parent_minds_pods_of_its_namespaces(self) -> None:
        view = View(pod("p", "home"), pod("p", "listed"))
        view.apply(quota("home", BIG, namespace="home"))
        view.apply(quota("l", BIG, annotations={"namespaces": '["listed"]'}))
        assert view.refuses(quota("home", BIG, namespace="home", is_parent="true"))[0].endswith("is-parent")
        bad = quota("l", BIG, annotations={"namespaces": '["listed"]'}, is_parent="true")
        assert view.refuses(bad)[0].endswith("is-parent")

    def test_namespaces_are_bound_once(self) -> None:
        view = View()
        view.apply(quota("one", BIG, annotations={"namespaces": '["test1","test2"]'}))
        assert view.refuses(quota("two", BIG, annotations={"namespaces": '["test1"]'}))[1] == (
            "namespace test1 is bound to quota one already"
        )
        view.apply(quota("one", BIG, annotations={"namespaces": '["test2","test3"]'}))
        view.apply(quota("two", BIG, annotations={"namespaces": '["test1"]'}))
        assert view.refuses(quota("three", BIG, annotations={"namespaces": '["test2"]'}))
        view.delete((QUOTA_OBJECT, "quotas/one"))
        view.apply(quota("three", BIG, annotations={"namespaces": '["test2","test3"]'}))

    @pytest.mark.parametrize("name", [ROOT, SYSTEM])
    def test_built_in_quotas_stay_as_they_are(self, name: str) -> None:
        view = View()
        view.apply(quota(name, BIG))
        view.apply(quota(name, BIG))
        view.refuses(quota(name, cm(1, 1)))

    def test_the_original_built_in_quotas_are_read(self) -> None:
        View().apply(quota("koordinator-default-quota", cm(1844674407370955161, 1844674407370955161)))

    @pytest.mark.parametrize(
        "given",
        [
            quota("q", BIG, is_root="true"),
            quota("q", BIG, profile="p"),
            quota("q", BIG, annotations={"total-resource": '{"cpu":"100"}'}),
            quota("q", BIG, annotations={"unschedulable-resource": "{}"}),
        ],
    )
    def test_the_controllers_own_keys_are_refused(self, given: Manifest) -> None:
        assert "is set by Bursar" in View().refuses(given)[1]


class TestGuarantee:
    @pytest.mark.parametrize(
        ("least", "own", "sibling", "fine"),
        [
            (cm(5, 25600), cm(6, 35600), cm(2, 10000), True),
            (cm(7, 25600), cm(6, 35600), cm(3, 10000), True),
            (cm(8, 25600), cm(6, 35600), cm(3, 10000), False),
        ],
    )
    def test_a_min_must_be_there_to_be_promised(
        self, least: Manifest, own: Manifest, sibling: Manifest, fine: bool
    ) -> None:
        configuration = {
            "apiVersion": "bursar.dev/v1alpha1",
            "kind": "Configuration.bursar.dev",
            "metadata": {"name": "default"},
            "spec": {"pools": {"guaranteeUsage": True}},
        }
        whole = cm(10, 51200)
        root = quota("root", BIG, whole, is_parent="true", tree_id="t", annotations={"guaranteed": json.dumps(whole)})
        kept = {"guaranteed": json.dumps(sibling)}
        other = quota("other", BIG, cm(0, 0), "root", tree_id="t", annotations=kept)
        view = View(configuration, root, other)
        given = quota("q", BIG, least, "root", annotations={"guaranteed": json.dumps(own)})
        if fine:
            view.apply(given)
        else:
            assert view.refuses(given)[0] == "spec.min"


class TestRemoval:
    def test_quotas(self) -> None:
        view = family()
        view.apply(quota("c", BIG, cm(1, 1), "temp"))
        assert view.keeps(QUOTA_OBJECT, "quotas/temp") == "has children: c"
        for number in range(3):
            view.put(pod(f"p{number}", "default", labels={P + "name": "c"}))
        assert view.keeps(QUOTA_OBJECT, "quotas/c") == "is in use by 3 pods: default/p0, default/p1, ..."
        for number in range(3):
            del view.objects["Pod", f"default/p{number}"]
        view.delete((QUOTA_OBJECT, "quotas/c"))
        view.delete((QUOTA_OBJECT, "quotas/temp"))

    def test_b18_pods_of_its_namespaces_count(self) -> None:
        view = View(pod("p", "listed"))
        view.apply(quota("l", BIG, annotations={"namespaces": '["listed"]'}))
        assert view.keeps(QUOTA_OBJECT, "quotas/l") == "is in use by 1 pod: listed/p"
        view.put(pod("p", "listed") | {"status": {"phase": "Succeeded"}})
        view.delete((QUOTA_OBJECT, "quotas/l"))

    @pytest.mark.parametrize("name", [ROOT, SYSTEM, "koordinator-default-quota"])
    def test_built_in_quotas(self, name: str) -> None:
        view = View()
        view.apply(quota(name, BIG))
        assert "built in" in view.keeps(QUOTA_OBJECT, f"quotas/{name}")

    def test_profiles_and_root_quotas(self) -> None:
        view = View(node("n1", {"cpu": 10, "memory": 10}, labels={"pool": "a"}))
        view.apply(profile("a", "a-root", {"pool": "a"}))
        view.apply(quota("team", BIG, cm(10, 10), "a-root"))
        assert view.keeps(PROFILE_OBJECT, "kube-system/a") == "its root quota a-root has children: team"
        view.delete((QUOTA_OBJECT, "quotas/team"))
        view.put(quota("a-root", BIG, namespace="kube-system"))
        assert "is the root quota of profile kube-system/a" in view.keeps(QUOTA_OBJECT, "kube-system/a-root")
        view.delete((PROFILE_OBJECT, "kube-system/a"))


class TestProfiles:
    def test_the_tree_id_is_filled_in_and_stays(self) -> None:
        view = View()
        stored = view.apply(profile("a", "a-root", {"pool": "a"}))
        tree = stored["metadata"]["labels"][P + "tree-id"]
        assert view.apply(profile("a", "a-root", {"pool": "b"}))["metadata"]["labels"][P + "tree-id"] == tree
        changed = profile("a", "a-root", {"pool": "a"}, labels={P + "tree-id": "mine"})
        assert view.refuses(changed)[0].endswith("tree-id")

    @pytest.mark.parametrize(
        ("more", "path"),
        [
            ({"resourceRatio": "1.1"}, "spec.resourceRatio"),
            ({"resourceRatio": "0"}, "spec.resourceRatio"),
            ({"resourceRatio": "-0.5"}, "spec.resourceRatio"),
            ({"resourceRatio": "most"}, "spec.resourceRatio"),
            ({"quotaName": "koordinator-root-quota"}, "spec.quotaName"),
            ({"quotaName": "Not A Name"}, "spec.quotaName"),
            ({"nodeSelector": {"matchExpressions": [{"key": "a", "operator": "Near"}]}}, "operator"),
        ],
    )
    def test_bad_profiles(self, more: Manifest, path: str) -> None:
        assert View().refuses(profile("a", "a-root", {"pool": "a"}, **more))[0].endswith(path)

    def test_a_root_name_belongs_to_one_tree(self) -> None:
        view = View()
        view.apply(profile("a", "root", {"pool": "a"}, labels={P + "tree-id": "t"}))
        assert view.refuses(profile("b", "root", {"pool": "b"}))[0] == "spec.quotaName"
        view.apply(profile("b", "root", {"pool": "b"}, labels={P + "tree-id": "t"}))
        view.put(quota("taken", BIG))
        assert view.refuses(profile("c", "taken", {"pool": "c"}))[0] == "spec.quotaName"

    def test_the_root_name_changes_only_while_nobody_uses_it(self) -> None:
        view = View(node("n1", {"cpu": 10, "memory": 10}, labels={"pool": "a"}))
        view.apply(profile("a", "root", {"pool": "a"}))
        view.apply(profile("a", "better-root", {"pool": "a"}))
        view.apply(quota("team", BIG, cm(1, 1), "better-root"))
        assert "has children: team" in view.refuses(profile("a", "root", {"pool": "a"}))[1]

    def test_children_can_come_with_the_profile(self) -> None:
        view = View(node("n1", {"cpu": 10, "memory": 10}, labels={"pool": "a"}))
        view.apply(profile("a", "root", {"pool": "a"}, resourceRatio="0.5", labels={P + "tree-id": "t"}))
        found = view.apply(quota("team", BIG, cm(5, 5), "root"))
        assert found["metadata"]["labels"][P + "tree-id"] == "t"
        assert view.refuses(quota("more", BIG, cm("1m", 0), "root"))[0] == "spec.min.cpu"
        assert view.refuses(quota("other", {"cpu": 1}, {}, "root"))[0] == "spec.max"


class TestPods:
    def test_pods_name_a_leaf(self) -> None:
        view = family()
        view.apply(quota("c", BIG, cm(1, 1), "temp"))
        view.apply(quota("d", BIG, cm(1, 1), "temp"))
        view.apply(pod("p", labels={P + "name": "c"}))
        view.apply(pod("p", labels={P + "name": "d"}))
        assert view.refuses(pod("p", labels={P + "name": "temp"}))[0].endswith("name")
        assert view.refuses(pod("new", labels={P + "name": "temp"}))[0].endswith("name")
        view.apply(pod("q", labels={P + "name": "unknown"}))

    def test_unless_parents_may_have_pods(self) -> None:
        view = family()
        configuration = {"kind": "Configuration.bursar.dev", "metadata": {"name": "default"}}
        view.put(configuration | {"spec": {"pools": {"parentQuotaPods": True}}})
        view.apply(pod("p", labels={P + "name": "temp"}))

    def test_the_preemptible_mark_stays(self) -> None:
        view = family()
        view.apply(pod("p", labels={P + "preemptible": "false"}))
        assert view.refuses(pod("p"))[0].endswith("preemptible")


def test_without_quotas_a_pod_is_left_alone() -> None:
    given = pod("p", labels={P + "name": "q"})
    assert PLUGIN.admit["Pod"](View(), None, given) is given


def test_it_joins_in_its_order() -> None:
    assert (PLUGIN.name, PLUGIN.order) == ("pools", 20)
    assert [plugin.name for plugin in Registry([PLUGIN])] == ["pools"]
    assert PLUGIN.unpreemptible is not None
    assert PLUGIN.unpreemptible({P + "preemptible": "false"}, {})
    assert not PLUGIN.unpreemptible({P + "preemptible": "no"}, {})
