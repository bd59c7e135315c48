"""Acting upon decisions: who starts and who leaves, what policies want taken back or written, and what people are told.

Everything goes out through the ports. Each function says whether it did anything: the loop goes on until none did.
"""

from __future__ import annotations

from bursar.control import ports as outside
from bursar.control.crowding import in_the_way
from bursar.control.ports import Ports
from bursar.control.watching import Watch
from bursar.engine.decisions import HOLDING, Decision
from bursar.engine.engine import Engine
from bursar.ledger.claims import Claim
from bursar.policies.settings import Output


class Actor:
    """The hands of the loop."""

    def __init__(self, engine: Engine, watch: Watch, ports: Ports) -> None:
        self._engine = engine
        self._watch = watch
        self._ports = ports

    def act(self) -> bool:
        """Let those leave who must, and those start who may; who is not to start yet is looked at again."""
        watch = self._watch
        if not watch.leaving and not watch.reserved:
            return False
        leaving, reserved = list(watch.leaving.values()), list(watch.reserved.values())
        watch.leaving.clear()
        watch.reserved.clear()
        for claim in leaving:
            if isinstance(claim.decision, Decision):
                self._evict(claim, claim.decision)
        for claim in reserved:
            if in_the_way(self._engine.state, claim):
                watch.reserved[claim.uid] = claim
            else:
                self._ports.start(claim)
        return bool(leaving) or len(watch.reserved) < len(reserved)

    def revoke(self) -> bool:
        """Take back what policies say is over-used now."""
        decisions = self._engine.tick(self._ports.now())
        for decision in decisions:
            self._evict(self._engine.claim(decision.uid), decision)
        return bool(decisions)

    def _evict(self, claim: Claim, decision: Decision) -> None:
        self.event(claim, outside.WARNING, outside.EVICTED, decision.sentence())
        self._ports.evict(claim, decision)

    def write(self) -> bool:
        """Write what the policies want written; that may be read back as an object, so it is another round."""
        outputs = self._engine.outputs(self._ports.now())
        for output in outputs:
            self._write_one(output)
        return bool(outputs)

    def _write_one(self, output: Output) -> None:
        if output.part == "event":
            value = output.value or {}
            parts = (str(value.get(name, "")) for name in ("type", "reason", "message"))
            self._ports.event(output.kind, output.key, *parts)
        else:
            self._ports.write(output)

    def tell(self, claim: Claim, decision: Decision) -> None:
        """Tell people of a decision that says something new."""
        if decision.outcome == HOLDING:
            claims = self._engine.state.claims
            waits = ", ".join(claims[uid].key if uid in claims else uid for uid in claim.waits_for)
            where = f" on {claim.place}" if claim.place else ""
            self.event(claim, outside.NORMAL, outside.HELD, f"held{where} until {waits} left")
        elif decision.admitted:
            self.event(claim, outside.NORMAL, outside.ADMITTED, decision.sentence())
        else:
            self.event(claim, outside.WARNING, decision.reason, decision.sentence())

    def event(self, claim: Claim, type_: str, reason: str, message: str) -> None:
        self._ports.event("Pod", claim.key, type_, reason, message)
