"""Whose term it is, on Bursar's own namespace."""

from __future__ import annotations

import asyncio

import pytest

from bursar.kube.client.api import LEASES, NAMESPACES
from bursar.kube.client.errors import Fenced, NotFound, Unanswered
from bursar.kube.client.lease import NO_TERM
from bursar.kube.controller.leader_term import Fence, TermOptions
from bursar.kube.controller.patches import TERM
from bursar.kube.controller.work_queue import LeadershipLost
from tests.kube.controller.stage import OWN, Stage, replica, stage
from tests.kube.waiting import eventually

pytestmark = pytest.mark.anyio
LEASE = "bursar-controller"
WRITE = f"PATCH /api/v1/namespaces/{OWN}"
LOOK = f"GET /apis/coordination.k8s.io/v1/namespaces/{OWN}/leases/{LEASE}"
RENEWAL = LOOK.replace("GET", "PATCH")


def fence(cluster: Stage, identity: str = "us") -> Fence:
    return Fence(cluster.api, OWN, LEASE, identity)


def hand_lease(cluster: Stage, holder: str, term: int) -> None:
    """Whoever had it, somebody made it anew."""
    if (LEASES, OWN, LEASE) in cluster.fake.state.objects:
        cluster.fake.state.delete(LEASES, OWN, LEASE)
    spec = {"holderIdentity": holder, "leaseTransitions": term, "leaseDurationSeconds": 15}
    cluster.fake.state.create(LEASES, OWN, {"metadata": {"name": LEASE}, "spec": spec})


def marks(cluster: Stage) -> dict[str, str]:
    found: dict[str, str] = cluster.fake.state.get(NAMESPACES, "", OWN)["metadata"]["annotations"]
    return found


def calls(cluster: Stage, line: str) -> list[int]:
    """When it was called, among all calls."""
    return [at for at, seen in enumerate(cluster.fake.seen) if f"{seen.method} {seen.path}" == line]


async def test_a_term_is_written_once_and_the_rest_of_the_namespace_stays() -> None:
    async with stage() as cluster:
        cluster.write_on_namespace({"who": "somebody"})
        hand_lease(cluster, "us", 7)
        assert await fence(cluster).announced() == NO_TERM
        for _ in range(2):
            await fence(cluster).announce(7)
        assert await fence(cluster).announced() == 7
        assert marks(cluster) == {"who": "somebody", TERM: "7"}
        assert len(calls(cluster, WRITE)) == 1


async def test_who_changes_the_namespace_meanwhile_is_not_overwritten() -> None:
    async with stage() as cluster:
        hand_lease(cluster, "us", 7)
        cluster.fake.fail(WRITE, hang=0.2)
        writing = asyncio.create_task(fence(cluster).announce(7))
        await eventually(lambda: calls(cluster, WRITE))
        cluster.write_on_namespace({"who": "somebody", TERM: "3"})
        await writing
        assert marks(cluster) == {"who": "somebody", TERM: "7"}
        assert len(calls(cluster, WRITE)) == 2


@pytest.mark.parametrize("at", [f"GET /api/v1/namespaces/{OWN}", LOOK, WRITE])
async def test_whoever_is_late_never_writes_over_its_successor(at: str) -> None:
    """Wherever it was frozen, and though its own clock says that it still leads."""
    async with stage() as cluster:
        hand_lease(cluster, "us", 7)
        cluster.fake.fail(f"^{at}(\\?|$)", hang=0.2)
        writing = asyncio.create_task(fence(cluster).announce(7))
        await eventually(lambda: calls(cluster, at))
        hand_lease(cluster, "another", 8)
        cluster.announce(8)
        with pytest.raises(LeadershipLost, match="term 7 is over"):
            await writing
        assert cluster.present == "8"


async def test_what_comes_before_the_successor_does_not_stay() -> None:
    async with stage() as cluster:
        hand_lease(cluster, "us", 7)
        cluster.fake.fail(WRITE, hang=0.2)
        late = asyncio.create_task(fence(cluster).announce(7))
        await eventually(lambda: calls(cluster, WRITE))
        hand_lease(cluster, "another", 8)
        cluster.fake.fail(WRITE, hang=0.4)
        successor = asyncio.create_task(fence(cluster, "another").announce(8))
        await late
        assert cluster.present == "7"
        await successor
        assert cluster.present == "8"


async def test_what_was_written_though_the_answer_was_lost_is_found_at_the_next_try() -> None:
    async with stage() as cluster:
        hand_lease(cluster, "us", 7)
        cluster.fake.fail(WRITE, cut=True, carried_out=True)
        with pytest.raises(Unanswered):
            await fence(cluster).announce(7)
        await fence(cluster).announce(7)
        assert cluster.present == "7"
        assert len(calls(cluster, WRITE)) == 1


@pytest.mark.parametrize("found", ["", "x", "-1", "\u0661x"])
async def test_what_is_no_term_is_nobodys(found: str) -> None:
    async with stage() as cluster:
        cluster.write_on_namespace({TERM: found})
        assert await fence(cluster).announced() == NO_TERM


async def test_without_a_namespace_nobody_leads() -> None:
    async with stage() as cluster:
        cluster.fake.state.delete(NAMESPACES, "", OWN)
        assert await fence(cluster).announced() == NO_TERM
        with pytest.raises(NotFound):
            await fence(cluster).announce(1)


async def test_the_lease_gates_the_announcement_too() -> None:
    async with stage() as cluster:
        hand_lease(cluster, "us", 7)

        def over() -> float:
            raise Fenced("our time is over")

        cluster.api.http.gate = over
        with pytest.raises(Fenced):
            await fence(cluster).announce(7)
        assert cluster.present is None


# Terms of a replica


async def test_a_leader_says_whose_term_it_is_and_waits_before_it_lists_pods() -> None:
    async with stage() as cluster, replica(cluster, TermOptions(), settle=0.3) as made:
        assert cluster.present == str(made.election.term)
        (announced,) = calls(cluster, WRITE)
        assert announced < calls(cluster, "GET /api/v1/pods")[0]


@pytest.mark.parametrize("left", [{}, {TERM: "99"}], ids=["removed", "changed"])
async def test_a_term_that_somebody_takes_away_is_written_again(left: dict[str, str]) -> None:
    """The fence refuses the next start; the leader says anew whose term it is, and builds its ledger again."""
    async with stage() as cluster:
        cluster.node("n", 4)
        cluster.namespace("a")
        cluster.quota("a", 4)
        async with replica(cluster, TermOptions()) as made:
            cluster.write_on_namespace(left)
            pod = cluster.pod("a", "p", 1)
            await eventually(lambda: cluster.started(pod))
            assert made.ended["fenced"] == 1
            assert cluster.present == str(made.election.term)


async def test_a_leader_that_does_not_know_that_it_lost_its_lease_does_not_take_the_fence_back() -> None:
    """Its renewals fail, so its own time is not over; meanwhile the lease was deleted, and somebody made it anew."""
    async with stage() as cluster:
        cluster.node("n", 4)
        cluster.namespace("a")
        cluster.quota("a", 4)
        async with replica(cluster, TermOptions()) as made:
            cluster.fake.fail(RENEWAL, code=503, times=1000)
            hand_lease(cluster, "another", 8)
            cluster.announce(8)
            pod = cluster.pod("a", "p", 1)
            await eventually(lambda: made.ended["fenced"] >= 2)
            assert not cluster.started(pod)
            assert cluster.present == "8"


async def test_terms_do_not_repeat_when_the_lease_is_deleted() -> None:
    """Not even for a replica that never saw the old one."""
    async with stage() as cluster:
        for term in range(3):
            async with replica(cluster, TermOptions()) as made:
                assert made.election.term == term
                assert cluster.present == str(term)
            cluster.fake.state.delete(LEASES, OWN, LEASE)
