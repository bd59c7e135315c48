"""What holds of every cluster at rest: no waiting claim would be admitted if tried, and a restart changes nothing.

A cluster is at rest when it has settled and no evicted claim is leaving. The trials run in transactions that are rolled
back, so asking changes nothing.
"""

from __future__ import annotations

from bursar.control.queue import Queue
from bursar.engine.charging import Core
from bursar.engine.decide import decide, group
from bursar.engine.what_if import Assumption, Outlook
from bursar.ledger.claims import HELD, Claim
from bursar.sim.cluster import Cluster
from tests.sim.tape import Tape


class Retry(Assumption):
    """The claims of one queue entry are decided, all or none."""

    def __init__(self, uids: list[str]) -> None:
        self.uids = uids

    def run(self, core: Core, at: int, outlook: Outlook) -> None:
        claims = [core.ledger.state.claims[uid] for uid in self.uids]
        decisions = [decide(core, claims[0], at)] if len(claims) == 1 else group(core, claims, at)
        for decision in decisions:
            outlook.add(core, decision)


def is_at_rest(cluster: Cluster) -> bool:
    """Whether nothing is on its way: no claim is being evicted, none is held. Call it after the cluster settled."""
    state = cluster.engine.state
    if state.cells("revoked"):
        return False
    return not any(claim.leaving or claim.state == HELD for claim in state.claims.values())


def decidable(queue: Queue) -> list[list[Claim]]:
    """The claims of each entry that may be decided, together, most urgent first; if strict, only the first."""
    units = sorted((unit.urgency(), unit.name) for unit in queue._units.values() if unit.complete)
    if queue.strict:
        units = [entry for entry in units if not queue._never(queue._units[entry[1]])][:1]
    return [queue._units[name].claims() for _, name in units]


def admissible(cluster: Cluster) -> list[str]:
    """The waiting claims that would be admitted if they were tried now, each with what would happen."""
    engine, name = cluster.engine, cluster.controller.name
    found: list[str] = []
    for claims in decidable(cluster.controller.queue):
        outlook = engine.what_if([Retry([claim.uid for claim in claims])], cluster.now())
        for decision in outlook.decisions:
            if decision.admitted:
                victims = ", ".join(map(name, decision.victims))
                found.append(f"{name(decision.uid)} {decision.name} on {decision.place!r}, evicts [{victims}]")
    return found


def assert_at_rest(cluster: Cluster) -> None:
    """Nothing that waits would be admitted; says nothing while victims are leaving."""
    if is_at_rest(cluster):
        digest = cluster.engine.digest
        assert admissible(cluster) == []
        assert cluster.engine.digest == digest, "asking changed the ledger"


def story(cluster: Cluster) -> dict[str, tuple[str, str]]:
    """The phase and the node of each pod."""
    return {key: (pod.phase, pod.node) for key in cluster.pods() if (pod := cluster.doing(key)) is not None}


def assert_restart_changes_nothing(cluster: Cluster, tape: Tape) -> Cluster:
    """A cluster made of the journal and the objects of this one settles to the same; returns it.

    ``tape`` has followed the cluster from its beginning. A cluster with victims on their way is not asked.
    """
    restarted = tape.restart(cluster)
    before, digest = story(cluster), restarted.engine.digest
    assert digest == cluster.engine.digest
    restarted.settle()
    assert not is_at_rest(cluster) or story(restarted) == before
    return restarted
