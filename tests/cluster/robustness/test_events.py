"""A new leader tells people only what is new: events of its predecessor are not told again."""

import time
from collections import Counter

from tests.cluster.controlplane import ControlPlane
from tests.cluster.installation import BRIEF, replicas
from tests.cluster.robustness.scene import GPU, Body, Scene

MAX = f"elastic.max.{GPU}"
NO_NODE = "nodes."
CALLS = 'bursar_api_calls_total{{resource="events",verb="{}"}}'
WAITING = [f"waits-{number}" for number in range(6)]


def test_who_takes_over_tells_only_those_whose_reason_changed(plane: ControlPlane, scene: Scene) -> None:
    scene.nodes(1)
    scene.quota(4)
    with replicas(plane, 2, *BRIEF) as running:
        first, term = running.leader(), running.lease()[1]
        scene.wait_running(scene.pod("runs", 3))
        for name in WAITING:
            scene.pod(name, 2)
        scene.pod("changes", 1, nodeSelector={"there-is": "none"})
        for name, reason in {**dict.fromkeys(WAITING, MAX), "changes": NO_NODE}.items():
            scene.wait_told(name, reason)
        before = {event["metadata"]["uid"]: event for event in _events(scene)}
        first.process.kill()
        running.remove(first)
        scene.quota(3)  # others have to wait for the same reason, now with other amounts
        second = running.leader(term)
        assert "3 of its max of 3 in use" in scene.wait_told("changes", MAX)
        time.sleep(1.0)  # time to say more

        found = {event["metadata"]["uid"]: event for event in _events(scene)}
        assert {uid: found[uid] for uid in before} == before, "not even a series was written"
        assert Counter(event["regarding"]["name"] for event in found.values()) == {
            **dict.fromkeys(WAITING, 1),
            "changes": 2,
        }
        calls = second.metrics()
        assert calls[CALLS.format("list")] == 1
        assert calls[CALLS.format("create")] == 1
        assert CALLS.format("patch") not in calls


def _events(scene: Scene) -> list[Body]:
    path = f"/apis/events.k8s.io/v1/namespaces/{scene.namespace}/events"
    found: list[Body] = scene.plane.api().get(path)["items"]
    return [event for event in found if event.get("reportingController") == "bursar.dev/controller"]
