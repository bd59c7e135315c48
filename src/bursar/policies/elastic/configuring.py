"""Quotas and options come, change and go: what is accepted, what it changes in the ledger, who is bound anew."""

from __future__ import annotations

from bursar.dimensions import dimension, dimension_at
from bursar.ledger.accounts import Account
from bursar.ledger.state import State
from bursar.ledger.transactions import Transaction
from bursar.limits import NO_LIMITS, Limits
from bursar.policies.elastic.book import Book
from bursar.policies.elastic.names import COMPOSITE, ELASTIC_QUOTA, NAME, OPTIONS, QUOTAS, TOTAL
from bursar.policies.elastic.quota import Quota
from bursar.policies.elastic.settings import (
    BY_CAPACITY,
    IN_FORCE,
    REMOVED,
    TAKEN_OVER,
    OptionsBody,
    QuotaBody,
)
from bursar.policies.settings import Setting, SettingError

_KEY = "options"


def configure_options(tx: Transaction, book: Book, setting: Setting) -> list[str]:
    body = setting.body
    if body is not None and not isinstance(body, OptionsBody):
        raise SettingError(f"Configuration {setting.key}", "spec.elastic", "is no set of options")
    tx.put(NAME, OPTIONS, _KEY, None if body is None else body.cell())
    _bound_borrowing(tx, book)
    governed = [claim for quota in book.live() for claim in quota.members]
    pending = [uid for uid, claim in tx.state.claims.items() if claim.namespace in book.by_namespace]
    return sorted({*governed, *pending})


def configure_quota(tx: Transaction, book: Book, setting: Setting) -> list[str]:
    known = book.quotas.get(setting.key)
    body = setting.body
    if body is None:
        return [] if known is None else _remove(tx, book, known, REMOVED)
    if not isinstance(body, QuotaBody):
        raise SettingError(setting.key, "", "is no elastic quota")
    check_quota(body)
    stale: set[str] = set()
    for namespace in body.namespaces:
        stale.update(_make_way(tx, book, setting.key, body, namespace))
    _open(tx, setting.key, body)
    tx.put(NAME, QUOTAS, setting.key, body.cell(IN_FORCE))
    _bound_borrowing(tx, book)
    stale.update(_to_bind_anew(tx.state, known, body))
    return sorted(stale)


def check_quota(body: QuotaBody) -> None:
    """What must hold of a quota by itself."""
    if not body.namespaces:
        raise SettingError(body.subject, "spec.namespaces", "must name at least one namespace")
    for name, most in body.max.listed.items():
        least = body.min.listed.get(name)
        if least is not None and most < least:
            show = dimension(name).show
            raise SettingError(body.subject, f"spec.max.{name}", f"{show(most)} is less than the min of {show(least)}")


def _make_way(tx: Transaction, book: Book, id: str, body: QuotaBody, namespace: str) -> list[str]:  # noqa: A002
    """One namespace, one quota: refuse, or take the namespace over where a composite says so."""
    other = book.governing(namespace)
    if other is None or other.id == id:
        return []
    if body.kind == COMPOSITE and other.body.kind == ELASTIC_QUOTA and body.takeover:
        return _remove(tx, book, other, TAKEN_OVER)
    problem = f"namespace {namespace} is governed by {other.body.subject} already"
    if body.kind == COMPOSITE and other.body.kind == ELASTIC_QUOTA:
        problem += "; takeover: true would replace it"
    field = "spec.namespaces" if body.kind == COMPOSITE else "metadata.namespace"
    raise SettingError(body.subject, field, problem)


def _remove(tx: Transaction, book: Book, quota: Quota, state: int) -> list[str]:
    """It governs nobody any more; its accounts are closed when nobody stands on them."""
    if quota.state == REMOVED:
        return []
    tx.put(NAME, QUOTAS, quota.id, quota.body.cell(state))
    _bound_borrowing(tx, book)
    return _claims_in(tx.state, set(quota.body.namespaces))


def _open(tx: Transaction, id: str, body: QuotaBody) -> None:  # noqa: A002 as the ledger calls it
    if TOTAL not in tx.state.accounts:
        tx.open_account(NAME, TOTAL)
    names = Quota(id, body, True)
    tx.set_limits(_account(tx, names.account), body.max)
    # Another min changes the rights of everybody, so it must wake all who wait: the topic of the total.
    tx.set_limits(_account(tx, names.firm, TOTAL), body.min)
    _account(tx, names.running)


def _account(tx: Transaction, name: str, topic: str = "") -> Account:
    found = tx.state.accounts.get(name)
    return tx.open_account(NAME, name, topic) if found is None else found


def _bound_borrowing(tx: Transaction, book: Book) -> None:
    """All quotas together may use the sum of their minimums, or (by option) whatever the nodes have."""
    account = tx.state.accounts.get(TOTAL)
    if account is None:
        return
    limits = NO_LIMITS
    if book.options.borrowing != BY_CAPACITY:
        limits = Limits({dimension_at(dim).name: total for dim, total in book.total_min.items()})
    tx.set_limits(account, limits)


def _to_bind_anew(state: State, known: Quota | None, body: QuotaBody) -> list[str]:
    """Claims of namespaces that come or go; all of them when the dimensions that min lists change."""
    if known is None or known.state != IN_FORCE or list(known.body.min.listed) != list(body.min.listed):
        before = () if known is None else known.body.namespaces
        return _claims_in(state, {*before, *body.namespaces})
    return _claims_in(state, set(known.body.namespaces) ^ set(body.namespaces))


def _claims_in(state: State, namespaces: set[str]) -> list[str]:
    if not namespaces:
        return []
    return [uid for uid, claim in state.claims.items() if claim.namespace in namespaces]
