"""Why quotas have what they have: found by what people call them, explained in the terms of their dialect.

A policy explains its own quotas; what it leaves out is made from the figures that all dialects share. Who counts and
who waits in a quota is added the same way for all of them.
"""

from __future__ import annotations

from collections.abc import Iterable

from bursar.ledger.claims import PENDING, Claim
from bursar.objects.decode import ManifestError, or_nearest
from bursar.objects.validation import few
from bursar.policies.plugin import Plugin
from bursar.policies.policy import Policy
from bursar.policies.quota_table import QuotaRecord
from bursar.policies.results import Check
from bursar.resources import dimension
from bursar.server import quotas, types
from bursar.server.problems import RefusedError
from bursar.server.quotas import Gathered
from bursar.server.rows import ClaimView, check_node
from bursar.server.time_travel import moment_of
from bursar.sim.cluster import Cluster

_ANY = ("quota", "quotas")
_NAMED = 10  # borrowers of other quotas that are listed


def quota_explanations(cluster: Cluster, kind: str, key: str) -> types.QuotaExplanations:
    """The caller holds the cluster's lock, so it reads no more quotas than it must."""
    gathered = quotas.gather(cluster)
    found = _of_one(_called(cluster, gathered, kind, key), key)
    pairs = {plugin.name: (plugin, policy) for plugin, policy in cluster.registry.paired(cluster.engine.policies)}
    items = [_explanation(cluster, gathered, record, *pairs[record.policy]) for record in _once_each(found)]
    return types.QuotaExplanations(items=items, moment=moment_of(cluster))


def _close(gathered: Gathered, kinds: set[str], key: str) -> str:
    """The quota that was probably meant, or where all of them are listed."""
    labels = (quota.label for quota in gathered.quotas() if not kinds or quota.kind in kinds)
    return or_nearest(key, labels) or ": `bursar get quotas` lists them"


def _called(cluster: Cluster, gathered: Gathered, kind: str, key: str) -> list[QuotaRecord]:
    """The rows that the text means: those labelled so, else those of the object of that key, else of that name."""
    kinds, records = set[str](), gathered.named(key)
    if kind not in _ANY:
        kinds = {one.name for one in cluster.kinds.called(kind)}
        if not kinds:
            raise RefusedError(400, _unknown(cluster, kind))
    records = [record for record in records if not kinds or record.kind in kinds]
    for form in ("label", "key", "name", "short_label"):
        found = [record for record in records if getattr(record, form) == key]
        if found:
            return found
    if records:
        return records
    raise RefusedError(404, f"there is no quota {key!r:.200}{_close(gathered, kinds, key)}")


def _unknown(cluster: Cluster, kind: str) -> str:
    try:
        cluster.kinds.find(kind)
    except ManifestError as error:
        return str(error)
    return f"{kind!r:.80} is no kind of quotas"


def _of_one(found: list[QuotaRecord], key: str) -> list[QuotaRecord]:
    """The rows of one object; raises, with what can be typed, if they are of several."""
    names = sorted({f"{record.kind}/{record.key}" for record in found})
    if len(names) > 1:
        raise RefusedError(400, f"the quota {key!r:.200} is ambiguous: type {' or '.join(names)}")
    return found


def _once_each(found: list[QuotaRecord]) -> list[QuotaRecord]:
    """Rows that one account stands for are one quota."""
    return list({record.account or record.label: record for record in reversed(found)}.values())[::-1]


def _explanation(
    cluster: Cluster, gathered: Gathered, record: QuotaRecord, plugin: Plugin, policy: Policy
) -> types.QuotaExplanation:
    check = None if plugin.quotas.explain is None else plugin.quotas.explain(policy, record)
    if check is None:
        records = gathered.quotas()
        record = next(one for one in records if (one.kind, one.label) == (record.kind, record.label))
        check = Check(record.subject, not record.exceeded, record.message, tuple(_figures(records, record)))
    counting, waiting = _claims(cluster, record, plugin, policy)
    view = ClaimView(cluster)
    borrowers = sorted(claim.key for claim in counting if view.borrows(claim))
    people = _pods(counting, waiting, borrowers)
    check = Check(check.title, check.passed, check.note, (*check.children, *people), check.reason)
    return types.QuotaExplanation(
        quota=quotas.row(record),
        tree=check_node(check),
        text="\n".join(check.lines()),
        counts=len(counting),
        waiting=sorted(claim.key for claim in waiting),
        borrowers=borrowers,
    )


def _figures(records: list[QuotaRecord], record: QuotaRecord) -> Iterable[Check]:
    """What the table says of each resource, and who borrows what this quota lends."""
    for resource, check in record.checks():
        lent = record.resources[resource].lent
        others = [other for other in records if other.lends_in == record.lends_in and other is not record]
        over = [(other.resources[resource].borrowed or 0, other) for other in others if resource in other.resources]
        over = sorted((one for one in over if one[0]), key=lambda one: (-one[0], one[1].label)) if lent else []
        show = dimension(resource).show
        yield Check(
            check.title,
            check.passed,
            check.note,
            tuple(Check("borrower", True, f"{other.label} borrows {show(amount)}") for amount, other in over[:_NAMED]),
        )


def _claims(cluster: Cluster, record: QuotaRecord, plugin: Plugin, policy: Policy) -> tuple[list[Claim], list[Claim]]:
    """The claims that count in the quota, and those that wait for it."""
    counting: list[Claim] = []
    waiting: list[Claim] = []
    listed = plugin.quotas.accounts
    for claim in cluster.engine.state.claims.values() if record.account else ():
        binding = claim.binding_of(policy.name)
        if binding is not None:
            accounts = binding.accounts if listed is None else listed(policy, claim)
            if any(account.name == record.account for account in accounts):
                (waiting if claim.state == PENDING else counting).append(claim)
    return counting, waiting


def _number(claims: list[Claim], verb: str) -> str:
    return f"1 {verb}s" if len(claims) == 1 else f"{len(claims)} {verb}"


def _pods(counting: list[Claim], waiting: list[Claim], borrowers: list[str]) -> Iterable[Check]:
    who = f": {few(sorted(claim.key for claim in waiting))}" if waiting else ""
    yield Check("pods", True, f"{_number(counting, 'count')}, {_number(waiting, 'wait')}{who}")
    if borrowers:
        yield Check("borrowing", True, few(borrowers))
