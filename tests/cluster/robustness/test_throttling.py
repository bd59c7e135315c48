"""429 for most of what the controller asks, its lease included: pods start late, and nothing is wrong."""

from tests.cluster.controlplane import ControlPlane
from tests.cluster.installation import replicas
from tests.cluster.robustness.pod_watch import Limits, observed
from tests.cluster.robustness.scene import GPU, Scene
from tests.cluster.robustness.throttling import put_leases_first, refusals, throttled
from tests.cluster.waiting import eventually

MAX = f"elastic.max.{GPU}"
PATIENT = ("--lease-duration", "60", "--renew-deadline", "50", "--retry-period", "2")
SOME, ALL = 32, 40
STARTED = "bursar_pods_started_total"
PODS_REFUSED = 'bursar_api_failures_total{code="429",resource="pods",verb="patch"}'
LEASES_REFUSED = 'bursar_api_failures_total{code="429",resource="leases",verb="patch"}'


def test_a_server_that_refuses_most_calls_gets_every_pod_started_once(plane: ControlPlane, scene: Scene) -> None:
    scene.nodes(ALL // 8)
    scene.quota(0)
    limits = Limits({scene.namespace: ALL}, ALL, by_node={GPU: 8})
    with observed(plane, limits) as seen, replicas(plane, 2, *PATIENT) as running:
        leader, before = running.leader(), running.lease()
        names = [scene.pod(f"p{number}") for number in range(ALL)]
        scene.wait_told(names[-1], MAX)
        with throttled(plane):
            scene.quota(SOME)
            eventually(lambda: seen.used[scene.namespace] == SOME, "as many start as may")
            assert leader.metrics()[PODS_REFUSED] > 0
            put_leases_first(plane)
            leases = leader.metrics().get(LEASES_REFUSED, 0)
            scene.quota(ALL)
            eventually(lambda: seen.used[scene.namespace] == ALL, "all start")
            eventually(lambda: leader.metrics()[STARTED] >= ALL, "and the leader knows it")
            after = leader.metrics()
            assert after.get(LEASES_REFUSED, 0) == leases, "none of them any more"
            assert refusals(plane) >= after[PODS_REFUSED], "by the server's own count"
        assert running.lease() == before, "all this was one term"
        assert after[STARTED] == len(seen.admitted) == ALL
        assert after["bursar_ledger_differences_total"] == 0
        assert not [name for name in after if name.startswith(("bursar_terms_total", "bursar_events_dropped_total"))]
