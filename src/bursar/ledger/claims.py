"""Claims: whatever asks for resources, and the bindings that tie a claim to accounts.

A claim is split in two. ``ClaimSpec`` is what was asked for: immutable, and shared by all claims that ask for the
same (a thousand pods of one job share one spec). ``Claim`` is one asker: its identity and its mutable status,
which only changes of a transaction write (see ``ledger.claim_changes``).

    pending ──► reserved ──► bound ──► running ──► terminating ──► gone
        └─────► held ──┘  (its place is decided, but its victims have not left yet)

A claim counts from reserved (or held) on, until it is gone. ``leaving`` marks an evicted claim: quota accounts no
longer count it, its node and GPUs stay physically busy until it is gone.

A *mark* is a stable number for a plain value, the same in every process, interpreted and compiled. Cells and the data
of bindings enter the digest by their marks. A mark is a pair of residues: a text is a polynomial of its characters, a
tuple one of the marks of its items. Fifth powers, which are one to one here, keep marks from adding up linearly: else
different states could have equal digests. Marks find mistakes and accidents. Against forgery there is the hash chain of
the journal (``ledger.journal``).
"""

from __future__ import annotations

from sys import intern
from typing import TYPE_CHECKING, Final, cast, final

import msgspec
from mypy_extensions import i64, mypyc_attr

from bursar.resources import EMPTY, Vector, fingerprint, fingerprint_bytes, from_amounts, name_mark
from bursar.selectors import NO_NEEDS, NodeNeeds, needs_from_record

if TYPE_CHECKING:
    from bursar.ledger.state import Account


_A: Final[i64] = 2147483647
_B: Final[i64] = 2147483629
_NONE: Final[i64] = 1
_TRUE: Final[i64] = 2
_FALSE: Final[i64] = 3
# Numbers, tuples and texts start from here.
_NUMBER: Final[i64] = 1013904223
_TUPLE: Final[i64] = 1664525
_TEXT: Final[i64] = 22695477
_WIDEST: Final = 2**60  # numbers beyond are marked as texts


def plain_mark(value: object) -> i64:
    """The mark of None, a bool, an int, a str, a vector or a tuple of those."""
    if isinstance(value, str):
        return _text_mark(value)
    if isinstance(value, tuple):
        return _tuple_mark(value)
    if isinstance(value, Vector):
        return _stirred(value.lane_a, value.lane_b)
    if value is None:
        return _NONE
    if isinstance(value, bool):
        return _TRUE if value else _FALSE
    if isinstance(value, int):
        return _number_mark(value)
    raise TypeError(f"{value!r} is not plain")


def cell_mark(table: i64, key: str, value: object) -> i64:
    """The mark of the tuple of the three; ``table`` is the mark of its name."""
    second = _text_mark(key)
    third = plain_mark(value)
    a = (((_TUPLE + 3) * 48271 + table % _A) % _A * 48271 + second % _A) % _A
    b = (((_TUPLE + 3) * 40692 + table % _B) % _B * 40692 + second % _B) % _B
    return _stirred((a * 48271 + third % _A) % _A, (b * 40692 + third % _B) % _B)


def _text_mark(text: str) -> i64:
    a: i64 = _TEXT + len(text)
    b: i64 = a
    for i in range(len(text)):
        character: i64 = ord(text[i])
        a = (a * 48271 + character) % _A
        b = (b * 40692 + character) % _B
    return _stirred(a, b)


def _tuple_mark(items: tuple[object, ...]) -> i64:
    a: i64 = _TUPLE + len(items)
    b: i64 = a
    for item in items:
        mark = plain_mark(item)
        a = (a * 48271 + mark % _A) % _A
        b = (b * 40692 + mark % _B) % _B
    return _stirred(a, b)


def _number_mark(number: int) -> i64:
    if not -_WIDEST < number < _WIDEST:
        return _text_mark(str(number))
    small: i64 = number
    a = _fifth_a((small + _NUMBER) % _A)
    b = _fifth_b((small + _NUMBER) % _B)
    return _stirred((a * 48271 + 1) % _A, (b * 40692 + 1) % _B)


def _stirred(a: i64, b: i64) -> i64:
    """Two residues as one number, after a step that follows no sum."""
    return _fifth_a(a) * _B + _fifth_b(b)


# Two functions, because a division by a constant is compiled to a multiplication.
def _fifth_a(x: i64) -> i64:
    square = x * x % _A
    return square * square % _A * x % _A


def _fifth_b(x: i64) -> i64:
    square = x * x % _B
    return square * square % _B * x % _B


PENDING: Final = 0
HELD: Final = 1
RESERVED: Final = 2
BOUND: Final = 3
RUNNING: Final = 4
TERMINATING: Final = 5
GONE: Final = 6
STATES: Final = ("pending", "held", "reserved", "bound", "running", "terminating", "gone")


@final
@mypyc_attr(acyclic=True)
class ContainerSpec:
    """One container of a claim; ``role`` is ``main``, ``init`` or ``sidecar``."""

    __slots__ = ("limits", "name", "requests", "role")

    def __init__(self, name: str, requests: Vector, limits: Vector, role: str = "main") -> None:
        self.name: Final = name
        self.requests: Final = requests
        self.limits: Final = limits
        self.role: Final = role

    def record(self) -> list[object]:
        return [self.name, dict(self.requests.pairs()), dict(self.limits.pairs()), self.role]


_EMPTY_SPEC: Final = 1_024  # bytes
_GROWTH: Final = 4  # how much larger objects are than their record


@final
@mypyc_attr(acyclic=True)
class ClaimSpec:
    """What is asked for: shared between claims, never changed."""

    __slots__ = (
        "annotations",
        "containers",
        "details",
        "devices",
        "group",
        "group_size",
        "labels",
        "limits",
        "mark_cache",
        "needs",
        "owner",
        "placeable",
        "preemptible",
        "preempts",
        "priority",
        "quota_requests",
        "requests",
        "size",
    )

    def __init__(
        self,
        requests: Vector = EMPTY,
        limits: Vector = EMPTY,
        containers: tuple[ContainerSpec, ...] = (),
        labels: dict[str, str] | None = None,
        annotations: dict[str, str] | None = None,
        priority: int = 0,
        preemptible: bool = True,
        preempts: bool = True,
        owner: str = "",
        group: str = "",
        group_size: int = 0,
        needs: NodeNeeds = NO_NEEDS,
        details: dict[str, object] | None = None,
        placeable: bool = True,
        devices: Vector = EMPTY,
    ) -> None:
        self.requests: Final = requests  # effective, by the Kubernetes rule: what it takes of a node
        self.devices: Final = devices  # what its claims of devices cost in quotas, and take of no node's amounts
        self.quota_requests: Final = requests.plus(devices) if devices else requests
        self.limits: Final = limits
        self.containers: Final = containers
        self.labels: Final = labels if labels is not None else {}
        self.annotations: Final = annotations if annotations is not None else {}
        self.priority: Final = priority
        self.preemptible: Final = preemptible
        self.preempts: Final = preempts
        self.owner: Final = owner  # the controller that would create it again, "" if none
        self.group: Final = group
        self.group_size: Final = group_size
        self.needs: Final = needs
        self.details: Final = details if details is not None else {}  # plain data by policy, for claims without a pod
        self.placeable: Final = placeable  # False: judged by quota policies only, takes no node
        self.mark_cache: i64 = 0
        self.size: i64 = 0  # of its record in bytes; known with the mark

    @property
    def mark(self) -> i64:
        """A stable number for the content, computed once: specs are shared by many claims."""
        if self.mark_cache == 0:
            # Sorted and encoded, not repr: the order of labels does not count, and the text of repr changes
            # with the version of Python. It also refuses here what could not stand in a journal.
            self._sized()
        return self.mark_cache

    def _sized(self) -> int:
        """Computes size and mark once; returns the size."""
        if self.size == 0:
            encoded = msgspec.json.encode(self.record(), order="deterministic")
            self.mark_cache = fingerprint_bytes(encoded) or 1
            self.size = len(encoded)
        return self.size

    @property
    def weight(self) -> int:
        """Bytes of memory, roughly: for caches that keep specs of claims that are gone."""
        return _EMPTY_SPEC + _GROWTH * self._sized()

    def record(self) -> dict[str, object]:
        """Plain data, leaving out what has its default."""
        whole: dict[str, object] = {
            "requests": dict(self.requests.pairs()),
            "limits": dict(self.limits.pairs()),
            "containers": [c.record() for c in self.containers],
            "labels": self.labels,
            "annotations": self.annotations,
            "priority": self.priority,
            "owner": self.owner,
            "group": self.group,
            "groupSize": self.group_size,
            "details": self.details,
            "devices": dict(self.devices.pairs()),
        }
        record = {key: value for key, value in whole.items() if value}
        if not self.preemptible:
            record["preemptible"] = False
        if not self.preempts:
            record["preempts"] = False
        if not self.placeable:
            record["placeable"] = False
        if self.needs is not NO_NEEDS:
            record["needs"] = self.needs.record()
        return record


def spec_from_record(record: dict[str, object]) -> ClaimSpec:
    """The inverse of ``ClaimSpec.record``."""
    needs = record.get("needs")
    requests = _vector(record.get("requests"))
    return ClaimSpec(
        requests,
        _vector(record.get("limits")),
        tuple([_container(c, requests) for c in cast("list[object]", record.get("containers", []))]),
        dict(cast("dict[str, str]", record.get("labels", {}))),
        dict(cast("dict[str, str]", record.get("annotations", {}))),
        cast("int", record.get("priority", 0)),
        cast("bool", record.get("preemptible", True)),
        cast("bool", record.get("preempts", True)),
        cast("str", record.get("owner", "")),
        cast("str", record.get("group", "")),
        cast("int", record.get("groupSize", 0)),
        NO_NEEDS if needs is None else needs_from_record(needs),
        dict(cast("dict[str, object]", record.get("details", {}))),
        cast("bool", record.get("placeable", True)),
        _vector(record.get("devices")),
    )


def _vector(record: object) -> Vector:
    return from_amounts(cast("dict[str, int]", record)) if record else EMPTY


def _container(record: object, whole: Vector) -> ContainerSpec:
    """Names, and the requests of an only container, are shared in memory."""
    name, requests, limits, role = cast("list[object]", record)
    asked = _vector(requests)
    return ContainerSpec(intern(str(name)), whole if asked == whole else asked, _vector(limits), intern(str(role)))


@final
@mypyc_attr(acyclic=True)
class Binding:
    """The accounts that govern a claim in one policy, and its cost in each of them.

    ``data`` is the policy's own: plain and immutable, or vectors, because it is in the journal. Bindings are immutable
    and may be shared by claims of the same cost in the same place.
    """

    __slots__ = ("accounts", "costs", "data", "mark", "parsed", "policy")

    def __init__(
        self,
        policy: str,
        accounts: tuple[Account, ...],
        costs: tuple[Vector, ...],
        data: tuple[object, ...] = (),
    ) -> None:
        self.policy: Final = policy
        self.accounts: Final = accounts
        self.costs: Final = costs
        self.data: Final = data
        self.parsed: object = None  # the policy's, too: what it made of the data, so that it need not do so again
        start: i64 = plain_mark((policy, data)) if data else name_mark(policy)
        a = start % _A
        b = start % _B
        for i in range(len(accounts)):
            account = accounts[i]
            cost = costs[i]
            a = ((a * 48271 + account.lane_a) % _A * 69621 + cost.lane_a) % _A
            b = ((b * 40692 + account.lane_b) % _B * 39373 + cost.lane_b) % _B
        self.mark: Final[i64] = a * _B + b

    def record(self) -> list[object]:
        accounts = [account.name for account in self.accounts]
        return [self.policy, accounts, costs_record(self.costs), _data_record(self.data)]


def _data_record(value: object) -> object:
    """Data as it is written: a vector is its amounts by name."""
    if isinstance(value, tuple):
        return [_data_record(item) for item in value]
    return dict(value.pairs()) if isinstance(value, Vector) else value


def costs_record(costs: tuple[Vector, ...]) -> list[object]:
    """The costs of a binding or charge as plain data; written once where it is the same in every account."""
    if len(costs) > 1:
        first = costs[0]
        same = True
        for cost in costs:
            same = same and (cost is first or cost == first)
        if same:
            return [dict(first.pairs())]
    return [dict(cost.pairs()) for cost in costs]


@final
@mypyc_attr(acyclic=True)
class Claim:
    """One asker. Identity is fixed; the status fields change only through ``ledger.claim_changes``."""

    __slots__ = (
        "bindings",
        "created",
        "decision",
        "leaving",
        "mark",
        "name",
        "namespace",
        "place",
        "spec",
        "state",
        "uid",
        "waits_for",
    )

    def __init__(self, uid: str, spec: ClaimSpec, created: int = 0, namespace: str = "", name: str = "") -> None:
        if not uid:
            raise ValueError("a claim needs a uid")
        self.uid: Final = uid
        self.namespace: Final = namespace
        self.name: Final = name or uid
        self.created: Final = created  # milliseconds, handed in
        # Stands for all that never changes; text that is no Unicode is refused here.
        self.mark: Final[i64] = fingerprint(f"{len(uid)} {len(namespace)} {uid}{namespace}{self.name} {created}")
        self.spec: ClaimSpec = spec
        self.state: int = PENDING
        self.place: str = ""  # the node it was decided for
        self.leaving: bool = False
        self.waits_for: tuple[str, ...] = ()  # victims that must be gone before it may start
        self.bindings: tuple[Binding | None, ...] = ()  # by policy, in the engine's order
        self.decision: object = None  # the last one about it

    def __repr__(self) -> str:
        return f"Claim({self.key}, {STATES[self.state]})"

    @property
    def key(self) -> str:
        """``namespace/name``."""
        return f"{self.namespace}/{self.name}" if self.namespace else self.name

    def counts(self) -> bool:
        """Whether decisions count it: it holds a place and is not being evicted."""
        return self.state not in (PENDING, GONE) and not self.leaving

    def binding_of(self, policy: str) -> Binding | None:
        """Its binding by one policy, wherever the policy is in the engine's order."""
        for binding in self.bindings:
            if binding is not None and binding.policy == policy:
                return binding
        return None

    def record(self) -> list[object]:
        return [self.uid, self.namespace, self.name, self.created, self.spec.record()]
