"""Taking up what another engine decided and acted upon, from what it left written on the claims themselves.

A ledger that is rebuilt from a cluster knows who is where. Two things it cannot see there: for whom a claim was told
to leave (a *hold*), and who once took whose place (the no-thrash record). Both were written down by whoever decided.
"""

from __future__ import annotations

from bursar.engine.core import Core
from bursar.engine.deciding import refused
from bursar.engine.decisions import ADMITTED, HOLDING, Decision
from bursar.engine.leaving import hold, leave
from bursar.ledger.claims import HELD, Claim


def resume_hold(core: Core, claim: Claim, node: str, victims: list[Claim], at: int) -> Decision:
    """The claim gets the place that it was promised, and waits for the victims that are still there.

    Refused, and nothing changed, when quotas or the node no longer take it: then it is to be decided anew.
    """
    mark = core.tx.savepoint()
    for victim in victims:
        if victim.counts():
            leave(core, victim)
    refusals = core.attempt(claim, node, False)
    if refusals:
        core.tx.rollback_to(mark)
        return refused(claim, at, refusals)
    hold(core, claim, victims)
    outcome = HOLDING if claim.state == HELD else ADMITTED
    return Decision(claim.uid, outcome, at, claim.place, (), tuple([v.uid for v in victims]), claim.waits_for)


def recall_displaced(core: Core, claim: Claim, victim: str, owner: str) -> None:
    """The claim took the place of a pod that is gone; whoever its owner creates next carries on that pod's lineage."""
    core.lineages.displaced_before(claim, victim, owner)
