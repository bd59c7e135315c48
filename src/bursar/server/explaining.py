"""Why a claim is where it is, as it is answered: the tree of checks, and the fixes if somebody wants them."""

from __future__ import annotations

from bursar.control import fixes as search
from bursar.policies.checks import Check
from bursar.server import verdicts
from bursar.server.moments import moment_of
from bursar.server.problems import RefusedError
from bursar.server.views import ClaimView
from bursar.sim.cluster import Cluster
from bursar.sim.fixing import fixes_for
from bursar.sim.store import timestamp


def explanation(cluster: Cluster, key: str, *, fixes: bool = False) -> verdicts.Explanation:
    """Whoever calls holds the cluster's lock; a search for fixes may take seconds."""
    row = ClaimView(cluster).row(key)
    if row is None:
        raise RefusedError(404, f"there is no claim {key!r:.200}")
    check = cluster.explain(key)
    if check is None:
        raise RefusedError(404, f"nobody remembers why {key} is {row.phase}: it ended by itself")
    found = fixes_for(cluster, row.uid) if fixes else search.Found()
    return verdicts.Explanation(
        claim=row,
        tree=_node(check),
        text="\n".join(check.lines()),
        moment=moment_of(cluster),
        fixes=[_fix(cluster, fix) for fix in found.fixes],
        fixes_complete=found.complete,
    )


def _node(check: Check) -> verdicts.CheckNode:
    return verdicts.CheckNode(
        title=check.title,
        passed=check.passed,
        note=check.note,
        reason=check.reason,
        binding=check.binding,
        checks=[_node(child) for child in check.children],
    )


def _fix(cluster: Cluster, fix: search.Fix) -> verdicts.Fix:
    name = cluster.controller.name
    return verdicts.Fix(
        code=fix.code,
        sentence=fix.sentence,
        edits=[
            verdicts.FixEdit(
                kind=edit.kind, key=edit.key, field=edit.field, before=edit.before, after=edit.after, anew=edit.anew
            )
            for edit in fix.edits
        ],
        waits_for=[name(uid) for uid in fix.waits_for],
        ends_at="" if fix.ends_at is None else timestamp(fix.ends_at),
        evicts=[name(uid) for uid in fix.evicts],
        node=fix.node,
    )
