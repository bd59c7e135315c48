"""Every now and then: the journal is audited, and replay, snapshot and restart must give the live state again."""

from __future__ import annotations

from bursar.audit.auditor import AuditError, Auditor
from bursar.engine.decision import Decision
from bursar.engine.engine import Engine
from bursar.engine.session import Recall
from bursar.ledger.claims import PENDING
from bursar.ledger.compaction import Summary
from bursar.ledger.state import State
from bursar.ledger.transaction import read_snapshot
from bursar.policies.plugin import default_registry
from tests.all_policies.cluster_world import ClusterWorld
from tests.all_policies.engine_world import EngineWorld
from tests.all_policies.violation import require
from tests.at_rest import is_at_rest, story


class Followers:
    """What reads the journal of one engine along: an auditor, a replica, and a summary for snapshots."""

    def __init__(self) -> None:
        self.auditor: Auditor | None = Auditor()
        self.replica = Engine(default_registry().policies())
        self.summary = Summary()
        self.recall = Recall(self.summary.ledger.state)

    def check(self, engine: Engine, lines: list[bytes]) -> None:
        """The new lines bring each of them to the live state."""
        self._audit(engine, lines)
        self.replica.replay(lines)
        _same(self.replica, engine, "replay")
        for line in self.summary.follow(lines):
            self.recall.replayed(line)
        self.recall.settle()
        text = self.summary.snapshot(self.recall.rows()).text()
        restored = Engine(default_registry().policies())
        restored.restore(read_snapshot(text))
        _same(restored, engine, "snapshot")

    def _audit(self, engine: Engine, lines: list[bytes]) -> None:
        if self.auditor is None:
            return
        try:
            for line in lines:
                self.auditor.feed(line)
            require(self.auditor.digest == f"{engine.digest:016x}", "audit", "the books have another digest")
        except AuditError as error:
            self.auditor = None  # its books are of no use any more
            require(False, "audit", error)


def _same(copy: Engine, engine: Engine, rule: str) -> None:
    require(copy.digest == engine.digest, rule, "another digest")
    require(copy.version == engine.version, rule, f"version {copy.version}, not {engine.version}")
    require(copy.state.plain() == engine.state.plain(), rule, "another state")
    found, right = why_they_wait(copy.state), why_they_wait(engine.state)
    require(found == right, f"{rule}: why they wait", f"{found}, not {right}")


def why_they_wait(state: State) -> dict[str, str]:
    """The reason of each pending claim's last decision."""
    pending = [claim for claim in state.claims.values() if claim.state == PENDING]
    return {claim.key: claim.decision.reason for claim in pending if isinstance(claim.decision, Decision)}


def check_engine(world: EngineWorld, followers: Followers) -> None:
    """Followers agree."""
    followers.check(world.engine, world.engine.journal.take())
    world.counts["audits"] += 1


def check_cluster(world: ClusterWorld, followers: Followers) -> None:
    """Followers agree; at rest, the cluster that is started again is the same, and the world goes on with it."""
    cluster, tape = world.cluster, world.tape
    known = len(tape.lines)
    restarted = tape.restart(cluster)
    followers.check(cluster.engine, tape.lines[known:])
    world.counts["audits"] += 1
    _same(restarted.engine, cluster.engine, "restart")
    before, reasons = story(cluster), _reasons(world)
    resting = is_at_rest(cluster)
    world.cluster = restarted
    require(_reasons(world) == reasons, "restart: why they wait", f"{_reasons(world)}, not {reasons}")
    if not resting:
        restarted.settle()
        return
    digest = restarted.engine.digest
    restarted.settle()
    world.counts["restarts at rest"] += 1
    require(story(restarted) == before, "restart changes", f"{story(restarted)}, before it {before}")
    require(restarted.engine.digest == digest, "restart changes", "the ledger")


def _reasons(world: ClusterWorld) -> dict[str, str]:
    views = [world.cluster.pod(key) for key in world.pods("Pending")]
    return {view.key: view.reason for view in views if view is not None}
