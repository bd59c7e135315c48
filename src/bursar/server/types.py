"""Response types of the API; JSON, the OpenAPI document and the client are made from them.

Field names are camelCase in JSON. Amounts are canonical quantities as text ("40Gi", "500m"), times are RFC 3339 in UTC.
Every answer about state carries its moment: ``seq`` (the last journal record in it), ``digest`` (of the ledger after
it) and ``resourceVersion`` (the last write to an object in it).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Generic, Literal, TypeVar

from msgspec import Meta, Struct, field

from bursar.local.usage import GpuUse

Amounts = dict[str, str]
Row = TypeVar("Row")


class Answer(Struct, rename="camel", kw_only=True, frozen=True):
    """Base of all answers."""


class Moment(Answer, frozen=True):
    """A state: where in the journal and in the history of the objects it stands."""

    seq: int
    resource_version: str
    time: str
    digest: str


class Page(Answer, Generic[Row], frozen=True):
    """A part of a list."""

    items: list[Row]
    moment: Moment
    remaining: int = 0
    next: Annotated[str, Meta(description="Asks for the next page of the same moment.")] = field(
        name="continue", default=""
    )


class Info(Answer, frozen=True):
    """The server and the state it is in."""

    version: str
    api: str
    moment: Moment
    started: str
    claims: int
    waiting: int
    objects: int
    read_only: bool  # it no longer takes changes; the health check says why
    demo: bool


class KindInfo(Answer, frozen=True):
    name: str
    api_version: str
    kind: str
    plural: str
    short_names: tuple[str, ...]
    namespaced: bool


class KindList(Answer, frozen=True):
    items: list[KindInfo]


class ObjectList(Page[dict[str, Any]], frozen=True):
    """A page of manifests, by kind and key."""


class ClaimRow(Answer, frozen=True):
    """A claim as the ledger has it, and the pod that made it."""

    uid: str
    namespace: str
    name: str
    phase: str  # of the pod: Pending, Running, Terminating, Succeeded, Evicted
    state: str  # of the claim: pending, held, reserved, bound, running, terminating, gone
    node: str
    priority: int
    preemptible: bool
    created: str
    requests: Amounts
    labels: dict[str, str]
    quotas: list[str]  # accounts that govern it
    quota_names: list[str] = []  # what people call the quotas of these
    group: str = ""
    leaving: bool = False
    waits_for: list[str] = []
    borrowing: bool = False  # it sits on quota that its own does not guarantee
    reason: str = ""  # stable code: why it waits or was evicted
    message: str = ""
    decided_at: str = ""
    decided_by: int = 0  # the journal record that proves the last decision
    gpus: Amounts = {}  # asked of GPUs by annotation: tflops, compute, vram of all of them, and their number


class ClaimList(Page[ClaimRow], frozen=True):
    """A page of claims."""


class QuotaAmounts(Answer, frozen=True):
    """One resource of a quota. What is empty does not apply to its dialect."""

    used: str
    min: str = ""
    max: str = ""
    runtime: str = ""
    borrowed: str = ""
    idle: str = ""  # of min, not used by its owner
    lent: str = ""  # of idle, used by others


class QuotaRow(Answer, frozen=True):
    """A quota of any dialect."""

    policy: str
    kind: str
    namespace: str
    name: str
    node: str = ""  # trees: the node of the tree
    parent: str = ""
    tree: str = ""
    resources: dict[str, QuotaAmounts] = {}
    exceeded: bool = False
    message: str = ""
    account: str = ""  # of the ledger, as checks and reasons call it


class QuotaList(Page[QuotaRow], frozen=True):
    """A page of quotas."""


class NodeRow(Answer, frozen=True):
    name: str
    ready: bool
    labels: dict[str, str]
    allocatable: Amounts
    used: Amounts
    leaving: Amounts  # physically taken by claims that were told to leave
    pods: int
    gpus: int


class NodeList(Page[NodeRow], frozen=True):
    """A page of nodes."""


class GpuRow(Answer, frozen=True):
    name: str
    node: str
    model: str
    capacity: Amounts
    used: Amounts
    claims: list[str]
    uuid: str = ""  # where a DRA driver publishes it


class GpuList(Page[GpuRow], frozen=True):
    """A page of GPUs."""


class MachineRow(Answer, frozen=True):
    """What is really used of the GPUs of a machine, as its agent reported it last."""

    machine: str
    age: int  # seconds since the report
    idle_after: int  # seconds after which a job that does nothing is called idle
    gpus: list[GpuUse]


class Retired(Answer, frozen=True):
    """What became of the jobs of a dead machine."""

    machine: str
    failed: list[str]  # team/name


class MachineList(Answer, frozen=True):
    """The machines that run real jobs."""

    items: list[MachineRow]


class QueueRow(Answer, frozen=True):
    position: int
    uid: str
    namespace: str
    name: str
    priority: int
    created: str
    state: str  # pending or held
    requests: Amounts
    never: bool  # only a change of the claim or of the settings can help
    group: str
    reason: str
    message: str
    decided_by: int
    gpus: Amounts = {}  # asked of GPUs by annotation


class QueueList(Page[QueueRow], frozen=True):
    """A page of those who wait, in the order of the queue."""


class Problem(Answer, frozen=True):
    """An error (RFC 9457)."""

    type: str
    title: str
    status: int
    detail: str
    source: str = ""  # the file of the manifest
    document: int = 0
    line: int = 0
    object: str = ""
    field: str = ""
    seq: int = 0
    digest: str = ""


class ObjectOutcome(Answer, frozen=True):
    """What became of one object of a change."""

    kind: str
    key: str
    result: Literal["created", "changed", "unchanged", "deleted"]
    resource_version: str


class PodNews(Answer, frozen=True):
    """Something that happened to a pod: started, held, waits, evicted, left, finished."""

    time: str
    pod: str
    what: str
    node: str = ""
    reason: str = ""


class Change(Answer, frozen=True):
    """A change as it was taken: durable when this is read. ``id`` names it for an undo; 0: nothing changed."""

    id: int
    moment: Moment
    verb: str
    objects: list[ObjectOutcome]
    pods: list[PodNews]
    dry_run: bool = False
    undoes: int = 0  # the change that this one takes back
    lost: list[str] = field(default_factory=list)  # what an undo cannot bring back, a sentence each
    warnings: list[str] = []  # what is probably not meant so, a sentence each
    actor: str = ""  # the name of the token or user; empty: the server asks for none


class ChangeList(Answer, frozen=True):
    items: list[Change]
    moment: Moment


class DecisionRow(Answer, frozen=True):
    """A journal record, in short."""

    seq: int
    time: str
    cause: str
    subjects: list[str]  # claims or settings it is about
    claim: str = ""
    outcome: str = ""
    node: str = ""
    reason: str = ""
    message: str = ""
    victims: list[str] = field(default_factory=list)
    by: str = ""
    digest: str = ""


class DecisionList(Answer, frozen=True):
    items: list[DecisionRow]
    moment: Moment
    next: int = 0  # ask for what is before this record; 0: there is no more


class FieldChange(Answer, frozen=True):
    path: str
    before: Any = None
    after: Any = None


class ObjectVersion(Answer, frozen=True):
    """One entry of an object's history: what changed against the entry before."""

    seq: int
    time: str
    resource_version: str
    result: Literal["created", "changed", "deleted"]
    fields: list[FieldChange] = field(default_factory=list)
    actor: str = ""  # of the change that did it; empty: Bursar itself, or a server that asks for no names
    change: int = 0  # its number, for an undo; 0: Bursar itself


class ObjectHistory(Answer, frozen=True):
    kind: str
    key: str
    items: list[ObjectVersion]
    decisions: list[DecisionRow]
    moment: Moment


class ObjectDifference(Answer, frozen=True):
    kind: str
    key: str
    result: Literal["created", "changed", "deleted"]
    fields: list[FieldChange] = field(default_factory=list)


class Difference(Answer, frozen=True):
    """What differs between two moments."""

    start: Moment
    end: Moment
    objects: list[ObjectDifference]
    pods: dict[str, int]  # how many of the pods came, went, started, were evicted, finished


class CheckNode(Answer, frozen=True):
    """A node of the explain tree."""

    title: str
    passed: bool
    note: str = ""
    reason: str = ""
    binding: bool = False  # the first that fails: the one to fix
    checks: list[CheckNode] = field(default_factory=list)


class FixEdit(Answer, frozen=True):
    """One field of one manifest gets another value."""

    kind: str
    key: str
    field: str
    before: Any = None
    after: Any = None
    anew: bool = False  # the object must be deleted and created again


class Fix(Answer, frozen=True):
    """Something that would let the claim in now, verified by simulation."""

    code: str  # other-quota, ask-less, other-nodes, preemptible, wait, raise-quota, priority
    sentence: str
    edits: list[FixEdit] = field(default_factory=list)
    waits_for: list[str] = field(default_factory=list)
    ends_at: str = ""  # when those it waits for have ended, if that is known
    evicts: list[str] = field(default_factory=list)
    node: str = ""


class Explanation(Answer, frozen=True):
    claim: ClaimRow
    tree: CheckNode
    text: str
    moment: Moment
    fixes: list[Fix] = field(default_factory=list)  # only if they were asked for
    fixes_complete: bool = True  # whether the search for fixes came to its end


class QuotaExplanation(Answer, frozen=True):
    """Why a quota has what it has."""

    quota: QuotaRow  # without what it lends, unless its dialect leaves the explanation to the figures
    tree: CheckNode
    text: str
    counts: int  # claims that are charged to it
    waiting: list[str]  # claims that wait for it
    borrowers: list[str]  # claims in it that use what others lend, as far as the dialect says so of claims


class QuotaExplanations(Answer, frozen=True):
    """One for each quota of the object: a quota tree has several."""

    items: list[QuotaExplanation]
    moment: Moment


class TrialRow(Answer, frozen=True):
    """What would become of one pod."""

    pod: str
    verdict: Literal["now", "after-evictions", "queued", "never", "evicted"]
    node: str = ""
    reason: str = ""
    message: str = ""
    victims: list[str] = field(default_factory=list)
    ahead: int = 0  # claims that wait and come before it


class WhatIf(Answer, frozen=True):
    """What would become of some pods, the most urgent first, and of others because of them."""

    pods: list[TrialRow]
    evicted: list[str]
    moment: Moment
    starts: list[str] = field(default_factory=list)  # others that wait now
    held: list[str] = field(default_factory=list)  # others that wait now, and start when those evicted have left
    waits: list[str] = field(default_factory=list)  # others that have a place, have not started, and lose it
    warnings: list[str] = []


class BorrowingChange(Answer, frozen=True):
    quota: str
    resource: str
    before: str
    after: str


class Plan(Answer, frozen=True):
    """What a set of changes would do. Nothing was changed."""

    objects: list[ObjectOutcome]
    starts: list[str]
    evicted: list[PodNews]
    waits: list[PodNews]
    gone: list[str]
    stranded: list[PodNews]  # they run, but their node is deleted
    borrowing: list[BorrowingChange]
    horizon: str
    moment: Moment
    evictions_within: str = ""  # with no horizon: how far ahead evictions because of over-use were looked for
    warnings: list[str] = []

    @property
    def harmless(self) -> bool:
        """Whether no pod is evicted or loses the node it runs on."""
        return not self.evicted and not self.stranded


@dataclass(frozen=True, slots=True)
class ServerEvent:
    """One event of the live stream; ``id`` resumes after it."""

    id: str
    type: str
    data: Any
