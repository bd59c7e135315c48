"""What was decided last, about the claims that are there and about those that were evicted.

Decisions stand on the claims, beside the ledger's state. A replay brings them back from the records; a snapshot carries
them along (``rows``), exactly as they stood.

Most decisions of a journal are plain ones (admitted, nobody had to leave) about claims that are long gone. While a
replay runs, those wait as text, and ``settle`` reads the few that are still the last ones about a claim.
"""

from __future__ import annotations

from typing import Final, cast, final

import msgspec

from bursar.engine.deciding import displaced
from bursar.engine.decisions import ADMITTED, EVICTED, Decision, decision_from_record
from bursar.ledger.claims import PENDING, Claim
from bursar.ledger.kinds import Line
from bursar.ledger.state import State

_DEPARTED_KEPT: Final = 10_000
# How a decision without refusals, victims and waiting ends in a record: what follows its time and place.
_PLAIN: Final = msgspec.json.encode(Decision("", ADMITTED, 0).record()).partition(b'0,""')[2]


@final
class Recall:
    """The last decisions over one state."""

    __slots__ = ("departed", "state", "unread")

    def __init__(self, state: State) -> None:
        self.state: Final = state
        self.departed: Final[dict[str, tuple[str, Decision]]] = {}  # evicted and gone: (key, why), the newest only
        self.unread: Final[dict[str, tuple[int, bytes]]] = {}  # plain decisions that a replay came by: (seq, text)

    def note(self, claim: Claim, decision: Decision) -> None:
        """The decision is the last one about the claim, and about its victims.

        Who was told to leave, and is found on another node before it does, was still told to leave.
        """
        if decision.outcome == EVICTED or not self._must_leave(claim):
            claim.decision = decision
        for uid in decision.victims:
            victim = self.state.claims.get(uid)
            if victim is not None and (victim.leaving or victim.state == PENDING):
                victim.decision = displaced(victim, claim, decision)

    def _must_leave(self, claim: Claim) -> bool:
        return claim.leaving or self.state.cell("revoked", claim.uid) is not None

    def remember(self, uid: str, key: str, decision: Decision) -> None:
        """Keep why an evicted claim had to go, for those who ask later."""
        self.departed[uid] = (key, decision)
        if len(self.departed) > _DEPARTED_KEPT:
            del self.departed[next(iter(self.departed))]

    def replayed(self, line: Line) -> None:
        """A record was replayed: its decision stands again. Call ``settle`` after the last one."""
        cause = line.cause
        kind = cause[0]
        if kind == "release":
            self.unread.pop(cast("str", cause[1]), None)
            return
        text = bytes(line.decided)
        if text == b"null":
            return
        if kind == "decide" and text.endswith(_PLAIN):
            self.unread[cast("str", cause[1])] = (line.seq, text)
            return
        decided = cast("list[object]", msgspec.json.decode(text))
        for row in decided if kind == "group" else [decided]:
            self._replayed(self._read(cast("list[object]", row), line.seq), cause)

    def _replayed(self, decision: Decision, cause: list[object]) -> None:
        for uid in (decision.uid, *decision.victims):
            self.unread.pop(uid, None)
        claim = self.state.claims.get(decision.uid)
        if claim is not None:
            self.note(claim, decision)
        elif cause[0] == "evicted":
            self.remember(decision.uid, str(cause[2]), decision)

    def settle(self) -> None:
        """Read what waits as text."""
        for uid, (seq, text) in self.unread.items():
            claim = self.state.claims.get(uid)
            if claim is not None:
                claim.decision = self._read(cast("list[object]", msgspec.json.decode(text)), seq)
        self.unread.clear()

    def _read(self, record: list[object], seq: int) -> Decision:
        """A decision from a record; the names that its claim has too are once in memory, as when it was made."""
        claim = self.state.claims.get(cast("str", record[0]))
        if claim is not None:
            record[0] = claim.uid
            if record[3] == claim.place:
                record[3] = claim.place
        return decision_from_record(record, seq)

    def rows(self) -> list[msgspec.Raw]:
        """All of them as text: [key ("" while the claim is there), seq, decision]."""
        found: list[msgspec.Raw] = []
        for claim in self.state.claims.values():
            decision = claim.decision
            if isinstance(decision, Decision):
                found.append(_row("", decision))
        for key, decision in self.departed.values():
            found.append(_row(key, decision))
        return found

    def restore(self, rows: list[msgspec.Raw]) -> None:
        """The inverse of ``rows``, on the same state. One at a time: as plain data they take as much as the claims."""
        for row in rows:
            key, seq, record = cast("list[object]", msgspec.json.decode(row))
            decision = self._read(cast("list[object]", record), cast("int", seq))
            if key:
                self.remember(decision.uid, cast("str", key), decision)
            else:
                self.state.claims[decision.uid].decision = decision


def _row(key: str, decision: Decision) -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode([key, decision.seq, decision.record()]))
