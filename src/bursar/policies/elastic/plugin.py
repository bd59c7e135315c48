"""How the elastic policy joins: its kinds, its options, and what is refused when objects come into conflict.

Conflicts between objects are refused at admission, with the other object named, and again by the policy itself, which
also sees what was admitted at the same time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from bursar.ledger.claims import Claim
from bursar.ledger.state import Account
from bursar.objects.decode import ManifestError
from bursar.objects.requests import limits_from
from bursar.policies.elastic.api import (
    COMPOSITE_KIND,
    ELASTIC_QUOTA_KIND,
    CompositeElasticQuota,
    ElasticQuota,
    ElasticSection,
    check_section,
)
from bursar.policies.elastic.explanation import explain_quota
from bursar.policies.elastic.policy import ElasticPolicy
from bursar.policies.elastic.settings import (
    CAPACITY_LABEL,
    COMPOSITE,
    ELASTIC_QUOTA,
    GROUP,
    NAME,
    OPTIONS_SETTING,
    OVER_QUOTA,
    PREFIX,
    QUOTA_SETTING,
    TOTAL,
    ElasticOptionsBody,
    ElasticQuotaBody,
    quota_id,
)
from bursar.policies.fix_fields import FixFields, LimitField, limit_fields
from bursar.policies.ownership import MAX_PRIORITY, PLACE, AccessRule, named_by
from bursar.policies.plugin import ObjectView, Plugin, PodMarks, Reason
from bursar.policies.quota_table import QuotaRecord, QuotaTable
from bursar.policies.results import Check, Refusal, Setting


def elastic_quota_settings(key: str, quota: ElasticQuota | None) -> list[Setting]:
    body = None
    if quota is not None:
        spec = quota.spec
        bounds = limits_from(spec.min, "spec.min"), limits_from(spec.max, "spec.max")
        body = ElasticQuotaBody(ELASTIC_QUOTA, key, (key.partition("/")[0],), *bounds)
    return [Setting(QUOTA_SETTING, quota_id(ELASTIC_QUOTA, key), body)]


def composite_settings(key: str, quota: CompositeElasticQuota | None) -> list[Setting]:
    body = None
    if quota is not None:
        spec = quota.spec
        bounds = limits_from(spec.min, "spec.min"), limits_from(spec.max, "spec.max")
        body = ElasticQuotaBody(COMPOSITE, key, spec.namespaces, *bounds, takeover=spec.takeover)
    return [Setting(QUOTA_SETTING, quota_id(COMPOSITE, key), body)]


def access_of(namespaces: tuple[str, ...], subject: str, annotations: Mapping[str, str]) -> list[AccessRule]:
    """Its own namespaces use a quota; their priorities may be capped."""
    given = named_by({name: text for name, text in annotations.items() if name in {MAX_PRIORITY, PLACE}})
    owners = (True, namespaces, None, given.max_priority, given.by_scheduler)
    rule = AccessRule(f"{NAME}/{subject}", subject, "", "", "", namespaces, "", *owners)
    return [rule]


def option_settings(key: str, section: ElasticSection | None) -> list[Setting]:
    if section is None:
        return [Setting(OPTIONS_SETTING, key, None)]
    try:
        check_section(section)
    except ManifestError as error:
        raise error.inside(f"spec.{NAME}") from None
    body = ElasticOptionsBody(section.gpu_memory, section.slices, section.borrowing, section.order)
    return [Setting(OPTIONS_SETTING, key, body)]


# Admission

Body = Mapping[str, Any]


def admit_elastic_quota(view: ObjectView, _old: Body | None, new: dict[str, Any]) -> dict[str, Any]:
    """One quota for one namespace."""
    namespace = str(new["metadata"]["namespace"])
    for other in view.list(ELASTIC_QUOTA_KIND.name, namespace):
        if _key(other) != _key(new):
            raise ManifestError(_conflict(namespace, ELASTIC_QUOTA, other), "metadata.namespace")
    for other, namespaces in _composites(view, new):
        if namespace in namespaces:
            raise ManifestError(_conflict(namespace, COMPOSITE, other), "metadata.namespace")
    return new


def admit_composite(view: ObjectView, _old: Body | None, new: dict[str, Any]) -> dict[str, Any]:
    """No namespace of another composite; one that has an ElasticQuota only if it says that it takes that over."""
    spec = new["spec"]
    wanted = {str(namespace): index for index, namespace in enumerate(spec["namespaces"])}
    for other, namespaces in _composites(view, new):
        for namespace in namespaces:
            if namespace in wanted:
                raise ManifestError(_conflict(namespace, COMPOSITE, other), f"spec.namespaces[{wanted[namespace]}]")
    for other in view.list(ELASTIC_QUOTA_KIND.name):
        namespace = str(other["metadata"]["namespace"])
        if namespace in wanted and not spec.get("takeover"):
            problem = f"{_conflict(namespace, ELASTIC_QUOTA, other)}; takeover: true would replace it"
            raise ManifestError(problem, f"spec.namespaces[{wanted[namespace]}]")
    return new


def _composites(view: ObjectView, new: Body) -> Iterator[tuple[Body, list[str]]]:
    for other in view.list(COMPOSITE_KIND.name):
        if new["kind"] != COMPOSITE or _key(other) != _key(new):
            yield other, [str(namespace) for namespace in other["spec"]["namespaces"]]


def _key(body: Body) -> str:
    return f"{body['metadata']['namespace']}/{body['metadata']['name']}"


def _conflict(namespace: str, kind: str, other: Body) -> str:
    return f"namespace {namespace} is governed by {kind} {_key(other)} already"


def _listed(composite: Mapping[str, Any]) -> list[str]:
    """The namespaces that it names, also if the rest of it is wrong."""
    spec = composite.get("spec")
    given = spec.get("namespaces") if isinstance(spec, dict) else None
    return [name for name in given if isinstance(name, str)] if isinstance(given, list) else []


def read_row(row: QuotaRecord, body: Mapping[str, Any], written: Mapping[str, Any]) -> None:
    spec = body.get("spec") or {}
    row.fill("min", spec.get("min"))
    row.fill("max", spec.get("max"))
    row.fill("used", written.get("status", {}).get("reserved"))
    row.borrow()
    row.account = PREFIX + quota_id(row.kind.partition(".")[0], row.key)


def explain_row(policy: ElasticPolicy, row: QuotaRecord) -> Check | None:
    quota = policy.book.by_account.get(row.account)
    return None if quota is None else explain_quota(policy.book, quota, row)


def called(_policy: ElasticPolicy, account: Account) -> str:
    """The quota of an account; its parts, and the total of all quotas, are internal."""
    return "" if "#" in account.name or account.name == TOTAL else account.name.removeprefix(PREFIX).partition("/")[2]


def fields_of(view: ObjectView, claim: Claim, refusal: Refusal) -> list[LimitField]:
    """Min of the claim's own quota where the sum of all refused; else min or max of the quota that refused."""
    total = refusal.account == TOTAL
    account = _own_account(claim) if total else refusal.account
    id_, _, suffix = account.removeprefix(PREFIX).partition("#")
    kind, _, key = id_.partition("/")
    side = "min" if total or suffix else "max"
    ceiling = ("spec", "max", refusal.resource) if side == "min" else ()
    name, path = f"{kind}.{GROUP}", ("spec", side, refusal.resource)
    return limit_fields(name, view.get(name, key), path, refusal.resource, ceiling=ceiling, shared=total)


def _own_account(claim: Claim) -> str:
    binding = claim.binding_of(NAME)
    return "" if binding is None else binding.accounts[0].name


REASONS: Final = (
    Reason(
        "elastic.max.<resource>",
        "The quota of the pod's namespace would exceed its `max`.",
        "Wait for pods of the team to end, ask for less, or raise `max`.",
    ),
    Reason(
        "elastic.total.<resource>",
        "All that the quotas guarantee (the sum of every `min`) is in use, and the pod may not take any of it back: "
        "its team already has its `min` and its fair part of what others leave idle.",
        "Wait, ask for less, or raise `min` of the team if the cluster has more than the sum of the minimums.",
    ),
    Reason(
        "elastic.min.<resource>",
        "The pod may not be preempted, so it must fit into `min` of its quota, and does not.",
        "Let it be preemptible, or raise `min`.",
    ),
    Reason(
        "elastic.unreadable",
        "What the pod asks for is a number too large to count.",
        "Correct its requests.",
    ),
)


PLUGIN = Plugin(
    NAME,
    30,
    ElasticPolicy,
    (ELASTIC_QUOTA_KIND, COMPOSITE_KIND),
    ElasticSection,
    {
        ELASTIC_QUOTA_KIND.name: elastic_quota_settings,
        COMPOSITE_KIND.name: composite_settings,
        "Configuration": option_settings,
    },
    {ELASTIC_QUOTA_KIND.name: admit_elastic_quota, COMPOSITE_KIND.name: admit_composite},
    access={
        ELASTIC_QUOTA_KIND.name: lambda key, quota: access_of(
            (key.partition("/")[0],), f"ElasticQuota {key}", quota.metadata.annotations
        ),
        COMPOSITE_KIND.name: lambda key, quota: access_of(
            quota.spec.namespaces, f"CompositeElasticQuota {key}", quota.metadata.annotations
        ),
    },
    namespaces={
        ELASTIC_QUOTA_KIND.name: lambda key, _: (key.partition("/")[0],),
        COMPOSITE_KIND.name: lambda _, composite: _listed(composite),
    },
    writes={ELASTIC_QUOTA_KIND.name: ("delete",)},  # those that a composite quota takes over
    reasons=REASONS,
    title="Elastic quotas ([guide](elastic.md))",
    quotas=QuotaTable(
        objects={ELASTIC_QUOTA_KIND.name: read_row, COMPOSITE_KIND.name: read_row},
        over_quota=(CAPACITY_LABEL, OVER_QUOTA),
        explain=explain_row,
        called=called,
    ),
    fixes=FixFields(limits=fields_of),
    pods=PodMarks(own_labels=(CAPACITY_LABEL,)),
)
