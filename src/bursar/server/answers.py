"""What the API answers: plain typed values, of which the JSON, the OpenAPI document and the client's view are made.

Here is what all answers share, and the answers about what there is: the server, and the lists of its state. What
happened is in ``chronicle``, why and what if in ``verdicts``.

Field names are camelCase in JSON. Amounts are canonical quantities as text ("40Gi", "500m"), times are RFC 3339 in UTC.
Every answer about state says of which moment it is: ``seq`` (the last journal record in it), ``digest`` (of the ledger
after it) and ``resourceVersion`` (the last write to an object in it).
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct, field

Amounts = dict[str, str]


class Answer(Struct, rename="camel", kw_only=True, frozen=True):
    """Base of all answers."""


class Moment(Answer, frozen=True):
    """A state: where in the journal and in the history of the objects it stands."""

    seq: int
    resource_version: str
    time: str
    digest: str


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


class ObjectList(Answer, frozen=True):
    """Manifests, by kind and key. ``continue`` asks for the next page of the same moment."""

    items: list[dict[str, Any]]
    moment: Moment
    remaining: int = 0
    next: str = field(name="continue", default="")


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


class ClaimList(Answer, frozen=True):
    items: list[ClaimRow]
    moment: Moment
    remaining: int = 0
    next: str = field(name="continue", default="")


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


class QuotaList(Answer, frozen=True):
    items: list[QuotaRow]
    moment: Moment
    remaining: int = 0
    next: str = field(name="continue", default="")


class NodeRow(Answer, frozen=True):
    name: str
    ready: bool
    labels: dict[str, str]
    allocatable: Amounts
    used: Amounts
    leaving: Amounts  # physically taken by claims that were told to leave
    pods: int
    gpus: int


class NodeList(Answer, frozen=True):
    items: list[NodeRow]
    moment: Moment
    remaining: int = 0
    next: str = field(name="continue", default="")


class GpuRow(Answer, frozen=True):
    name: str
    node: str
    model: str
    capacity: Amounts
    used: Amounts
    claims: list[str]


class GpuList(Answer, frozen=True):
    items: list[GpuRow]
    moment: Moment
    remaining: int = 0
    next: str = field(name="continue", default="")


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


class QueueList(Answer, frozen=True):
    items: list[QueueRow]
    moment: Moment
    remaining: int = 0
    next: str = field(name="continue", default="")


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
