"""The auditor: reads a journal line by line, keeps its own books in plain dictionaries, and stops at the first lie.

It asks of every record: does it continue the chain, is the digest that of the books; is every account the sum of its
charges, never below nothing, never charged twice by a claim; does a decided claim fit the limits at the moment it is
charged; did its victims exist, could they be taken, were they told to leave before it got their place; does nobody
start before those it waits for are gone; does a claim that is gone leave nothing behind, and never come back.

It knows no rule of any policy and shares no code with the engine. ``feed`` takes a line and raises ``AuditError``.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Any

import msgspec

from bursar.audit.digests import Cost, Digest, binding_mark, mark, plain_mark, spelling

FORMAT = 1
PENDING, HELD, RESERVED = 0, 1, 2
MODES = {0: (1, 1), 1: (-1, -1), 2: (-1, 0), 3: (1, 0), 4: (0, -1)}  # what a charge adds to used and busy
PLACE, LEAVING, WAITS, SPEC = 1, 2, 3, 5
FIELDS = {PLACE: "place", LEAVING: "leaving", WAITS: "waits", SPEC: "spec"}
SPEC_KIND, CELL_KIND, ACCOUNT_KIND, LIMITS_KIND, BINDING_KIND = 16, 17, 18, 19, 32  # as digests number them
STATE_OF = {"admitted": RESERVED, "held": HELD, "waiting": PENDING, "never": PENDING}
Book = dict[str, Any]  # one claim or account
Record = list[Any]


class AuditError(Exception):
    """The first record that cannot be true."""

    def __init__(self, seq: int, problem: str) -> None:
        super().__init__(f"record {seq}: {problem}")
        self.seq, self.problem = seq, problem


class Auditor:
    """The books. ``uids_kept``: how many of the newest uids to remember, to see that none comes again (None: all)."""

    def __init__(self, uids_kept: int | None = None) -> None:
        self.seq, self.at, self.head, self.digest = 0, 0, "0" * 32, Digest()
        self.claims: dict[str, Book] = {}
        self.accounts: dict[str, Book] = {}
        self.cells: dict[tuple[str, str], object] = {}
        self.charges: dict[str, dict[tuple[str, bytes], list[Any]]] = {}  # uid: (account, cost): [cost, used, busy]
        self.waiters: dict[str, int] = {}  # uid: how many wait for it to go
        self.told: dict[str, int] = {}  # uid: when it was told to leave
        self.uids: dict[int, None] = {}
        self.uids_kept = uids_kept
        self.counts = dict.fromkeys(("records", "claims", "accounts", "decisions", "victims", "charges", "limits"), 0)
        self.last = ""  # whom the effect before was about
        self.fitting: set[str] = set()  # claims that must fit the limits when this record charges them

    def begin(self, snapshot: bytes) -> None:
        """Start from a snapshot instead of the first record: what it says is true if its digest is."""
        header, *parts = [msgspec.json.decode(line) for line in snapshot.split(b"\n")]
        _, form, self.seq, self.at, self.head, digest, _ = header
        require(form == FORMAT, f"the snapshot has format {form}; this auditor knows format {FORMAT}")
        for effect in (effect for part in parts for effect in part):
            self._effect(effect)
        require(digest == self.digest.text(), f"the snapshot says {digest}, but the books have {self.digest.text()}")

    def feed(self, line: bytes) -> None:
        """Check one line. After an error the books are of no use any more."""
        seq = self.seq + 1
        try:
            record = msgspec.json.decode(line)
            require(isinstance(record, list) and len(record) == 9, "is no journal record")
            require(record[0] == FORMAT, f"has format {record[0]}; this auditor knows format {FORMAT}")
            require(record[1] == seq, f"says that it is record {record[1]}")
            self.head = blake2b(self.head.encode() + line[:-36] + b"]", digest_size=16).hexdigest()
            require(record[8] == self.head, "does not continue the chain: it or one before it was altered")
            require(whole(record[2]) >= self.at, f"its time {record[2]} is before {self.at}, that of the record before")
            self._check(record, record[4][0] if record[4] else "")
        except AuditError as error:
            raise AuditError(seq, error.problem) from None
        except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
            raise AuditError(seq, f"cannot be understood: {type(error).__name__}: {error}") from error
        self.seq, self.at = seq, record[2]
        self.counts["records"] += 1

    def _check(self, record: Record, cause: str) -> None:
        rows: list[Record] = [] if record[5] is None else record[5] if cause == "group" else [record[5]]
        before = {uid: self.claims[uid]["spec"] for row in rows for uid in row[5][0] if uid in self.claims}
        judged = cause in {"decide", "admit", "group"}
        self.fitting = {row[0] for row in rows if judged and row[1] in {"admitted", "held"}}
        self.last = ""
        order: dict[str, int] = {}  # where in the record a claim was told to leave or got its place
        touched: set[str] = set()
        for place, effect in enumerate(record[6]):
            if self._effect(effect):
                touched.add(self.last)
            if effect[0] == "state" or effect[:3:2] == ["field", LEAVING]:
                order[self.last] = place
        books = self.digest.text()
        require(books == record[7], f"says digest {record[7]}, but the books have {books}")
        for uid in sorted(touched):
            self._check_charges(uid)
            self._check_waiting(uid)
        for row in rows:
            self._check_decision(row, record[2], cause)
            self._check_victims(row, before, order)

    # Effects

    def _effect(self, effect: Record) -> bool:
        """Do what an effect says; whether it is about a claim, which ``last`` then names."""
        kind, *rest = effect
        about = kind in {"charge", "bound", "state", "bind", "field", "drop", "claim"}
        if about:
            rest[0] = self.last = rest[0] or self.last
            require(kind == "claim" or self.last in self.claims, f"changes claim {self.last!r}, which is not there")
        getattr(self, f"_do_{kind}")(*rest)
        return about

    def _do_claim(self, uid: str, namespace: str, name: str, created: int, spec: Book) -> None:
        key = mark(uid)
        require(bool(uid) and uid not in self.claims and key not in self.uids, f"claim {uid!r} was there before")
        self.uids[key] = None
        if self.uids_kept is not None and len(self.uids) > self.uids_kept:
            del self.uids[next(iter(self.uids))]
        identity = mark(f"{len(uid)} {len(namespace)} {uid}{namespace}{name or uid} {whole(created)}")
        fresh = {"state": PENDING, "place": "", "leaving": False, "waits": [], "bindings": []}
        self.claims[uid] = {"mark": identity, "namespace": namespace, "spec": spec, **fresh}
        self.digest.swap(identity, SPEC_KIND, 0, spec_mark(spec))
        self.counts["claims"] += 1

    def _do_drop(self, uid: str) -> None:
        self._do_state(uid, PENDING)
        self._do_bind(uid, [])
        for field, nothing in ((PLACE, ""), (LEAVING, False), (WAITS, [])):
            self._do_field(uid, field, nothing)
        claim = self.claims.pop(uid)
        self.digest.swap(claim["mark"], SPEC_KIND, spec_mark(claim["spec"]), 0)

    def _do_state(self, uid: str, state: int) -> None:
        self.digest.swap(self.claims[uid]["mark"], 0, self.claims[uid]["state"], whole(state))
        self.claims[uid]["state"] = state

    def _do_field(self, uid: str, field: int, value: Any) -> None:  # noqa: ANN401 what a journal says may be anything
        claim, name = self.claims[uid], FIELDS[field]
        require(type(value) is type(claim[name]), f"{value!r} is no {name}")
        if field == WAITS:
            for other, step in [(other, -1) for other in claim[name]] + [(other, 1) for other in value]:
                self.waiters[other] = self.waiters.get(other, 0) + step
        kind, marks = (SPEC_KIND, spec_mark) if field == SPEC else (field, field_mark)
        self.digest.swap(claim["mark"], kind, marks(claim[name]), marks(value))
        claim[name] = value

    def _do_bind(self, uid: str, bindings: list[Record | None]) -> None:
        claim = self.claims[uid]
        marked: list[tuple[Record | None, int]] = []
        for binding in bindings:
            policy, names, costs, data = binding or ("", [], [], [])
            parts = [(self.accounts[name]["mark"], cost) for name, cost in zip(names, each(costs, names), strict=True)]
            marked.append((binding, 0 if binding is None else binding_mark(policy, data, parts)))
        for slot, (_, value) in enumerate(claim["bindings"]):
            self.digest.swap(claim["mark"], BINDING_KIND + slot, value, 0)
        for slot, (_, value) in enumerate(marked):
            self.digest.swap(claim["mark"], BINDING_KIND + slot, 0, value)
        claim["bindings"] = marked

    def _do_bound(self, uid: str, mode: int, slot: int) -> None:
        bindings = self.claims[uid]["bindings"]
        require(0 <= whole(slot) < len(bindings) and bindings[slot][1] > 0, f"claim {uid} has no binding {slot}")
        _, names, costs, _ = bindings[slot][0]
        self._do_charge(uid, mode, names, costs)

    def _do_charge(self, uid: str, mode: int, names: list[str], costs: list[Cost]) -> None:
        for name, cost in zip(names, each(costs, names), strict=True):
            account = self.accounts[name]
            used, busy = MODES[mode]
            require(account["physical"] or used == busy, f"mode {mode} in {name}, which is not physical")
            busy = busy if account["physical"] else 0
            self.digest.usage(account["mark"], account["busy mark"], cost, used, busy)
            key = (name, msgspec.json.encode(cost))
            entry = self.charges.setdefault(uid, {}).setdefault(key, [cost, 0, 0])
            entry[1], entry[2] = entry[1] + used, entry[2] + busy
            if entry[1:] == [0, 0]:
                del self.charges[uid][key]
            for what, amount in cost.items():
                account["used"][what] = now = account["used"].get(what, 0) + used * whole(amount)
                account["busy"][what] = taken = account["busy"].get(what, 0) + busy * amount
                require(min(now, taken) >= 0, f"{name} has {now} of {what} used, {taken} busy: less than nothing")
                if mode == 0 and uid in self.fitting and amount > 0:
                    limit = account["limits"].get(what, 0 if account["stock"] else now)
                    require(
                        now <= limit, f"{uid} was admitted, but {name} then has {now} of {what}; its limit is {limit}"
                    )
                    self.counts["limits"] += 1
            self.counts["charges"] += 1

    def _do_cell(self, _policy: str, table: str, key: str, value: object) -> None:
        old = self.cells.pop((table, key), None)
        for content, (before, after) in ((old, (1, 0)), (value, (0, 1))):
            if content is not None:
                self.digest.swap(plain_mark([table, key, content]), CELL_KIND, before, after)
        if value is not None:
            self.cells[table, key] = value

    def _do_open(self, policy: str, name: str, topic: str, physical: bool) -> None:
        require(name not in self.accounts, f"account {name} exists already")
        identity = mark(f"{len(policy)} {len(name)} {policy}{name}{topic or name} {physical}")
        empty = {"used": {}, "busy": {}, "limits": {}, "stock": False}
        self.accounts[name] = {"mark": identity, "busy mark": mark(f"busy {name}"), "physical": physical, **empty}
        self.digest.swap(identity, ACCOUNT_KIND, 0, 1)
        self.counts["accounts"] += 1

    def _do_close(self, name: str) -> None:
        account = self.accounts.pop(name)
        require(not any(account["used"].values()) and not any(account["busy"].values()), f"{name} is closed in use")
        self.digest.swap(account["mark"], ACCOUNT_KIND, 1, 0)

    def _do_limits(self, name: str, listed: Cost, stock: bool) -> None:
        account = self.accounts[name]
        old, new = limits_mark(account["limits"], account["stock"]), limits_mark(listed, stock)
        self.digest.swap(account["mark"], LIMITS_KIND, old, new)
        account["limits"], account["stock"] = listed, stock

    # What must be true after a record

    def _check_charges(self, uid: str) -> None:
        charges = self.charges.get(uid, {})
        require(uid in self.claims or not charges, f"claim {uid} is gone, but still charged {list(charges)}")
        seen: set[tuple[str, str]] = set()
        for (name, _), (cost, used, busy) in charges.items():
            physical = self.accounts[name]["physical"]
            require(used in {0, 1}, f"claim {uid} counts {used} times in {name} at {cost}")
            require(busy in {used, 1} if physical else busy == 0, f"claim {uid} is {busy} times on {name} at {cost}")
            for what in cost:
                require((name, what) not in seen, f"claim {uid} is charged twice for {what} in {name}")
                seen.add((name, what))
        if not charges:
            self.charges.pop(uid, None)

    def _check_waiting(self, uid: str) -> None:
        claim, waited = self.claims.get(uid), self.waiters.get(uid, 0)
        if not waited:
            self.waiters.pop(uid, None)
        require(not waited or (claim is not None and claim["leaving"]), f"{waited} wait for {uid}, who does not leave")
        if claim is not None:
            state, waits = claim["state"], claim["waits"]
            fits = 0 <= state <= 6 and (state == HELD) == bool(waits)
            require(fits, f"claim {uid} has state {state} and waits for {waits}")
            for other in waits:
                leaves = other in self.claims and self.claims[other]["leaving"]
                require(leaves, f"{uid} waits for {other}, who does not leave")

    def _check_decision(self, row: Record, at: int, cause: str) -> None:
        uid, outcome, decided_at, place, _, (victims, waits, _), *_ = row
        claim = self.claims.get(uid)
        require((claim is None) == (cause in {"release", "evicted"}), f"{cause}: is claim {uid} there or not?")
        told = at if claim is not None else self.told.pop(uid, decided_at)
        expected = told if cause == "evicted" else at
        require(decided_at == expected, f"its decision says time {decided_at} instead of {expected}")
        if claim is not None and cause == "tick":
            require(claim["spec"].get("preemptible", True), f"claim {uid} was taken back, but is not preemptible")
            self.told[uid] = at
        elif claim is not None and cause in {"decide", "admit", "group"}:
            state = STATE_OF[outcome]
            require(claim["state"] == state, f"claim {uid} is {outcome}, but has state {claim['state']}")
            require(claim["waits"] == waits, f"claim {uid} waits for {claim['waits']}; its decision says {waits}")
            require(place == (claim["place"] if state else ""), f"claim {uid} is not on {place!r}")
            require(not victims or state != PENDING, f"claim {uid} is {outcome}, but has victims")
        self.counts["decisions"] += 1

    def _check_victims(self, row: Record, before: dict[str, Book], order: dict[str, int]) -> None:
        uid, victims = row[0], row[5][0]
        claimant = self.claims.get(uid, {})
        for other in victims if claimant else ():
            require(other != uid and other in before and other in self.claims, f"victim {other} of {uid} was not there")
            spec, victim, group = before[other], self.claims[other], claimant["spec"].get("group")
            require(spec.get("preemptible", True), f"victim {other} of {uid} is not preemptible")
            kin = group and spec.get("group") == group and victim["namespace"] == claimant["namespace"]
            require(not kin, f"victim {other} is of the same group as {uid}")
            require(victim["leaving"] or victim["state"] == PENDING, f"victim {other} of {uid} was not told to leave")
            require(other in claimant["waits"] or not victim["leaving"], f"{uid} does not wait for its victim {other}")
            require(order.get(other, 0) <= order.get(uid, -1), f"{uid} got its place before its victim {other} left it")
            self.told[other] = row[2]
            self.counts["victims"] += 1


def require(condition: bool, problem: str) -> None:
    if not condition:
        raise AuditError(0, problem)  # whoever calls knows which


def whole(value: object) -> int:
    if type(value) is not int:
        raise TypeError(f"{value!r} is no whole number")
    return value


def each(costs: list[Cost], names: list[str]) -> list[Cost]:
    """One cost stands for all accounts."""
    return costs * len(names) if len(costs) == 1 else costs


def spec_mark(spec: object) -> int:
    return mark(msgspec.json.encode(spec, order="deterministic")) or 1


def field_mark(value: object) -> int:
    return 0 if not value else mark(value if isinstance(value, str) else spelling(value))


def limits_mark(listed: Cost, stock: bool) -> int:
    return mark(ascii(({name: whole(listed[name]) for name in sorted(listed)}, stock))) if listed or stock else 0
