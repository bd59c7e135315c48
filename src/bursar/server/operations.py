"""The operations of the API: one table, of which the routes, the OpenAPI document and the reference are made.

An operation that is not listed here cannot be reached, and one that is listed must have a handler of its name
(``handlers.py``): both are checked when the server starts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from bursar.server import types

API = "/api/v1"
READ = "read"
ADMIN = "admin"
PAGE = 500
LARGEST_PAGE = 5000

Format = Literal["string", "integer", "boolean"]


@dataclass(frozen=True, slots=True)
class Parameter:
    name: str
    about: str
    format: Format = "string"
    where: Literal["query", "path", "header"] = "query"
    required: bool = False
    repeated: bool = False
    most: int = 0  # of an integer; 0: no bound
    least: int = 0


@dataclass(frozen=True, slots=True)
class Operation:
    """One method of one path. ``accepts``: what the body holds."""

    name: str
    method: Literal["GET", "POST"]
    path: str
    about: str
    answer: type[types.Answer] | None
    parameters: tuple[Parameter, ...] = ()
    accepts: Literal["", "manifests", "objects", "pods"] = ""
    role: str = READ
    produces: str = "application/json"
    problems: tuple[int, ...] = ()


_AT = Parameter("at", "state at a moment: a time (RFC 3339), a time span ago (-5m) or a journal record (number)")
_NAMESPACE = Parameter("namespace", "only those of this namespace")
_LABEL = Parameter("label", "only those with these labels: a=b,c!=d,e,!f")
_PAGE = (
    Parameter("limit", f"at most so many; {PAGE} if not given", "integer", most=LARGEST_PAGE, least=1),
    Parameter("continue", "the next page of the same moment: what the page before gave as `continue`"),
)
_KIND = Parameter("kind", "a kind as kubectl names it: Pod, pods, ElasticQuota.n8s.nebuly.ai", where="path")
_KEY = Parameter("key", "namespace/name, or the name alone where the kind has no namespaces", where="path")
_CLAIM = (
    Parameter("namespace", "the pod's namespace; - for a claim without one", where="path"),
    Parameter("name", "the pod's name", where="path"),
)
_SOURCE = Parameter("source", "the file that the manifests come from, for messages")
_DRY_RUN = Parameter("dryRun", "true: say what would happen, and change nothing", "boolean")
_IDEMPOTENCY = Parameter("Idempotency-Key", "a repetition with the same key is answered, not repeated", where="header")

OPERATIONS: tuple[Operation, ...] = (
    Operation("info", "GET", "", "The server, its version and the moment it is at.", types.Info),
    Operation("kinds", "GET", "/kinds", "The kinds of objects that can be applied.", types.KindList),
    # Changing
    Operation(
        "apply",
        "POST",
        "/apply",
        "Create or update all objects of the manifests, or none. Content that is there already changes nothing. A"
        " manifest with `metadata.resourceVersion` is taken only if the object still has that version.",
        types.Change,
        (_SOURCE, _DRY_RUN, _IDEMPOTENCY),
        "manifests",
        ADMIN,
        problems=(409,),
    ),
    Operation(
        "delete",
        "POST",
        "/delete",
        "Delete all of the objects, or none.",
        types.Change,
        (_DRY_RUN, _IDEMPOTENCY),
        "objects",
        ADMIN,
        problems=(404, 409),
    ),
    Operation(
        "finish",
        "POST",
        "/finish",
        "These running pods succeed, as if their work were done.",
        types.Change,
        (_IDEMPOTENCY,),
        "pods",
        ADMIN,
        problems=(404, 409),
    ),
    Operation(
        "changes",
        "GET",
        "/changes",
        "The changes of objects that were applied, the newest first.",
        types.ChangeList,
        (_PAGE[0], Parameter("before", "only changes before this one", "integer")),
    ),
    Operation(
        "undo",
        "POST",
        "/changes/{id}/undo",
        "Take a change of objects back by a new change that is its inverse, and say what cannot come back.",
        types.Change,
        (Parameter("id", "the change", "integer", "path"), _DRY_RUN),
        "",
        ADMIN,
        problems=(404, 409),
    ),
    # Reading
    Operation(
        "objects",
        "GET",
        "/objects",
        "Objects, by kind and key.",
        types.ObjectList,
        (Parameter("kind", "only of this kind"), _NAMESPACE, _LABEL, *_PAGE, _AT),
        problems=(410,),
    ),
    Operation(
        "object",
        "GET",
        "/objects/{kind}/{key}",
        "One object: its whole manifest, with status.",
        None,
        (_KIND, _KEY, _AT),
        problems=(404,),
    ),
    Operation(
        "claims",
        "GET",
        "/claims",
        "Claims (pods, as the ledger sees them), by namespace and name.",
        types.ClaimList,
        (
            _NAMESPACE,
            _LABEL,
            Parameter("phase", "only pods in this phase: Pending, Running, Terminating, Succeeded, Evicted"),
            Parameter("node", "only those on this node"),
            Parameter(
                "quota", "only those that count in this quota (team-a/quota, tree:group) or account (limits/team-a)"
            ),
            *_PAGE,
            _AT,
        ),
        problems=(410,),
    ),
    Operation(
        "claim", "GET", "/claims/{namespace}/{name}", "One claim.", types.ClaimRow, (*_CLAIM, _AT), problems=(404,)
    ),
    Operation(
        "explain",
        "GET",
        "/claims/{namespace}/{name}/explain",
        "Why the claim is where it is: every check with its numbers, the first failing one marked.",
        types.Explanation,
        (
            *_CLAIM,
            _AT,
            Parameter("fixes", "true: also the shortest changes that would let it in now, each tried out", "boolean"),
        ),
        problems=(404,),
    ),
    Operation(
        "quotas",
        "GET",
        "/quotas",
        "The quotas of all dialects in one table: used, min, max, borrowed, lent.",
        types.QuotaList,
        (
            Parameter("kind", "only of this kind"),
            _NAMESPACE,
            Parameter("policy", "only of this policy: trees, pools, elastic, limits, crossquota"),
            *_PAGE,
            _AT,
        ),
        problems=(410,),
    ),
    Operation("nodes", "GET", "/nodes", "Nodes and what is used of them.", types.NodeList, (_LABEL, *_PAGE, _AT)),
    Operation(
        "gpus",
        "GET",
        "/gpus",
        "GPUs that are handed out in parts, and who is on them.",
        types.GpuList,
        (Parameter("node", "only those of this node"), *_PAGE, _AT),
    ),
    Operation(
        "queue",
        "GET",
        "/queue",
        "Claims that wait, the most urgent first, each with the reason.",
        types.QueueList,
        (_NAMESPACE, *_PAGE, _AT),
    ),
    Operation(
        "decisions",
        "GET",
        "/decisions",
        "Journal records, the newest first.",
        types.DecisionList,
        (
            _PAGE[0],
            Parameter("before", "only records before this one", "integer"),
            Parameter("claim", "only records about this claim: namespace/name"),
        ),
    ),
    Operation(
        "history",
        "GET",
        "/history/{kind}/{key}",
        "All versions of an object, and the decisions about it if it is a pod.",
        types.ObjectHistory,
        (_KIND, _KEY),
        problems=(404,),
    ),
    Operation(
        "diff",
        "GET",
        "/diff",
        "What differs between two moments.",
        types.Difference,
        (
            Parameter("from", "the earlier moment, as in `at`", required=True),
            Parameter("to", "the later moment; now if not given"),
        ),
    ),
    Operation(
        "events",
        "GET",
        "/events",
        "Server-sent events: `record` for each journal record, `objects` for objects that changed with it. Ids are"
        " journal records, and `Last-Event-ID` resumes after one.",
        None,
        (Parameter("Last-Event-ID", "resume after this record", "integer", "header"),),
        produces="text/event-stream",
    ),
    # Asking
    Operation(
        "what_if",
        "POST",
        "/what-if",
        "What would become of these pods, or pods of these jobs, if they came now. Nothing is changed.",
        types.WhatIf,
        (_SOURCE,),
        "manifests",
    ),
    Operation(
        "plan",
        "POST",
        "/plan",
        "What these manifests would do: who starts, who is evicted, who loses what they borrow. Nothing is changed.",
        types.Plan,
        (
            _SOURCE,
            Parameter("delete", "also delete this object (Kind/namespace/name)", repeated=True),
            Parameter("horizon", "look so far ahead (5m), for what happens only after a while"),
        ),
        "manifests",
        problems=(404, 409),
    ),
)
