"""The embedded cluster: what pods do, what time does, and that a step is taken whole or not at all."""

from typing import Any

import pytest

from bursar.control.admission import ObjectChange
from bursar.objects.decode import ManifestError
from bursar.objects.manifests import Document
from bursar.sim.cluster import Cluster
from tests.builders import disruption_budget, node, pod, priority_class
from tests.sim.purse import registry
from tests.sim.steps import TestBed

GPU = "nvidia.com/gpu"
LEAVES_SLOWLY = {"sim.bursar.dev/leaves-after": "30s"}


def one_node(gpus: int = 4) -> TestBed:
    return TestBed(node("n1", {GPU: gpus}))


class TestPods:
    def test_a_pod_starts_at_once_where_it_fits(self) -> None:
        bed = one_node()
        bed.give(pod("p", "a", {GPU: 1}))
        assert (bed.see("a/p").phase, bed.see("a/p").node) == ("Running", "n1")
        assert bed.whole("Pod/a/p")["spec"]["nodeName"] == "n1"

    def test_a_finished_pod_makes_room(self) -> None:
        bed = one_node(1)
        bed.give(pod("p", "a", {GPU: 1}), pod("q", "a", {GPU: 1}))
        bed.finish(["a/p"])
        assert bed.phases() == {"a/p": "Succeeded", "a/q": "Running"}

    def test_only_a_running_pod_can_finish(self) -> None:
        bed = one_node(1)
        bed.give(pod("p", "a", {GPU: 2}))
        with pytest.raises(ManifestError, match="Pod a/p: is Pending: only a running pod can finish"):
            bed.finish(["a/p"])
        with pytest.raises(ManifestError, match="Pod a/x: does not exist"):
            bed.finish(["a/x"])

    def test_a_deleted_pod_is_there_until_it_left(self) -> None:
        bed = one_node(1)
        bed.give(pod("p", "a", {GPU: 1}, annotations=LEAVES_SLOWLY), pod("q", "a", {GPU: 1}))
        bed.take("Pod/a/p")
        assert bed.phases() == {"a/p": "Terminating", "a/q": "Pending"}
        assert bed.whole("Pod/a/p")["metadata"]["deletionTimestamp"] == "1970-01-01T00:00:00Z"
        bed.advance(30_000)
        assert bed.phases() == {"a/q": "Running"}

    def test_a_pod_that_never_started_leaves_at_once(self) -> None:
        bed = one_node(0)
        bed.give(pod("p", "a", {GPU: 1}, annotations=LEAVES_SLOWLY))
        bed.take("Pod/a/p")
        assert bed.phases() == {}

    def test_an_evicted_pod_can_be_created_anew(self) -> None:
        bed = one_node(1)
        bed.give(pod("p", "a", {GPU: 1}))
        first = bed.whole("Pod/a/p")["metadata"]["uid"]
        bed.give(pod("vip", "a", {GPU: 1}, priority=9))
        assert bed.phases() == {"a/p": "Evicted", "a/vip": "Running"}
        assert bed.whole("Pod/a/p")["status"]["reason"] == "engine.preempted"
        bed.give(pod("p", "a", {GPU: 1}))
        assert bed.see("a/p").phase == "Pending"
        assert bed.whole("Pod/a/p")["metadata"]["uid"] != first

    def test_a_pod_with_a_node_name_is_a_fact(self) -> None:
        bed = one_node(1)
        bed.give(pod("p", "a", {GPU: 3}, nodeName="n1"))
        assert (bed.see("a/p").phase, bed.see("a/p").node) == ("Running", "n1")
        assert bed.engine.state.account("nodes/n1").used.amount(GPU) == 3

    def test_a_fact_needs_a_node_that_exists(self) -> None:
        with pytest.raises(ManifestError, match=r"Pod a/p: spec\.nodeName: there is no node 'n9'"):
            one_node().give(pod("p", "a", nodeName="n9"))

    def test_a_victim_that_takes_its_time_is_waited_for(self) -> None:
        bed = one_node(1)
        bed.give(pod("p", "a", {GPU: 1}, annotations=LEAVES_SLOWLY))
        bed.give(pod("vip", "a", {GPU: 1}, priority=9))
        assert bed.phases() == {"a/p": "Terminating", "a/vip": "Pending"}
        bed.take("Pod/a/p")  # its owner deletes it meanwhile: it leaves no later, and nothing stays of it
        bed.advance(29_999)
        assert bed.see("a/vip").phase == "Pending"
        bed.advance(1)
        assert bed.phases() == {"a/vip": "Running"}

    def test_room_on_a_node_wakes_one_that_its_quota_refused(self) -> None:
        purse = {
            "apiVersion": "test.dev/v1",
            "kind": "Purse",
            "metadata": {"namespace": "red", "name": "x"},
            "spec": {"max": {GPU: 2}},
        }
        bed = TestBed(node("n1", {GPU: 2}), purse, registry=registry())
        bed.give(pod("low", "red", {GPU: 1}), pod("other", "blue", {GPU: 1}, priority=9))
        bed.give(pod("high", "red", {GPU: 2}, priority=5))
        assert bed.see("red/high").reason == "nodes.full", "its quota would have a victim"
        bed.finish(["blue/other"])
        assert bed.phases() == {"blue/other": "Succeeded", "red/high": "Running", "red/low": "Evicted"}


class TestTime:
    def test_settling_never_advances_it(self) -> None:
        bed = one_node()
        bed.give(pod("p", "a", {GPU: 1}, annotations={"sim.bursar.dev/runs-for": "1ms"}))
        assert (bed.now(), bed.see("a/p").phase) == (0, "Running")

    def test_what_is_due_happens_in_order(self) -> None:
        bed = one_node(1)
        for index, runs in enumerate(("30s", "1s", "2s")):
            bed.give(pod(f"p{index}", "a", {GPU: 1}, annotations={"sim.bursar.dev/runs-for": runs}))
        bed.advance(60_000)
        finished = [(h.at, h.pod) for h in bed.happenings if h.what == "finished"]
        assert finished == [(30_000, "a/p0"), (31_000, "a/p1"), (33_000, "a/p2")]
        assert bed.now() == 60_000

    def test_creation_is_virtual_time(self) -> None:
        bed = one_node()
        bed.advance(90_500)
        bed.give(pod("p", "a"))
        assert bed.whole("Pod/a/p")["metadata"]["creationTimestamp"] == "1970-01-01T00:01:30.500Z"

    @pytest.mark.parametrize(
        ("key", "value", "problem"),
        [
            ("sim.bursar.dev/runs-for", "soon", "'soon' is not a duration"),
            ("sim.bursar.dev/leaves-after", "-1s", "'-1s' is not a duration"),
            ("sim.bursar.dev/run-for", "1s", "is not known; known are"),
        ],
    )
    def test_bad_times_are_refused(self, key: str, value: str, problem: str) -> None:
        with pytest.raises(ManifestError) as caught:
            one_node().give(pod("p", "a", annotations={key: value}))
        assert str(caught.value).startswith(f"Pod a/p: metadata.annotations.{key}: {problem}")


class TestAtomicSteps:
    def test_nothing_of_a_refused_step_is_applied(self) -> None:
        bed = one_node()
        digest, version = bed.engine.digest, bed._store.version
        bad = pod("bad", "a", nodeName="nowhere")
        with pytest.raises(ManifestError):
            bed.give(pod("good", "a", {GPU: 1}), node("n2", {GPU: 1}), bad)
        assert (bed.engine.digest, bed._store.version, bed.pods()) == (digest, version, [])
        assert bed.find(*bed.kinds.reference("Node/n2")) is None

    def test_the_same_object_twice_is_refused(self) -> None:
        with pytest.raises(ManifestError, match="is given twice"):
            one_node().give(pod("p", "a"), pod("p", "a"))

    def test_deleting_is_all_or_nothing(self) -> None:
        bed = one_node()
        bed.give(pod("p", "a"))
        with pytest.raises(ManifestError, match="Pod a/q: does not exist"):
            bed.take("Pod/a/p", "Node/n1", "Pod/a/q")
        assert bed.phases() == {"a/p": "Running"}
        assert bed.whole("Node/n1")

    def test_uids_are_given_in_order_and_not_wasted(self) -> None:
        bed = one_node()
        with pytest.raises(ManifestError):
            bed.give(pod("p", "a"), pod("q", "a", nodeName="nowhere"))
        bed.give(pod("p", "a"))
        assert bed.whole("Pod/a/p")["metadata"]["uid"] == "a/p#2"


class TestUpdates:
    def test_a_pod_shrinks_and_grows_where_it_is(self) -> None:
        bed = one_node(4)
        bed.give(pod("p", "a", {GPU: 3}), pod("q", "a", {GPU: 2}))
        bed.give(pod("p", "a", {GPU: 2}))
        assert bed.phases() == {"a/p": "Running", "a/q": "Running"}

    def test_growth_that_does_not_fit_is_refused(self) -> None:
        bed = one_node(4)
        bed.give(pod("p", "a", {GPU: 3}))
        with pytest.raises(ManifestError, match=r"nodes/n1: needs 5 nvidia\.com/gpu"):
            bed.give(pod("p", "a", {GPU: 5}))
        assert bed.whole("Pod/a/p")["spec"]["containers"][0]["resources"]["requests"] == {GPU: 3}

    def test_a_waiting_pod_may_ask_for_less(self) -> None:
        bed = one_node(4)
        bed.give(pod("p", "a", {GPU: 5}))
        bed.give(pod("p", "a", {GPU: 4}))
        assert bed.see("a/p").phase == "Running"

    def test_a_pod_cannot_be_moved(self) -> None:
        bed = TestBed(node("n1", {GPU: 1}), node("n2", {GPU: 1}))
        bed.give(pod("p", "a", {GPU: 1}))
        with pytest.raises(ManifestError, match=r"spec\.nodeName: a pod cannot be moved"):
            bed.give(pod("p", "a", {GPU: 1}, nodeName="n2"))
        with pytest.raises(ManifestError, match="what it requires of its node can no longer change"):
            bed.give(pod("p", "a", {GPU: 1}, nodeSelector={"x": "y"}))
        bed.give(pod("p", "a", {GPU: 1}, nodeName="n1"))  # as read back from the cluster

    def test_generation_follows_what_is_asked_for(self) -> None:
        bed = one_node()
        bed.give(pod("p", "a", {GPU: 1}))
        bed.give(pod("p", "a", {GPU: 1}, labels={"x": "y"}))
        assert bed.whole("Pod/a/p")["metadata"]["generation"] == 1
        bed.give(pod("p", "a", {GPU: 2}, labels={"x": "y"}))
        assert bed.whole("Pod/a/p")["metadata"]["generation"] == 2
        assert bed.whole("Pod/a/p")["metadata"]["labels"] == {"x": "y"}

    def test_nothing_else_happens_when_the_same_is_applied_again(self) -> None:
        bed = one_node()
        bed.give(pod("p", "a", {GPU: 1}))
        digest = bed.engine.digest
        bed.give(pod("p", "a", {GPU: 1}))
        assert bed.engine.digest == digest


class TestPriorities:
    def test_a_pod_keeps_the_priority_it_was_created_with(self) -> None:
        bed = TestBed(node("n1", {GPU: 1}), priority_class("high", 100))
        bed.give(pod("p", "a", {GPU: 1}, priorityClassName="high"))
        bed.take("PriorityClass/high")
        bed.give(pod("p", "a", {GPU: 1}, priorityClassName="high", labels={"x": "y"}))
        claim = bed.controller.claim("a/p")
        assert claim is not None
        assert claim.spec.priority == 100
        assert bed.whole("Pod/a/p")["spec"]["priority"] == 100

    def test_a_class_of_the_same_step_counts(self) -> None:
        bed = TestBed(priority_class("high", 100), pod("p", "a", priorityClassName="high"))
        assert bed.whole("Pod/a/p")["spec"]["priority"] == 100

    def test_an_unknown_class_is_refused(self) -> None:
        with pytest.raises(ManifestError, match=r"Pod a/p: spec\.priorityClassName: there is no PriorityClass 'high'"):
            TestBed(pod("p", "a", priorityClassName="high"))

    def test_a_priority_cannot_change(self) -> None:
        bed = TestBed(pod("p", "a", priority=5))
        with pytest.raises(ManifestError, match=r"spec\.priority: is 5 since the pod was created"):
            bed.give(pod("p", "a", priority=6))


class TestLoop:
    def test_events_come_on_edges_only(self) -> None:
        bed = one_node(1)
        bed.give(pod("p", "a", {GPU: 1}), pod("q", "a", {GPU: 1}), pod("r", "a", {GPU: 1}))
        bed.give(pod("s", "b", {GPU: 1}))
        reasons = [event.reason for event in bed.events if event.key == "a/q"]
        assert reasons == ["nodes.full"]

    def test_strict_lets_nobody_pass(self) -> None:
        configuration = {
            "apiVersion": "bursar.dev/v1alpha1",
            "kind": "Configuration",
            "metadata": {"name": "default"},
            "spec": {"control": {"strict": True}},
        }
        bed = TestBed(node("n1", {GPU: 2}), configuration)
        bed.give(pod("p", "a", {GPU: 1}, priority=9, preemptionPolicy="Never"))
        bed.give(pod("big", "a", {GPU: 2}, priority=5, preemptionPolicy="Never"), pod("small", "a", {GPU: 1}))
        assert bed.phases() == {"a/big": "Pending", "a/p": "Running", "a/small": "Pending"}
        bed.take("Configuration/default")
        assert bed.see("a/small").phase == "Running"

    def test_a_budget_without_a_bound_wants_one_to_stay(self) -> None:
        bed = TestBed(node("n1", {GPU: 1}), disruption_budget("b", "a", {"app": "x"}))
        bed.give(pod("p", "a", {GPU: 1}, labels={"app": "x"}), pod("vip", "a", {GPU: 1}, priority=1))
        assert bed.see("a/vip").phase == "Running", "it was decided first"
        bed.finish(["a/vip"])
        bed.give(pod("vip2", "a", {GPU: 1}, priority=1))
        assert bed.see("a/vip2").phase == "Pending"
        bed.take("PodDisruptionBudget/a/b")
        assert bed.see("a/vip2").phase == "Running"

    def test_a_resize_that_was_only_seen_is_reported_and_counts(self) -> None:
        bed = one_node(1)
        bed.give(pod("p", "a", {GPU: 1}))
        claim = bed.controller.claim("a/p")
        assert claim is not None
        grown = bed.kinds.read(_document(pod("p", "a", {GPU: 2}) | {"status": {}}, claim.uid))
        bed.controller.apply([ObjectChange(grown.kind, grown.key, grown)])
        assert bed.events[-1].reason == "ResizeRefused"
        assert claim.spec.requests.amount(GPU) == 2

    def test_a_pod_that_was_seen_to_end_counts_no_longer(self) -> None:
        bed = one_node(1)
        bed.give(pod("p", "a", {GPU: 1}))
        claim = bed.controller.claim("a/p")
        assert claim is not None
        ended = bed.kinds.read(_document(pod("p", "a", {GPU: 1}) | {"status": {"phase": "Failed"}}, claim.uid))
        bed.controller.apply([ObjectChange(ended.kind, ended.key, ended)])
        assert bed.controller.claim("a/p") is None
        assert not bed.engine.state.claims

    def test_a_deleted_object_can_be_told_by_itself(self) -> None:
        bed = one_node(1)
        stored = bed._store.find("Node", "n1")
        assert stored is not None
        bed.controller.apply([ObjectChange(stored.applied.kind, stored.applied.key, None)])
        bed.give(pod("p", "a"))
        assert bed.see("a/p").reason == "nodes.none"


def _document(body: dict[str, Any], uid: str) -> Document:
    metadata = {**body["metadata"], "uid": uid}
    return Document("", 0, {**body, "metadata": metadata})


def test_what_would_be_stored_is_told_change_by_change() -> None:
    cluster = Cluster()
    changes = cluster.staged([Document("", 1, node("n1", {"cpu": 1})), Document("", 2, pod("p", "a", {"cpu": 1}))])
    assert [change.key for change in changes] == ["n1", "a/p"]
    cluster.apply([Document("", 1, node("n1", {"cpu": 1}))])
    assert cluster.staged([Document("", 1, node("n1", {"cpu": 1}))]) == []


def test_times_of_a_pod_that_cannot_be_read_are_refused_before_anything_changes() -> None:
    cluster = Cluster()
    bad = pod("p", "a", {"cpu": 1}, annotations={"sim.bursar.dev/runs-for": "soon"})
    with pytest.raises(ManifestError, match="runs-for"):
        cluster.staged([Document("", 1, bad)])
