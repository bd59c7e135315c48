"""The operations of the API, in one table.

The routes, the checks of requests, the OpenAPI document, the reference and the methods of the client follow from it.
The handler of an operation has its name (``handlers.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, Literal, Protocol, TypeVar, overload

import msgspec

from bursar.server import total_types, types

API = "/api/v1"
READ = "read"
AGENT = "agent"
CHANGE = "change"  # what may be changed depends on the object
ADMIN = "admin"
PAGE = 500
STORE_FILE = "application/vnd.sqlite3"
LARGEST_PAGE = 5000

T = TypeVar("T")
Format = Literal["string", "integer", "boolean"]


@dataclass(frozen=True, slots=True)
class Parameter:
    name: str
    about: str
    format: Format = "string"
    where: Literal["query", "path", "header"] = "query"
    required: bool = False
    repeated: bool = False
    most: int = 2**53  # of an integer
    least: int = 0

    def is_called(self, name: str) -> bool:
        """Whether an argument of that Python name gives it: dry_run is dryRun."""
        return name.replace("_", "").lower() == self.name.replace("-", "").lower()


class Caller(Protocol):
    """A client that can ask for an operation."""

    def call(self, operation: Operation[T], /, *given: object, **named: object) -> T: ...


class Operation(Generic[T]):
    """One method of one path. As an attribute of a client it is a method that returns the decoded answer.

    Arguments are the path parameters, the body where the operation accepts one, and then all other parameters, by
    position or by name. The body is the text of manifests, or a sequence of names.
    """

    def __init__(
        self,
        path: str,
        about: str,
        answer: type[T] | None,
        *parameters: Parameter,
        accepts: Literal["", "manifests", "objects", "pods", "call"] = "",
        role: str = READ,
        produces: str = "application/json",
        problems: tuple[int, ...] = (),
    ) -> None:
        self.name = ""
        self.method = "POST" if accepts or role != READ else "GET"
        self.path = path
        self.about = about
        self.answer = answer
        self.parameters = parameters
        self.accepts = accepts
        self.role = role
        self.produces = produces
        self.problems = problems

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    @overload
    def __get__(self, caller: None, owner: type) -> Operation[T]: ...
    @overload
    def __get__(self, caller: Caller, owner: type) -> Callable[..., T]: ...
    def __get__(self, caller: Caller | None, owner: type) -> Operation[T] | Callable[..., T]:
        return self if caller is None else partial(caller.call, self)

    @property
    def streams(self) -> bool:
        return self.produces == "text/event-stream"

    @property
    def is_file(self) -> bool:
        return self.produces == STORE_FILE

    def arguments(self, given: Sequence[object], named: Mapping[str, object]) -> tuple[dict[str, Any], bytes]:
        """The parameters that are not empty, by their names in the API, and the body."""
        in_path = [parameter.name for parameter in self.parameters if parameter.where == "path"]
        others = [parameter.name for parameter in self.parameters if parameter.where != "path"]
        order = [*in_path, *(["body"] if self.accepts else []), *others]
        if len(given) > len(order):
            raise TypeError(f"{self.name} takes only {', '.join(order)}")
        values = dict(zip(order, given, strict=False))
        for argument, value in named.items():
            name = next((one.name for one in self.parameters if one.is_called(argument)), None)
            if name is None:
                raise TypeError(f"{self.name} takes {', '.join(order)}, not {argument}")
            values[name] = value
        body = _encoded(self.accepts, values.pop("body", b""))
        return {name: value for name, value in values.items() if value or name in in_path}, body


def _encoded(accepts: str, body: Any) -> bytes:  # noqa: ANN401 as the operation accepts it
    if accepts in {"objects", "pods"}:
        return msgspec.json.encode({accepts: list(body)})
    return body.encode() if isinstance(body, str) else bytes(body)


_AT = Parameter("at", "state at a moment: a time (RFC 3339), a time span ago (-5m) or a journal record (number)")
_NAMESPACE = Parameter("namespace", "only those of this namespace")
_LABEL = Parameter("label", "only those with these labels: a=b,c!=d,e,!f")
_OF_KIND = Parameter("kind", "only of this kind")
_LIMIT = Parameter("limit", f"at most so many; {PAGE} if not given", "integer", most=LARGEST_PAGE, least=1)
_CONTINUE = Parameter("continue", "the next page of the same moment: what the page before gave as `continue`")
_KIND = Parameter("kind", "a kind as kubectl names it: Pod, pods, ElasticQuota.n8s.nebuly.ai", where="path")
_KEY = Parameter("key", "namespace/name, or the name alone where the kind has no namespaces", where="path")
_CLAIM = (
    Parameter("namespace", "the pod's namespace; - for a claim without one", where="path"),
    Parameter("name", "the pod's name", where="path"),
)
_SOURCE = Parameter("source", "the file that the manifests come from, for messages")
_DRY_RUN = Parameter("dryRun", "true: say what would happen, and change nothing", "boolean")
_IDEMPOTENCY = Parameter("Idempotency-Key", "a repetition with the same key is answered, not repeated", where="header")
_OBJECT_FAULTS = (404, 409)


def _list(path: str, about: str, answer: type[T], *filters: Parameter, problems: tuple[int, ...] = ()) -> Operation[T]:
    return Operation(path, about, answer, *filters, _LIMIT, _CONTINUE, _AT, problems=problems)


class Operations:
    """All operations, in the order of the reference. A client inherits them as its methods."""

    info = Operation("", "The server, its version and the moment it is at.", types.Info)
    kinds = Operation("/kinds", "The kinds of objects that can be applied.", types.KindList)

    # Changes

    apply = Operation(
        "/apply",
        "Create or update all objects of the manifests, or none. Content that is there already changes nothing. A"
        " manifest with `metadata.resourceVersion` is taken only if the object still has that version.",
        types.Change, _SOURCE, _DRY_RUN, _IDEMPOTENCY, accepts="manifests", role=CHANGE, problems=(409,),
    )  # fmt: skip
    delete = Operation(
        "/delete",
        "Delete all of the objects, or none.",
        types.Change, _DRY_RUN, _IDEMPOTENCY, accepts="objects", role=CHANGE, problems=_OBJECT_FAULTS,
    )  # fmt: skip
    finish = Operation(
        "/finish",
        "These running pods succeed, as if their work were done.",
        types.Change, _IDEMPOTENCY, accepts="pods", role=CHANGE, problems=_OBJECT_FAULTS,
    )  # fmt: skip
    changes = Operation(
        "/changes",
        "The changes of objects that were applied, the newest first.",
        types.ChangeList, _LIMIT, Parameter("before", "only changes before this one", "integer"),
    )  # fmt: skip
    undo = Operation(
        "/changes/{id}/undo",
        "Take a change of objects back by a new change that is its inverse, and say what cannot come back.",
        types.Change, Parameter("id", "the change", "integer", "path"), _DRY_RUN, role=CHANGE, problems=_OBJECT_FAULTS,
    )  # fmt: skip

    backup = Operation[Iterator[bytes]](
        "/backup",
        "A copy of the store of this moment, as a file. Work goes on meanwhile.",
        None, role=ADMIN, produces=STORE_FILE, problems=(409,),
    )  # fmt: skip

    retire = Operation(
        "/machines/{machine}/retire",
        "This machine is dead: its jobs have failed, its node and GPUs are deleted. Refused while its agent reports.",
        types.Retired, Parameter("machine", "the machine", where="path"), role=ADMIN, problems=_OBJECT_FAULTS,
    )  # fmt: skip

    # State

    objects = _list(
        "/objects", "Objects, by kind and key.", types.ObjectList, _OF_KIND, _NAMESPACE, _LABEL, problems=(410,)
    )
    object = Operation[dict[str, Any]](
        "/objects/{kind}/{key}", "One object: its whole manifest, with status.", None, _KIND, _KEY, _AT, problems=(404,)
    )
    claims = _list(
        "/claims",
        "Claims (pods, as the ledger sees them), by namespace and name.",
        types.ClaimList,
        _NAMESPACE,
        _LABEL,
        Parameter("phase", "only pods in this phase: Pending, Running, Terminating, Succeeded, Evicted"),
        Parameter("node", "only those on this node"),
        Parameter("quota", "only those that count in this quota (team-a/quota, tree:group) or account (limits/team-a)"),
        problems=(410,),
    )
    claim = Operation("/claims/{namespace}/{name}", "One claim.", types.ClaimRow, *_CLAIM, _AT, problems=(404,))
    explain = Operation(
        "/claims/{namespace}/{name}/explain",
        "Why the claim is where it is: every check with its numbers, the first failing one marked.",
        types.Explanation,
        *_CLAIM,
        _AT,
        Parameter("fixes", "true: also the shortest changes that would let it in now, each tried out", "boolean"),
        problems=(404,),
    )
    quotas = _list(
        "/quotas",
        "The quotas of all dialects in one table: used, min, max, borrowed, lent.",
        types.QuotaList,
        _OF_KIND,
        _NAMESPACE,
        Parameter("policy", "only of this policy: trees, pools, elastic, limits, crossquota"),
        problems=(410,),
    )
    explain_quota = Operation(
        "/quotas/{kind}/{key}/explain",
        "Why a quota has what it has, in the terms of its dialect: how its runtime comes about, its limits, who"
        " borrows.",
        types.QuotaExplanations,
        Parameter("kind", "a kind as kubectl names it; `quota` for any", where="path"),
        Parameter("key", "the quota as the list calls it (team-a/quota, org:group), or its name", where="path"),
        _AT,
        problems=(404,),
    )
    nodes = _list("/nodes", "Nodes and what is used of them.", types.NodeList, _LABEL)
    gpus = _list(
        "/gpus",
        "GPUs that are handed out in parts, and who is on them.",
        types.GpuList,
        Parameter("node", "only those of this node"),
    )
    machines = Operation(
        "/machines",
        "Machines with real jobs: what each job has booked of GPUs, and what it uses.",
        types.MachineList,
    )
    queue = _list(
        "/queue", "Claims that wait, the most urgent first, each with the reason.", types.QueueList, _NAMESPACE
    )

    overview = Operation(
        "/overview",
        "The whole cluster: what is used, reserved, free and usable, by resource, team and pool.",
        total_types.Overview,
        _AT,
    )

    # History

    activity = Operation(
        "/activity",
        "What was used and what waited over time, by team, and what happened: summed up from the journal.",
        total_types.Activity,
        Parameter("from", "the earlier moment, as in `at`; -1h, the default, is before the later one"),
        Parameter("to", "the later moment; now if not given"),
        Parameter("namespace", "series only of this namespace"),
    )
    decisions = Operation(
        "/decisions",
        "Journal records, the newest first.",
        types.DecisionList,
        _LIMIT,
        Parameter("before", "only records before this one", "integer"),
        Parameter("claim", "only records about this claim: namespace/name"),
    )
    history = Operation(
        "/history/{kind}/{key}",
        "All versions of an object, and the decisions about it if it is a pod.",
        types.ObjectHistory, _KIND, _KEY, problems=(404,),
    )  # fmt: skip
    diff = Operation(
        "/diff",
        "What differs between two moments.",
        types.Difference,
        Parameter("from", "the earlier moment, as in `at`", required=True),
        Parameter("to", "the later moment; now if not given"),
    )
    events = Operation[Iterator[types.ServerEvent]](
        "/events",
        "Server-sent events: `record` for each journal record, `objects` for objects that changed with it. Ids are"
        " journal records, and `Last-Event-ID` resumes after one.",
        None,
        Parameter("Last-Event-ID", "resume after this record", "integer", "header"),
        produces="text/event-stream",
    )

    # Trials

    what_if = Operation(
        "/what-if",
        "What would become of these pods, or pods of these jobs, if they came now. Nothing is changed.",
        types.WhatIf, _SOURCE, accepts="manifests",
    )  # fmt: skip
    plan = Operation(
        "/plan",
        "What these manifests would do: who starts, who is evicted, who loses what they borrow. Nothing is changed.",
        types.Plan,
        _SOURCE,
        Parameter("delete", "also delete this object (Kind/namespace/name)", repeated=True),
        Parameter("horizon", "look so far ahead (5m), for what happens only after a while"),
        accepts="manifests",
        problems=_OBJECT_FAULTS,
    )


OPERATIONS: tuple[Operation[Any], ...] = tuple(one for one in vars(Operations).values() if isinstance(one, Operation))
