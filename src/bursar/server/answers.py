"""What the API answers: plain typed values, of which the JSON, the OpenAPI document and the client's view are made.

Here is what all answers share, and the answers about what there is: the server, and the lists of its state. What
happened is in ``chronicle``, why and what if in ``verdicts``.

Field names are camelCase in JSON. Amounts are canonical quantities as text ("40Gi", "500m"), times are RFC 3339 in UTC.
Every answer about state says of which moment it is: ``seq`` (the last journal record in it), ``digest`` (of the ledger
after it) and ``resourceVersion`` (the last write to an object in it).
"""

from __future__ import annotations

from typing import Annotated, Any, Generic, TypeVar

from msgspec import Meta, Struct, field

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


class GpuList(Page[GpuRow], frozen=True):
    """A page of GPUs."""


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
