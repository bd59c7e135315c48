"""What docs/kubernetes/failure-modes.md promises, on a real control plane."""

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

from bursar.kube.controller.patches import ADMISSION, HOLD
from tests.cluster.controlplane import ControlPlane
from tests.cluster.controlplane.api import ApiError
from tests.cluster.controlplane.identities import BURSAR
from tests.cluster.controlplane.objects import pod
from tests.cluster.installation import BRIEF, BRIEFEST, LEASE, Replica, Replicas, install, replicas, take_away
from tests.cluster.robustness.pod_watch import Limits, observed
from tests.cluster.robustness.scene import GPU, Body, Scene
from tests.cluster.waiting import eventually

MAX = f"elastic.max.{GPU}"
STARTED = "bursar_pods_started_total"
HOUR = 3600
LOOKS = 17  # at a lease, of one who waits for it: together longer than the lease lasts
LOOKED = 'bursar_api_calls_total{resource="leases",verb="get"}'


def test_without_bursar_governed_pods_wait_and_all_others_go_on(plane: ControlPlane, scene: Scene) -> None:
    scene.nodes(1)
    scene.quota(4)
    free = plane.create_namespace()
    scene.pod("waits")
    scene.pod("goes", namespace=free)
    path = f"/api/v1/namespaces/{free}/pods/goes"
    eventually(lambda: plane.api().get(path)["status"].get("phase") == "Running", "a pod nobody governs runs")
    assert scene.gated("waits")
    with replicas(plane):
        scene.wait_running("waits")
    plane.delete_namespace(free)


def test_running_pods_go_on_when_bursar_stops_and_count_when_it_is_back(plane: ControlPlane, scene: Scene) -> None:
    scene.nodes(1)
    scene.quota(4)
    with replicas(plane):
        scene.wait_running(scene.pod("first", 3))
    assert scene.runs("first")
    scene.pod("second", 2)
    with replicas(plane):
        assert "3 of its max of 4 in use" in scene.wait_told("second", MAX)
        scene.delete("first")
        scene.wait_running("second")


def test_bursar_is_uninstalled_and_installed_again(plane: ControlPlane, scene: Scene) -> None:
    """On the same server, which remembers of the first time whatever it likes."""
    scene.nodes(1)
    scene.quota(4)
    with replicas(plane):
        scene.wait_running(scene.pod("first"))
    try:
        take_away(plane)
        scene.wait_running(scene.pod("ungoverned"))
    finally:
        install(plane)
    with replicas(plane):
        scene.wait_running(scene.pod("second"))
        assert scene.annotation("second", ADMISSION)
    ungoverned = scene.get("ungoverned")
    assert ungoverned is not None
    assert ADMISSION not in ungoverned["metadata"].get("annotations", {})


def test_the_api_server_is_restarted(plane: ControlPlane, scene: Scene) -> None:
    scene.nodes(1)
    scene.quota(4)
    with replicas(plane) as running:
        scene.wait_running(scene.pod("before", 3))
        plane.restart_component("kube-apiserver")
        scene.pod("within", 1)
        scene.wait_running("within", seconds=150)
        scene.pod("beyond", 1)
        scene.wait_told("beyond", MAX, seconds=150)
        (replica,) = running.running.values()
        assert replica.process.running


def test_what_happened_behind_an_expired_watch_is_found_by_comparing(plane: ControlPlane, scene: Scene) -> None:
    """The leader is frozen, stays leader, and all its watches end in a server that has forgotten where they were."""
    scene.nodes(1)
    scene.quota(4)
    limits = Limits({scene.namespace: 6}, 6, by_node={GPU: 8})
    patient = ("--lease-duration", "60", "--renew-deadline", "50", "--compare-every", "0.5")
    with observed(plane, limits) as seen, replicas(plane, 1, *patient) as running:
        leader, before = running.leader(), running.lease()
        scene.wait_running(scene.pod("stays", 1), scene.pod("goes", 3))
        scene.pod("waits", 4)
        scene.wait_told("waits", MAX)
        leader.process.freeze()
        plane.api().create(f"/api/v1/namespaces/{scene.namespace}/configmaps", {"metadata": {"name": "newer-than-all"}})
        plane.restart_component("kube-apiserver")
        gone = scene.uid("goes")
        scene.delete("goes")
        scene.quota(6)
        scene.pod("comes", 1)
        eventually(lambda: gone not in seen.pods and scene.uid("comes") in seen.pods, "all that is seen by others")
        assert scene.gated("waits")
        leader.process.thaw()
        scene.wait_running("waits", "comes")
        for collection in ("pods", "elasticquotas", "nodes"):
            _wait_expired(leader, collection)
        scene.pod("beyond", 1)
        assert "6 of its max of 6 in use" in scene.wait_told("beyond", MAX)
        assert running.lease() == before, "all this was one term"
        time.sleep(1.6)  # it compares every half second, when it looks at the clock
        assert _counted(leader, scene) == 6
        _never_differed(leader)
        assert seen.used[scene.namespace] == 6


def _wait_expired(leader: Replica, collection: str) -> None:
    """Until the server told it 410 about that collection."""

    def told() -> list[str]:
        return [line for line in leader.process.log.read_text().splitlines() if f"/{collection}: relisting" in line]

    lines = eventually(told, f"{collection} are listed anew")
    assert all("too old resource version" in line for line in lines), lines


def _counted(leader: Replica, scene: Scene) -> float:
    """GPUs that count against the quota in the leader's ledger."""
    account = f"elastic/ElasticQuota/{scene.namespace}/quota"
    return leader.metrics()[f'bursar_account_used{{account="{account}",policy="elastic",resource="{GPU}"}}']


def test_a_replica_whose_clock_is_wrong_waits_its_turn_and_leads_like_others(plane: ControlPlane, scene: Scene) -> None:
    """One is an hour ahead; after it one that is an hour behind, and then one that is right again."""
    scene.nodes(1)
    scene.quota(4)
    with observed(plane, Limits({scene.namespace: 4}, 4, by_node={GPU: 8})), replicas(plane, 1, *BRIEF) as running:
        scene.wait_running(scene.pod("first", 3))
        ahead = _pass_on(running, HOUR)
        assert abs(_renewed_ahead(plane) - HOUR) < HOUR / 2, "its clock really is wrong"
        scene.pod("second", 2)
        assert "3 of its max of 4 in use" in scene.wait_told("second", MAX)
        scene.delete("first")
        scene.wait_running("second")
        _never_differed(ahead)

        behind = _pass_on(running, -HOUR)
        assert abs(_renewed_ahead(plane) + HOUR) < HOUR / 2
        scene.pod("third", 3)
        assert "2 of its max of 4 in use" in scene.wait_told("third", MAX)
        scene.delete("second")
        scene.wait_running("third")
        _never_differed(behind)

        _pass_on(running)
        scene.pod("fourth", 2)
        assert "3 of its max of 4 in use" in scene.wait_told("fourth", MAX)


def _pass_on(running: Replicas, skew: int = 0) -> Replica:
    """Another replica takes over from the leader, when that is dead and not before; who leads then."""
    before, (leader, term) = running.lease(), running.leading()
    other = running.start(skew)
    eventually(lambda: other.metrics().get(LOOKED, 0) >= LOOKS, "it looked for longer than a lease lasts")
    assert running.lease() == before, "a lease that is renewed is not taken away, however odd its times"
    leader.process.kill()
    running.remove(leader)
    assert running.leader(term) is other
    return other


def _never_differed(leader: Replica) -> None:
    """Ledger and cluster, in any term; and no ledger was given up, with its count."""
    found = leader.metrics()
    assert found["bursar_ledger_differences_total"] == 0
    assert not found.get('bursar_terms_total{why="rebuilt"}')
    assert not found.get('bursar_terms_total{why="failed"}')


def _renewed_ahead(plane: ControlPlane) -> float:
    """By how many seconds the renewal of the lease lies in the future."""
    renewed = datetime.fromisoformat(plane.api().get(LEASE)["spec"]["renewTime"])
    return (renewed - datetime.now(UTC)).total_seconds()


def test_a_decision_that_was_never_written_is_made_again(plane: ControlPlane, scene: Scene) -> None:
    """The leader decides, cannot write, and is killed: the next one decides anew, and nothing counts twice."""
    scene.nodes(1)
    scene.quota(4)
    with replicas(plane, 1, *BRIEFEST) as running:
        leader, term = running.leading()
        with _bursar_may_not(plane, "UPDATE", "pods"):
            scene.pod("first", 3)
            eventually(lambda: "not today" in leader.process.log.read_text(), "the leader tried to write")
            leader.process.kill()
            running.remove(leader)
        running.start()
        running.leader(term)
        scene.wait_running("first")
        scene.pod("second", 2)
        assert "3 of its max of 4 in use" in scene.wait_told("second", MAX)


@contextmanager
def _bursar_may_not(plane: ControlPlane, operation: str, resource: str) -> Iterator[None]:
    """While this holds, the API server refuses such calls of Bursar."""
    rules = {"apiGroups": [""], "apiVersions": ["v1"], "operations": [operation], "resources": [resource]}
    rule = {"expression": "!request.userInfo.username.endsWith(':bursar')", "message": "not today"}
    policy = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": "not-today"},
        "spec": {"matchConstraints": {"resourceRules": [rules]}, "validations": [rule], "failurePolicy": "Fail"},
    }
    binding = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": "not-today"},
        "spec": {"policyName": "not-today", "validationActions": ["Deny"]},
    }
    namespace = plane.create_namespace()
    plane.api().create(f"/api/v1/namespaces/{namespace}/pods", pod("probe"))
    for body in (policy, binding):
        plane.kubectl("apply", "-f", "-", input=json.dumps(body))
    eventually(lambda: _may_not(plane, namespace, resource), "the server refuses")
    try:
        yield
    finally:
        plane.kubectl("delete", "validatingadmissionpolicybinding,validatingadmissionpolicy", "not-today")
    eventually(lambda: not _may_not(plane, namespace, resource), "the server refuses no more")
    plane.delete_namespace(namespace)


def _may_not(plane: ControlPlane, namespace: str, resource: str) -> bool:
    """Whether Bursar is refused to change, or to evict, the pod there."""
    path = f"/api/v1/namespaces/{namespace}/pods/probe"
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "probe"}}
    try:
        if resource == "pods":
            plane.api(BURSAR).patch(f"{path}?dryRun=All", {"metadata": {"labels": {"probed": "true"}}})
        else:
            plane.api(BURSAR).create(f"{path}/eviction?dryRun=All", eviction)
    except ApiError as error:
        if "not today" not in error.message:
            raise
        return True
    return False


def test_a_pod_that_is_deleted_while_others_leave_for_it_holds_nothing(plane: ControlPlane, scene: Scene) -> None:
    scene.nodes(1, gpus=4)
    scene.quota(4)
    with replicas(plane):
        scene.wait_running(scene.pod("victim", 4, **_leaves_after("5m")))
        _priority_class(plane, scene)
        scene.pod("claimant", 4, priorityClassName="bad-day-urgent")
        eventually(lambda: scene.leaves("victim"), "the victim is told to leave")
        assert scene.annotation("claimant", HOLD)
        scene.delete("claimant")
        scene.pod("third", 4)
        assert scene.get("victim") is not None, "all this while it is leaving"
        assert scene.gated("third")
        plane.api().delete(f"{scene.pods}/victim", {"gracePeriodSeconds": 0})
        scene.wait_running("third")


def test_evictions_that_a_leader_began_are_finished_by_the_next(plane: ControlPlane, scene: Scene) -> None:
    """Two have to leave for one pod. The leader ends when it wrote that down, and one of them was told to leave."""
    scene.nodes(1, gpus=4)
    scene.quota(4)
    with replicas(plane, 1, *BRIEFEST) as running:
        lent = [scene.pod(f"p{number}", **_leaves_after("1s")) for number in range(4)]
        scene.wait_running(*lent)
        uids = {scene.uid(name): name for name in lent}
        _priority_class(plane, scene)
        leader, term = running.leading()
        with _bursar_may_not(plane, "CREATE", "pods/eviction"):
            scene.pod("claimant", 2, priorityClassName="bad-day-urgent")
            eventually(lambda: "not today" in leader.process.log.read_text(), "the leader tried to evict")
            leader.process.kill()
            running.remove(leader)
        held = json.loads(scene.annotation("claimant", HOLD))
        victims = [uids[uid] for uid, _ in held["victims"]]
        assert len(victims) == 2
        eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": victims[0]}}
        plane.api().create(f"{scene.pods}/{victims[0]}/eviction", eviction)
        running.start()
        running.leader(term)
        scene.wait_running("claimant")
        assert {name for name in lent if not scene.runs(name)} == set(victims), "they, and nobody else"
        displaced = json.loads(scene.annotation("claimant", ADMISSION))["displaced"]
        assert sorted(displaced) == sorted(held["victims"])


def _leaves_after(duration: str) -> Body:
    """What makes a pod take so long to leave: without a grace period the API server removes it at once."""
    return {"annotations": {"sim.bursar.dev/leaves-after": duration}, "terminationGracePeriodSeconds": 30}


def test_a_pin_that_cannot_be_honoured_is_given_up(plane: ControlPlane, scene: Scene) -> None:
    node, other = scene.nodes(2)
    scene.quota(8)
    with replicas(plane, 1, "--pin-all", "--pin-patience", "2"), _taking_back(plane, "all"):
        plane.stop_component("kube-scheduler")
        try:
            scene.pod("pinned", 2)
            eventually(lambda: not scene.gated("pinned"), "the pod is let go")
            chosen = json.loads(scene.annotation("pinned", ADMISSION))["place"]
            assert chosen in {node, other}
            plane.kubectl("cordon", chosen)
        finally:
            plane.start_component("kube-scheduler")
        scene.wait_told("pinned", "control.place-lost")
        eventually(lambda: scene.get("pinned") is None, "it is evicted, for its owner to create it anew")
        scene.wait_running(scene.pod("again", 8))


@contextmanager
def _taking_back(plane: ControlPlane, whom: str) -> Iterator[None]:
    body = {
        "apiVersion": "bursar.dev/v1alpha1",
        "kind": "Configuration",
        "metadata": {"name": "default"},
        "spec": {"control": {"takeBack": whom}},
    }
    plane.kubectl("apply", "-f", "-", input=json.dumps(body))
    try:
        yield
    finally:
        plane.kubectl("delete", "configurations.bursar.dev", "default")


def test_pods_on_a_node_that_is_gone_count_until_they_are_gone(plane: ControlPlane, scene: Scene) -> None:
    first, _second = scene.nodes(2, gpus=4)
    scene.quota(4)
    with replicas(plane):
        scene.wait_running(scene.pod("stays", 3, nodeSelector={"kubernetes.io/hostname": first}))
        scene.lose_node(first)
        scene.pod("next", 2)
        scene.wait_told("next", MAX)
        plane.api().delete(f"{scene.pods}/stays", {"gracePeriodSeconds": 0})
        scene.wait_running("next")


def test_a_quota_that_is_deleted_and_made_anew_sees_the_true_usage(plane: ControlPlane, scene: Scene) -> None:
    scene.nodes(1)
    scene.quota(4)
    with replicas(plane):
        scene.wait_running(scene.pod("first", 3))
        scene.delete_quota()
        scene.quota(4)
        eventually(lambda: scene.used() == {GPU: "3"}, "the new quota says what counts")
        scene.pod("second", 2)
        assert "3 of its max of 4 in use" in scene.wait_told("second", MAX)


def test_conflict_storms_change_nothing(plane: ControlPlane, scene: Scene) -> None:
    """Somebody writes on the same pods all the time; each is admitted, once."""
    scene.nodes(2)
    scene.quota(8)
    over = threading.Event()

    def storm() -> None:
        number = 0
        while not over.is_set():
            number += 1
            for name in names:
                try:
                    plane.api().patch(f"{scene.pods}/{name}", {"metadata": {"labels": {"storm": str(number)}}})
                except ApiError as error:
                    assert error.status in {404, 409}  # noqa: PT017 anything else is a fault

    names = [f"p{number}" for number in range(8)]
    with observed(plane, Limits({scene.namespace: 8}, 8, by_node={GPU: 8})) as seen, replicas(plane) as running:
        for name in names:
            scene.pod(name)
        thread = threading.Thread(target=storm)
        thread.start()
        try:
            scene.wait_running(*names)
        finally:
            over.set()
            thread.join()
        leader = running.leader()
        eventually(lambda: len(seen.admitted) >= len(names), "all that is seen by others")
        assert leader.metrics()[STARTED] == len(seen.admitted) == len(names)
        _never_differed(leader)


def test_a_victim_that_the_api_never_evicts_is_left_alone(plane: ControlPlane, scene: Scene) -> None:
    """Two budgets over one pod: the API answers 500. Somebody else has to go, if there is somebody."""
    scene.nodes(1, gpus=4)
    scene.quota(4)
    for name in ("one", "two"):
        budget = {
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": {"name": name, "namespace": scene.namespace},
            "spec": {"maxUnavailable": 1, "selector": {"matchLabels": {"app": "guarded"}}},
        }
        plane.kubectl("apply", "-f", "-", input=json.dumps(budget))
    with replicas(plane):
        scene.wait_running(scene.pod("plain", 2))
        time.sleep(1.1)  # the guarded one is the newer, and would be the victim
        scene.wait_running(scene.pod("guarded", 2, labels={"app": "guarded"}))
        _priority_class(plane, scene)
        scene.pod("claimant", 2, priorityClassName="bad-day-urgent")
        scene.wait_running("claimant")
        assert scene.runs("guarded")
        assert scene.get("plain") is None


def _priority_class(plane: ControlPlane, scene: Scene) -> None:
    """A priority class that pods can name when this returns."""
    body = {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": "bad-day-urgent"},
        "value": 1000,
    }
    plane.kubectl("apply", "-f", "-", input=json.dumps(body))
    eventually(lambda: scene.takes(priorityClassName="bad-day-urgent"), "the server knows the priority class")
