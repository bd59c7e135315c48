"""The auditor: reads a journal line by line, keeps its own books in plain dictionaries, and stops at the first lie.

It knows no rule of any policy and shares no code with the engine. What it asks of every record stands where a problem
is named (``require``): first the effects change the books, then all that must be true after them is looked at.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Any

import msgspec

from bursar.audit.digest import LANES, Book, Spec, account_number, cell_number, claim_number, each_cost, mark

FORMAT, VOUCHING = 1, 2
PENDING, HELD, RESERVED = 0, 1, 2
STATE_OF = {"admitted": RESERVED, "held": HELD, "waiting": PENDING, "never": PENDING}
DECIDED = {"decide", "admit", "group"}  # causes: quotas and nodes were asked about the whole of a claim
GROWN = {"adjust", "place"}  # they were asked about what it has more than before
MODES = {0: (1, 1), 1: (-1, -1), 2: (-1, 0), 3: (1, 0), 4: (0, -1)}  # what a charge adds to used and busy
FIELDS = {0: "state", 1: "place", 2: "leaving", 3: "waits", 5: "spec"}
NUMBERS: dict[str, Any] = {"claim": claim_number, "account": account_number, "cell": cell_number}
COUNTED = ("records", "claims", "accounts", "decisions", "victims", "charges", "limits")
Record = list[Any]


class AuditError(Exception):
    """The first record that cannot be true."""

    def __init__(self, seq: int, problem: str) -> None:
        super().__init__(f"record {seq}: {problem}")
        self.seq, self.problem = seq, problem


class Auditor:
    """The books. ``uids_kept``: how many uids of admitted claims to remember, to see that none returns (None: all)."""

    def __init__(self, uids_kept: int | None = None) -> None:
        self.seq, self.at, self.head, self.sums = 0, 0, "0" * 32, [0, 0]
        self.parts: dict[str, dict[Any, Any]] = {kind: {} for kind in NUMBERS}
        self.claims: dict[str, Book] = self.parts["claim"]
        self.accounts: dict[str, Book] = self.parts["account"]
        # By uid: how many wait for a claim to go, and when its eviction began.
        self.waiters, self.told = dict[str, int](), dict[str, int]()
        # Uids of claims that were admitted; keys and values of charges, each once, because many claims have equal ones;
        # policies with physical accounts, in which evicted claims keep their place.
        self.uids, self.same, self.placing = dict[int, None](), dict[object, Any](), set[str]()
        self.uids_kept, self.counts = uids_kept, dict.fromkeys(COUNTED, 0)
        # Of the current record: the claim of the effect before; parts of the books that changed; who must fit the
        # limits, and what was used in (account, resource) before those were charged; by uid and field of a claim, the
        # effect that wrote it last; by uid, how policies that place charged it.
        self.last, self.touched, self.written = "", dict[tuple[str, Any], None](), dict[tuple[str, int], int]()
        self.modes, self.step = dict[str, set[int]](), 0
        self.fitting, self.before = set[str](), dict[tuple[str, str], int]()
        self.objects: Record = []  # what the record vouches for: sum of the objects, change, hash of it

    @property
    def digest(self) -> str:
        """The digest of the state so far, as a record has it."""
        return f"{self.sums[0] * LANES[1][0] + self.sums[1]:016x}"

    def begin(self, snapshot: bytes) -> None:
        """Start from a snapshot instead of the first record: what it says is true if its digest is."""
        header, *parts = [msgspec.json.decode(line) for line in snapshot.split(b"\n")]
        _, form, self.seq, self.at, self.head, digest, _ = header
        require(form == FORMAT, f"the snapshot has format {form}; this auditor knows format {FORMAT}")
        self.apply([effect for part in parts for effect in part])
        require(digest == self.digest, f"the snapshot says {digest}, but the books have {self.digest}")

    def feed(self, line: bytes) -> None:
        """Check one line. After an error the books are of no use any more."""
        seq = self.seq + 1
        try:
            record = msgspec.json.decode(line)
            require(isinstance(record, list) and len(record) == 9, "is no journal record")
            require(record[0] in {FORMAT, VOUCHING}, f"has format {record[0]}; this auditor knows format {VOUCHING}")
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
        specs = {uid: self.claims[uid]["spec"] for row in rows for uid in row[5][0] if uid in self.claims}
        self.fitting = {row[0] for row in rows if cause in DECIDED | GROWN and row[1] in {"admitted", "held"}}
        self.apply(record[6])
        require(
            (record[0] == VOUCHING) == bool(self.objects), f"has format {record[0]}, but vouches for {self.objects}"
        )
        require(self.digest == record[7], f"says digest {record[7]}, but the books have {self.digest}")
        self._check_limits(cause)
        for kind, key in self.touched:
            if kind == "claim":
                self._check_leaving(key)
                self._check_waiting(key)
        for row in rows:
            self._check_decision(row, record[2], cause)
            self._check_victims(row, specs)

    # Effects

    def apply(self, effects: list[Record]) -> None:
        """Do what the effects say."""
        self.last, self.touched, self.before, self.written, self.modes, self.objects = "", {}, {}, {}, {}, []
        for self.step, (kind, *rest) in enumerate(effects):
            if kind in {"charge", "bound", "state", "bind", "field", "drop", "claim"}:
                rest[0] = self.last = rest[0] or self.last
                require(kind == "claim" or self.last in self.claims, f"changes claim {self.last!r}, which is not there")
                self._touch("claim", self.last)
            getattr(self, f"_do_{kind}")(*rest)
        for part in self.touched:
            self._count(*part, 1)

    def _touch(self, kind: str, key: object) -> None:
        """A part is about to change: its number leaves the digest, and its new one comes when all is done."""
        if (kind, key) not in self.touched:
            self.touched[kind, key] = None
            self._count(kind, key, -1)

    def _count(self, kind: str, key: object, sign: int) -> None:
        part = self.parts[kind].get(key)
        number = [0, 0] if part is None else NUMBERS[kind](key, part, self.accounts)
        self.sums = [(held + sign * new) % lane[0] for held, new, lane in zip(self.sums, number, LANES, strict=True)]

    def _do_claim(self, uid: str, namespace: str, name: str, created: int, spec: Book) -> None:
        require(bool(uid) and uid not in self.claims and mark(uid) not in self.uids, f"claim {uid!r} was there before")
        identity = mark(f"{len(uid)} {len(namespace)} {uid}{namespace}{name or uid} {whole(created)}")
        fresh = {"state": PENDING, "place": "", "leaving": False, "waits": [], "bindings": b"[]", "charges": {}}
        self.claims[uid] = {"mark": identity, "namespace": namespace, "spec": Spec(spec), **fresh}
        self.counts["claims"] += 1

    def _do_drop(self, uid: str) -> None:
        self._do_field(uid, 3, [])
        charges = self.claims.pop(uid)["charges"]
        require(not charges, f"claim {uid} is gone, but still charged {charges}")

    def _do_state(self, uid: str, state: int) -> None:
        self._do_field(uid, 0, state)
        if state != PENDING:  # one that only waited may be set aside, and come back under its uid
            self.uids[mark(uid)] = None
            if self.uids_kept is not None and len(self.uids) > self.uids_kept:
                del self.uids[next(iter(self.uids))]

    def _do_field(self, uid: str, field: int, value: Any) -> None:  # noqa: ANN401 what a journal says may be anything
        claim, name = self.claims[uid], FIELDS[field]
        value = Spec(value) if name == "spec" else value
        require(type(value) is type(claim[name]), f"{value!r} is no {name}")
        for uids, step in ((claim["waits"], -1), (value, 1)) if name == "waits" else ():
            for other in uids:
                self.waiters[other] = self.waiters.get(other, 0) + step
        claim[name], self.written[uid, field] = value, self.step

    def _do_bind(self, uid: str, bindings: list[Record | None]) -> None:
        self.claims[uid]["bindings"] = msgspec.json.encode(bindings)

    def _do_bound(self, uid: str, mode: int, slot: int) -> None:
        binding: Any = dict(enumerate(msgspec.json.decode(self.claims[uid]["bindings"]))).get(whole(slot))
        require(binding is not None, f"claim {uid} has no binding {slot}")
        self._do_charge(uid, mode, binding[1], binding[2])

    def _do_charge(self, uid: str, mode: int, names: list[str], costs: list[Book]) -> None:
        charges, (used, moved) = self.claims[uid]["charges"], MODES[mode]
        for name, cost in each_cost(names, costs):
            self._touch("account", name)
            account = self.accounts[name]
            placing, busy = account["policy"] in self.placing, moved if account["physical"] else 0
            require(placing or used == moved, f"mode {mode} in {name}, which is not physical")
            self.modes.setdefault(uid, set()).update({mode} if placing else ())
            for what, amount in cost.items():
                if uid in self.fitting and amount > 0:
                    self.before.setdefault((name, what), account["used"].get(what, 0))
                held, counts, there = charges.pop((name, what), (whole(amount), 0, 0))
                require(held == amount, f"claim {uid} is charged {amount} of {what} in {name}, and {held} already")
                counts, there = counts + used, there + busy
                legal = there in {counts, 1} if account["physical"] else there == 0
                require(counts in {0, 1} and legal, f"{uid} counts {counts} and is {there} times in {name} for {what}")
                if counts or there:
                    where, how = (name, what), (amount, counts, there)
                    charges[self.same.setdefault(where, where)] = self.same.setdefault(how, how)
                account["used"][what] = account["used"].get(what, 0) + used * amount
                account["busy"][what] = account["busy"].get(what, 0) + busy * amount
            self.counts["charges"] += 1

    def _do_objects(self, *voucher: object) -> None:
        self.objects = list(voucher)

    def _do_cell(self, _policy: str, table: str, key: str, value: object) -> None:
        self._touch("cell", (table, key))
        self.parts["cell"][table, key] = value

    def _do_open(self, policy: str, name: str, topic: str, physical: bool) -> None:
        require(name not in self.accounts, f"account {name} exists already")
        self._touch("account", name)
        identity = mark(f"{len(policy)} {len(name)} {policy}{name}{topic or name} {physical}")
        empty = {"used": {}, "busy": {}, "limits": {}, "stock": False}
        self.accounts[name] = {"mark": identity, "policy": policy, "physical": physical, **empty}
        self.placing |= {policy} if physical else set()
        self.counts["accounts"] += 1

    def _do_close(self, name: str) -> None:
        self._touch("account", name)
        account = self.accounts.pop(name)
        require(not any(account["used"].values()) and not any(account["busy"].values()), f"{name} is closed in use")

    def _do_limits(self, name: str, listed: Book, stock: bool) -> None:
        self._touch("account", name)
        self.accounts[name].update(limits={what: whole(limit) for what, limit in listed.items()}, stock=stock)

    # What must be true after a record

    def _check_limits(self, cause: str) -> None:
        for (name, what), before in self.before.items():
            account, who = self.accounts[name], ", ".join(sorted(self.fitting))
            now, limit = account["used"][what], account["limits"].get(what, 0 if account["stock"] else None)
            fits = limit is None or now <= limit or (cause in GROWN and now <= before)
            require(fits, f"{who} was admitted, but {name} then has {now} of {what}; its limit is {limit}")
            self.counts["limits"] += 1

    def _check_waiting(self, uid: str) -> None:
        claim, waited = self.claims.get(uid, {}), self.waiters.get(uid, 0)
        if not waited:
            self.waiters.pop(uid, None)
        require(not waited or claim.get("leaving", False), f"{waited} wait for {uid}, who does not leave")
        state, waits = claim.get("state", PENDING), claim.get("waits", [])
        require(0 <= state <= 6 and (state == HELD) == bool(waits), f"{uid} has state {state} and waits for {waits}")
        for other in waits:
            require(self.claims.get(other, {}).get("leaving", False), f"{uid} waits for {other}, who does not leave")

    def _check_leaving(self, uid: str) -> None:
        """A claim that is evicted, and no other one, keeps a place in which it does not count."""
        claim = self.claims.get(uid, {"leaving": False, "charges": {}})
        evicted = claim["leaving"] or (uid, 2) in self.written
        for mode in self.modes.get(uid, ()):
            require(not mode or (mode > 1) == evicted, f"{uid} is charged by mode {mode}; is it evicted or not?")
        for (name, what), (_, counts, there) in claim["charges"].items():
            require(counts or not there or claim["leaving"], f"{uid} stays, and does not count in {name} for {what}")

    def moved(self, uid: str) -> int:
        """The effect by which the claim began to leave, or got another state; -1 if there is none."""
        return max(self.written.get((uid, field), -1) for field in (0, 2))

    def _check_decision(self, row: Record, at: int, cause: str) -> None:
        uid, outcome, decided_at, place, _, (victims, waits, _) = row
        claim = self.claims.get(uid)
        require((claim is None) == (cause in {"release", "evicted"}), f"{cause}: is claim {uid} there or not?")
        told = at if claim is not None else self.told.pop(uid, decided_at)
        expected = told if cause == "evicted" else at
        require(decided_at == expected, f"its decision says time {decided_at} instead of {expected}")
        if cause in DECIDED and claim is not None:
            state = STATE_OF[outcome]
            require(claim["state"] == state, f"claim {uid} is {outcome}, but has state {claim['state']}")
            require(claim["waits"] == waits, f"claim {uid} waits for {claim['waits']}; its decision says {waits}")
            require(not victims or state != PENDING, f"claim {uid} is {outcome}, but has victims")
        grew = claim is not None and claim["state"] != PENDING and (uid, 5) in self.written
        require(grew or cause != "grew", f"claim {uid} has not grown where it has its place")
        if claim is not None and cause == "tick":
            require(claim["spec"].preemptible, f"claim {uid} was taken back, but is not preemptible")
            self.told[uid] = at
        elif claim is not None:
            there = claim["place"] if outcome in {"admitted", "held"} else ""
            require(place == there, f"claim {uid} is on {there!r}, not on {place!r}")
        self.counts["decisions"] += 1

    def _check_victims(self, row: Record, specs: dict[str, Spec]) -> None:
        uid, victims = row[0], row[5][0]
        claimant = self.claims.get(uid, {})
        for other in victims if claimant else ():
            require(other != uid and other in specs and other in self.claims, f"victim {other} of {uid} was not there")
            spec, victim, group = specs[other], self.claims[other], claimant["spec"].group
            require(spec.preemptible, f"victim {other} of {uid} is not preemptible")
            kin = group and spec.group == group and victim["namespace"] == claimant["namespace"]
            require(not kin, f"victim {other} is of the same group as {uid}")
            require(victim["leaving"] or victim["state"] == PENDING, f"victim {other} of {uid} was not told to leave")
            require(other in claimant["waits"] or not victim["leaving"], f"{uid} does not wait for its victim {other}")
            require(0 <= self.moved(other) <= self.moved(uid), f"{uid} got its place before its victim {other} left it")
            self.told[other] = row[2]
            self.counts["victims"] += 1


def require(condition: bool, problem: str) -> None:
    if not condition:
        raise AuditError(0, problem)  # the caller knows the record


def whole(value: object) -> int:
    if type(value) is not int:
        raise TypeError(f"{value!r} is no whole number")
    return value
