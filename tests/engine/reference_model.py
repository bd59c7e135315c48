"""The reference model of the engine: a list of claims, sums made anew each time, every rule said once and slowly.

It does not search for victims, it judges the engine's: allowed, sufficient, minimal; none when none would have helped.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Asker:
    uid: str
    accounts: list[tuple[str, str]]  # (policy, path), quota only
    wants: dict[str, int]
    priority: int
    preemptible: bool = True
    state: str = "pending"
    place: str = ""
    leaving: bool = False
    waits: list[str] = field(default_factory=list)


@dataclass
class ReferenceModel:
    rooms: dict[tuple[str, str], dict[str, int]] = field(default_factory=dict)
    askers: dict[str, Asker] = field(default_factory=dict)
    displaced: set[tuple[str, str]] = field(default_factory=set)  # (winner, loser)

    def set_room(self, room: tuple[str, str], has: dict[str, int]) -> None:
        """Who is held on a host that has become too small even when empty waits anew."""
        self.rooms[room] = has
        for _, asker in sorted(self.askers.items()):
            there = room == ("hosts", asker.place) and asker.state == "held"
            if there and any(amount > has.get(what, 0) for what, amount in asker.wants.items()):
                self.back_to_pending(asker)

    def counted(self, asker: Asker) -> bool:
        return asker.state != "pending" and not asker.leaving

    def used(self, room: tuple[str, str], what: str, busy: bool = False) -> int:
        there = [a for a in self.askers.values() if room in [*a.accounts, ("hosts", a.place)]]
        return sum(a.wants.get(what, 0) for a in there if (a.state != "pending" if busy else self.counted(a)))

    def fits(self, asker: Asker, host: str) -> bool:
        for room in [*asker.accounts, ("hosts", host)]:
            rest = 0 if room[0] == "hosts" else 10**9
            if any(self.used(room, what) + n > self.rooms[room].get(what, rest) for what, n in asker.wants.items()):
                return False
        return True

    def hosts(self) -> list[str]:
        return sorted(path for policy, path in self.rooms if policy == "hosts")

    def barred(self, claimant: str, victim: str) -> bool:
        before, now = set[str](), {claimant}
        while now - before:
            before = set(now)
            now |= {winner for winner, loser in self.displaced if loser in now}
        return victim in now - {claimant}

    def may_displace(self, asker: Asker, victim: Asker) -> bool:
        lower = victim.priority < asker.priority and victim.preemptible
        return self.counted(victim) and lower and not self.barred(asker.uid, victim.uid)

    def remove(self, uid: str) -> None:
        victim = self.askers[uid]
        victim.leaving = victim.state != "held"
        if not victim.leaving:
            self.back_to_pending(victim)

    def back_to_pending(self, asker: Asker) -> None:
        waited, asker.waits = asker.waits, []
        asker.state, asker.place, asker.leaving = "pending", "", False
        for uid in waited:
            other = self.askers[uid]
            if other.state != "terminating" and not any(uid in a.waits for a in self.askers.values()):
                other.leaving = False
        for other in self.askers.values():
            if asker.uid in other.waits:
                other.waits.remove(asker.uid)
                other.state = other.state if other.waits or other.state != "held" else "reserved"

    def hold(self, asker: Asker, host: str, victims: list[str]) -> None:
        self.displaced |= {(asker.uid, uid) for uid in victims}
        asker.place, asker.state = host, "reserved"
        gone_soon = [uid for uid in victims if self.askers[uid].leaving]
        room = ("hosts", host)
        if any(self.used(room, what, busy=True) > self.rooms[room].get(what, 0) for what in asker.wants):
            leaving = [a.uid for a in self.askers.values() if a.leaving and a.place == host]
            gone_soon += [uid for uid in leaving if uid not in gone_soon]
        asker.waits, asker.state = gone_soon, "held" if gone_soon else "reserved"

    def gone(self, uid: str) -> None:
        if not self.askers[uid].leaving:
            self.displaced = {(w, v) for w, v in self.displaced if uid not in (w, v)}
        self.back_to_pending(self.askers[uid])
        del self.askers[uid]
