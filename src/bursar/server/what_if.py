"""Trials and explanations: pods that do not exist yet, manifests that are not applied, and why a claim is where it is.

Pods are created in a rehearsal, together: the control loop runs until it comes to rest, and all of it is undone. So
what is said of them, and of others that start, are evicted or lose their hold because of them, is what would happen.
Manifests are applied to a copy of the cluster. With a horizon, that copy and another one without the changes run on for
that time, and the plan is what differs between the two. Without one they run on until over-use that there is then would
be revoked: a change of nodes or quotas can cost pods their place only after a delay.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

import msgspec

from bursar.control.gangs import urgency
from bursar.control.suggestions import search
from bursar.engine.decision import NEVER, Decision
from bursar.ledger.claims import PENDING as CLAIM_PENDING
from bursar.ledger.claims import Claim
from bursar.objects.decode import ManifestError, or_nearest
from bursar.objects.kinds import NODE, subject_of
from bursar.objects.known_fields import asked_resources, unknown_fields
from bursar.objects.manifests import Document
from bursar.objects.validation import show_duration, timestamp
from bursar.resources import dimension
from bursar.server import quotas, types
from bursar.server.problems import RefusedError
from bursar.server.rows import ClaimView, check_node
from bursar.server.time_travel import moment_of
from bursar.sim.cluster import Applied, Cluster, fixes_for
from bursar.sim.pods import ENDED, EVICTED, PENDING, RUNNING, TERMINATING, PodView
from bursar.sim.rehearsal import Rehearsal, rehearse

MOST_PODS = 1000
_REPLICATED = {"Deployment": "replicas", "ReplicaSet": "replicas", "StatefulSet": "replicas", "Job": "parallelism"}


# Pods


def pods_of(documents: Iterable[Document]) -> list[Document]:
    """The pods that the documents are or would create: those of jobs, deployments and the like."""
    found: list[Document] = []
    for document in documents:
        kind = document.body.get("kind")
        if isinstance(kind, str) and kind in _REPLICATED:
            found.extend(_template_pods(document, _REPLICATED[kind]))
        else:
            found.append(document)
        if len(found) > MOST_PODS:
            raise document.error(ManifestError(f"makes it more than {MOST_PODS} pods, the most that can be tried"))
    return found


def _template_pods(document: Document, counted_by: str) -> Iterator[Document]:
    metadata, spec = _mapping(document, "metadata"), _mapping(document, "spec")
    template = spec.get("template")
    count = spec.get(counted_by)
    count = 1 if count is None else count
    if not isinstance(template, dict):
        raise _fault(document, "is required", "spec.template")
    if type(count) is not int or not 0 <= count <= MOST_PODS:
        raise _fault(document, f"{count!r:.40} is not a number of pods from 0 to {MOST_PODS}", f"spec.{counted_by}")
    inner = template.get("metadata")
    for number in range(count):
        named = {
            **(inner if isinstance(inner, dict) else {}),
            "name": f"{metadata.get('name', '')}-{number}",
            **({"namespace": metadata["namespace"]} if "namespace" in metadata else {}),
        }
        body = {**template, "apiVersion": "v1", "kind": "Pod", "metadata": named}
        yield Document(document.source, document.number, body, f"{document.item}[{number}]" if document.item else "")


def _mapping(document: Document, name: str) -> dict[str, Any]:
    found = document.body.get(name)
    if not isinstance(found, dict):
        raise _fault(document, "is required", name)
    return found


def _fault(document: Document, problem: str, path: str) -> ManifestError:
    return document.error(ManifestError(problem, path, subject=subject_of(document.body)))


def what_if(cluster: Cluster, documents: Iterable[Document]) -> types.WhatIf:
    """The caller holds the cluster's lock."""
    moment = moment_of(cluster)
    with rehearse(cluster) as trial:
        keys = trial.try_pods(pods_of(documents))
        waiting = [urgency(claim) for claim in trial.controller.queue.waiting()]
        return types.WhatIf(
            pods=[_trial_row(trial, key, waiting) for key in keys],
            evicted=sorted({one.pod for one in trial.taken}),
            moment=moment,
            starts=[key for key in trial.started() if key not in keys],
            held=[key for key in trial.held() if key not in keys],
            waits=trial.displaced(),
        )


def _trial_row(trial: Rehearsal, key: str, waiting: list[Any]) -> types.TrialRow:
    pod, claim = trial.pod(key), trial.controller.claim(key)
    if pod is None or claim is None:
        reason, message = ("", "") if pod is None else (pod.reason, pod.message)
        return types.TrialRow(pod=key, verdict="evicted", reason=reason, message=message, victims=trial.victims(key))
    waits = claim.state == CLAIM_PENDING
    placed = f"admitted on {claim.place}" if claim.place else "admitted"
    return types.TrialRow(
        pod=key,
        verdict=_verdict(pod, claim, trial.victims(key)),
        node=claim.place,
        reason=pod.reason,
        message=pod.message or ("" if waits else placed),
        victims=trial.victims(key),
        ahead=sum(other < urgency(claim) for other in waiting) if waits else 0,
    )


def _verdict(pod: PodView, claim: Claim, victims: list[str]) -> Any:  # noqa: ANN401 one of the five words
    if claim.leaving:
        return "evicted"
    if claim.state == CLAIM_PENDING:
        never = isinstance(claim.decision, Decision) and claim.decision.outcome == NEVER
        return "never" if never else "queued"
    return "after-evictions" if victims or pod.phase == PENDING else "now"


# What is probably not meant so

Warned = TypeVar("Warned", types.Change, types.WhatIf, types.Plan)


def warned(answer: Warned, cluster: Cluster, documents: Sequence[Document]) -> Warned:
    """The answer with warnings."""
    found = _mistakes(cluster, documents)
    return msgspec.structs.replace(answer, warnings=found) if found else answer


def _mistakes(cluster: Cluster, documents: Sequence[Document]) -> list[str]:
    """Fields that Kubernetes does not have, and resources that no node has."""
    found: list[str] = []
    for document in documents:
        said = unknown_fields(document.body)
        names = sorted({name for name in asked_resources(document.body) if "/" in name})
        misspelt = cluster.engine.misspelt(names) if names else ""
        if said or misspelt:
            subject = subject_of(document.body)
            found.extend(f"{subject}: {one}" for one in (*said, misspelt) if one)
    return found


# Changes of manifests


class Course(msgspec.Struct, frozen=True):
    """What became of the pods of a cluster, and what its quotas borrow."""

    phases: dict[str, str]  # by pod
    out: list[str]  # pods that were evicted, gone or not
    borrowed: dict[str, dict[str, int]]  # by quota and resource

    @classmethod
    def of(cls, cluster: Cluster) -> Course:
        phases = {key: pod.phase for key, pod in cluster.pod_states.items()}
        return cls(phases, [key for key in phases if _out(cluster, key)], _borrowed(cluster))


Unchanged = Callable[[int], Course]
"""What becomes of the cluster without the changes: each call lets so much more time pass."""


def advancing(cluster: Cluster) -> Unchanged:
    """The course of a cluster that is left alone."""

    def after(duration: int) -> Course:
        if duration:
            cluster.advance(duration)
        return Course.of(cluster)

    return after


def plan(
    after: Cluster, unchanged: Unchanged, documents: Sequence[Document], delete: Sequence[str], horizon: int
) -> types.Plan:
    """``after`` is a cluster to make the changes in."""
    moment = moment_of(after)
    references = [after.reference(text) for text in delete]
    applied = (after.delete(references) if references else []) + after.apply(documents)
    if horizon:
        after.advance(horizon)
    found = _compared(unchanged(horizon), after, applied, horizon, moment)
    return found if horizon else _with_revocations(unchanged, after, found)


def _with_revocations(unchanged: Unchanged, after: Cluster, found: types.Plan) -> types.Plan:
    """With the pods that the changes cost their place only after a delay, because their quota is over-used by them."""
    due = after.engine.last_revocation()
    wait = 0 if due is None else due - after.now()
    if wait <= 0:
        return found
    out = {*unchanged(wait).out, *(one.pod for one in found.evicted)}
    after.advance(wait)
    late = [key for key in after.pods() if key not in out and _out(after, key)]
    evicted = [*found.evicted, *[_news(after, key, "evicted") for key in late]]
    return msgspec.structs.replace(found, evicted=evicted, evictions_within=show_duration(wait))


def _compared(before: Course, after: Cluster, applied: list[Applied], horizon: int, moment: types.Moment) -> types.Plan:
    starts: list[str] = []
    evicted: list[types.PodNews] = []
    waits: list[types.PodNews] = []
    out = set(before.out)
    for key in after.pods():
        old, new = before.phases.get(key, ""), _phase(after, key)
        if new == RUNNING and old != RUNNING:
            starts.append(key)
        elif _out(after, key) and key not in out:
            evicted.append(_news(after, key, "evicted"))
        elif new == PENDING and old != PENDING:
            waits.append(_news(after, key, "waits"))
    known = set(after.pods())
    nodes = {one.key for one in applied if one.kind.name == NODE.name and one.result == "deleted"}
    return types.Plan(
        objects=[types.ObjectOutcome(kind=kind.name, key=key, result=result, resource_version="")
                 for kind, key, result in applied],
        starts=starts,
        evicted=evicted,
        waits=waits,
        gone=sorted(key for key in before.phases if key not in known),
        stranded=[_news(after, key, "stranded") for key in after.pods() if _is_on(after, key, nodes)],
        borrowing=list(_borrowing(before.borrowed, _borrowed(after))),
        horizon=show_duration(horizon),
        moment=moment,
    )  # fmt: skip


def _phase(cluster: Cluster, key: str) -> str:
    pod = cluster.doing(key)
    return "" if pod is None else pod.phase


def _out(cluster: Cluster, key: str) -> bool:
    """Whether the pod was evicted, gone or not."""
    pod = cluster.doing(key)
    return pod is not None and (pod.phase == EVICTED or (pod.phase == TERMINATING and pod.evicted))


def _is_on(cluster: Cluster, key: str, nodes: set[str]) -> bool:
    """Whether the pod is on one of the nodes, which the changes delete."""
    pod = cluster.doing(key)
    return pod is not None and pod.node in nodes and pod.phase not in ENDED


def _news(cluster: Cluster, key: str, what: str) -> types.PodNews:
    pod = cluster.pod(key)
    reason, node = ("", "") if pod is None else (pod.reason, pod.node)
    return types.PodNews(time=timestamp(cluster.now()), pod=key, what=what, node=node, reason=reason)


def _borrowed(cluster: Cluster) -> dict[str, dict[str, int]]:
    return {
        f"{quota.kind} {quota.label}": amounts
        for quota in quotas.quotas(cluster)
        if (amounts := {name: one.borrowed for name, one in sorted(quota.resources.items()) if one.borrowed})
    }


def _borrowing(before: dict[str, dict[str, int]], after: dict[str, dict[str, int]]) -> Iterator[types.BorrowingChange]:
    """The quotas that would borrow less."""
    for quota, amounts in before.items():
        for resource, had in amounts.items():
            has = after.get(quota, {}).get(resource, 0)
            if has < had:
                show = dimension(resource).show
                yield types.BorrowingChange(quota=quota, resource=resource, before=show(had), after=show(has))


def explanation(cluster: Cluster, key: str, *, fixes: bool = False) -> types.Explanation:
    """The caller holds the cluster's lock; a search for fixes may take seconds."""
    row = ClaimView(cluster).row(key)
    if row is None:
        raise no_claim(cluster, key)
    check = cluster.explain(key)
    if check is None:
        raise RefusedError(404, f"{key} is {row.phase} and has no reason: it ended by itself")
    found = fixes_for(cluster, row.uid) if fixes else search.Found()
    return types.Explanation(
        claim=row,
        tree=check_node(check),
        text="\n".join(check.lines()),
        moment=moment_of(cluster),
        fixes=[_fix(cluster, fix) for fix in found.fixes],
        fixes_complete=found.complete,
    )


def no_claim(cluster: Cluster, key: str) -> RefusedError:
    """The refusal of a claim that is not there, with the one that was probably meant."""
    return RefusedError(404, f"there is no claim {key!r:.200}{or_nearest(key, cluster.pods())}")


def _fix(cluster: Cluster, fix: search.Suggestion) -> types.Fix:
    name = cluster.controller.name
    return types.Fix(
        code=fix.code,
        sentence=fix.sentence,
        edits=[msgspec.convert(edit, types.FixEdit, from_attributes=True) for edit in fix.edits],
        waits_for=[name(uid) for uid in fix.waits_for],
        ends_at="" if fix.ends_at is None else timestamp(fix.ends_at),
        evicts=[name(uid) for uid in fix.evicts],
        node=fix.node,
    )
