"""How the pools policy joins: kinds, options, translation, admission, rows, fixes, marks and reasons."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

import msgspec

from bursar.ledger.claims import Claim
from bursar.ledger.state import Account
from bursar.objects.core import Node
from bursar.objects.decode import ManifestError, join
from bursar.objects.requests import node_amounts
from bursar.policies.fix_fields import FixFields, LimitField, limit_fields
from bursar.policies.plugin import ObjectEdit, ObjectView, Plugin, PodMarks, Reason, derived
from bursar.policies.pools import configure
from bursar.policies.pools.api import (
    PROFILE,
    QUOTA,
    ElasticQuotaProfile,
    PoolQuota,
    PoolsSection,
    access_of_profile,
    access_of_quota,
    options_of_section,
    profile_of_object,
    quota_of_object,
)
from bursar.policies.pools.explanation import explain_quota, outside_amounts
from bursar.policies.pools.node_pools import PoolNode, Profile
from bursar.policies.pools.parse import text_list
from bursar.policies.pools.policy import PoolsPolicy
from bursar.policies.pools.propagation import account_key
from bursar.policies.pools.quota_admission import QuotaReview
from bursar.policies.pools.settings import (
    DEFAULT,
    DEFAULT_TREE,
    ENDLESS,
    IS_PARENT,
    NAME,
    NAMESPACES,
    PARENT,
    PREEMPTIBLE,
    QUOTA_OBJECT,
    QUOTA_OF_POD,
    RUNTIME,
    SYSTEM,
    TREE,
)
from bursar.policies.pools.topology import Topology, labels_of, topology_of
from bursar.policies.quota_table import QuotaRecord, QuotaTable
from bursar.policies.results import Check, Refusal, Setting
from bursar.resources import EMPTY

# Translation


def quota_settings(key: str, quota: PoolQuota | None) -> list[Setting]:
    return [Setting(configure.QUOTA, key, None if quota is None else quota_of_object(quota, key))]


def profile_settings(key: str, profile: ElasticQuotaProfile | None) -> list[Setting]:
    return [Setting(configure.PROFILE, key, None if profile is None else profile_of_object(profile, key))]


def node_settings(key: str, node: Node | None) -> list[Setting]:
    if node is None:
        return [Setting(configure.NODE, key, None)]
    return [Setting(configure.NODE, key, pool_node(node))]


def pool_node(node: Node) -> PoolNode:
    """A node that is cordoned or not ready counts in the total, and is listed as unschedulable."""
    ready = all(condition.status == "True" for condition in node.status.conditions if condition.type == "Ready")
    return PoolNode(node_amounts(node.status), node.metadata.labels, ready and not node.spec.unschedulable)


def option_settings(key: str, section: PoolsSection | None) -> list[Setting]:
    return [Setting(configure.OPTION, key, options_of_section(section))]


# Admission


def _read_profile(manifest: Mapping[str, Any]) -> Profile:
    try:
        return profile_of_object(msgspec.convert(manifest, ElasticQuotaProfile))
    except msgspec.ValidationError as error:
        raise ManifestError(str(error)) from None


def _read_node(manifest: Mapping[str, Any]) -> PoolNode:
    return pool_node(msgspec.convert(manifest, Node))


def _topology(view: ObjectView) -> Topology:
    return derived(view, Topology, lambda whole: topology_of(whole, _read_profile))


def _section(view: ObjectView) -> PoolsSection:
    for manifest in view.list("Configuration.bursar.dev"):
        section = (manifest.get("spec") or {}).get(NAME)
        if section is not None:
            return msgspec.convert(section, PoolsSection)
    return PoolsSection()


def review(view: ObjectView, edits: Sequence[ObjectEdit]) -> list[ObjectEdit]:
    """Fills in the defaults of quotas and profiles, and judges the apply or delete as a whole."""
    return QuotaReview(_topology(view), view, _read_node, _section(view).guarantee_usage).run(edits)


def pod_admission(view: ObjectView, old: Mapping[str, Any] | None, new: dict[str, Any]) -> dict[str, Any]:
    """Refuses a pod whose quota takes no pods. (The nodes of its tree are the policy's: ``node_needs``.)"""
    labels = labels_of(new)
    if old is not None and labels_of(old).get(PREEMPTIBLE) != labels.get(PREEMPTIBLE):
        raise ManifestError("cannot be changed", join("metadata.labels", PREEMPTIBLE))
    topology, namespace = _topology(view), str(new["metadata"].get("namespace") or "")
    name = topology.name_of(namespace, labels)
    before = None if old is None else topology.name_of(namespace, labels_of(old))
    quota = topology.quota(name)
    refused = quota is not None and quota.is_parent and name not in (DEFAULT, before)
    if refused and not _section(view).parent_quota_pods:
        path = _LABEL if labels.get(QUOTA_OF_POD) else "metadata.namespace"
        raise ManifestError(f"quota {name} has children: a pod must name one of those", path)
    node = "" if old is None else str((old.get("spec") or {}).get("nodeName") or "")
    if node and before is not None and name != before:
        _check_move(topology, view, (before, name), node)
    return new


_LABEL: Final = join("metadata.labels", QUOTA_OF_POD)


def _check_move(topology: Topology, view: ObjectView, names: tuple[str, str], node: str) -> None:
    """A pod with a node may move within its tree, and to a tree to whose pods its node is open now."""
    trees = [DEFAULT_TREE if quota is None else topology.tree_of(quota) for quota in map(topology.quota, names)]
    labels = labels_of(view.get("Node", node) or {"metadata": {}})
    owner = next((profile for profile in topology.profiles.order if profile.selects(labels)), None)
    if trees[0] == trees[1] or trees[1] in ((DEFAULT_TREE,) if owner is None else owner.open_to()):
        return
    here = "no profile" if owner is None else f"profile {owner.key}"
    problem = f"a pod with a node can only move to a quota that shares out that node: {node} belongs to {here}, quota"
    problem += f" {names[0]} to {_profiles(topology, trees[0])}, and quota {names[1]} to"
    problem += f" {_profiles(topology, trees[1])}; delete the pod and create it again to move it there"
    raise ManifestError(problem, _LABEL)


def _profiles(topology: Topology, tree: str) -> str:
    keys = [profile.key for profile in topology.profiles.profiles_of(tree)]
    if not keys:
        return "the default tree" if tree == DEFAULT_TREE else f"tree {tree}, which has no profile"
    return f"{'profile' if len(keys) == 1 else 'profiles'} {', '.join(keys)}"


def unpreemptible(labels: Mapping[str, str], _annotations: Mapping[str, str]) -> bool:
    return labels.get(PREEMPTIBLE) == "false"


def namespaces_of(key: str, quota: Mapping[str, Any]) -> list[str]:
    """The namespaces that its annotation lists, if readable, and its own if it has that name."""
    namespace, _, name = key.partition("/")
    listed: list[str] = []
    with suppress(ManifestError):  # admission of the quota reports it
        listed = text_list(quota["metadata"].get("annotations") or {}, NAMESPACES)
    return [*listed, namespace] if name == namespace else listed


# Rows and fixes


def read_row(row: QuotaRecord, body: Mapping[str, Any], written: Mapping[str, Any]) -> None:
    labels = {**((body.get("metadata") or {}).get("labels") or {}), **written.get("labels", {})}
    row.parent, row.tree = labels.get(PARENT, ""), labels.get(TREE, "")
    row.account = account_key(row.tree, row.name)
    spec = body.get("spec") or {}
    row.fill("min", spec.get("min"))
    row.fill("max", {name: most for name, most in (spec.get("max") or {}).items() if str(most) != str(ENDLESS)})
    row.fill("used", written.get("status", {}).get("used"))
    runtime = written.get("annotations", {}).get(RUNTIME)
    row.fill("runtime", msgspec.json.decode(runtime) if runtime else None)
    row.borrow()
    if labels.get(IS_PARENT) == "true":
        for figures in row.resources.values():  # its children lend what it leaves idle
            figures.idle = None


def rows_outside(policy: PoolsPolicy) -> Iterator[QuotaRecord]:
    """What runs outside of all quotas, for each tree: the default quota, and the system quota if it is used."""
    derived = policy.derived
    for name in (DEFAULT, SYSTEM):
        quota = derived.resolver.quota(name)
        if quota is None:
            continue
        account = account_key(quota.tree, name)
        found = outside_amounts(derived, name)
        for tree in sorted({DEFAULT_TREE, *found} if name == DEFAULT else found):
            names = "+".join([profile.name for profile in derived.node_pools.profiles_of(tree)])
            row = QuotaRecord(NAME, QUOTA_OBJECT, "", name, names, "", tree, account=account)
            row.fill("used", found.get(tree, EMPTY).show())
            yield row


def called(policy: PoolsPolicy, account: Account) -> str:
    """The quota of an account; those of its own pods are internal."""
    branch, suffix = policy.derived.roles[account.name]
    if suffix or branch.quota is None:
        return ""
    return branch.name if branch.built_in else branch.quota.key


def explain_row(policy: PoolsPolicy, row: QuotaRecord) -> Check | None:
    branch = policy.derived.forest.branches.get(row.account)
    return None if branch is None else explain_quota(policy.derived, branch)


def fields_of(view: ObjectView, _claim: Claim, refusal: Refusal) -> list[LimitField]:
    name = refusal.account.split("/")[2] if refusal.account.count("/") >= 2 else ""
    side = "max" if refusal.reason.startswith("pools.max.") else "min"
    ceiling = ("spec", "max", refusal.resource) if side == "min" else ()
    path = ("spec", side, refusal.resource)
    named = [body for body in view.list(QUOTA_OBJECT) if body["metadata"].get("name") == name]
    return [one for body in named for one in limit_fields(QUOTA_OBJECT, body, path, refusal.resource, ceiling=ceiling)]


REASONS: Final = (
    Reason(
        "pools.max.<resource>",
        "The pod's quota, or one above it, would exceed its `max`.",
        "Wait, ask for less, or raise `max`.",
    ),
    Reason(
        "pools.runtime.<resource>",
        "The quota has used up its runtime quota: its `min` and its weighted part of what others leave idle now.",
        "Wait until others need less, or raise `min` or the shared weight.",
    ),
    Reason(
        "pools.min.<resource>",
        "The pod may not be preempted, so it must fit into `min` of its quota, and does not.",
        "Let it be preemptible, or raise `min`.",
    ),
    Reason(
        "pools.loose",
        "The pod's quota hangs on no tree: its parent is missing, or no profile has its tree id.",
        "Apply the parent or the profile, or correct the label that names it. The note says what is wrong.",
    ),
    Reason(
        "pools.unplaceable",
        "No node of the tree of the pod's quota could ever take the pod, so it waits, and its demand is not counted.",
        "Ask for what a node of the pool has, or add nodes.",
    ),
    Reason(
        "pools.revoked",
        "The pod was evicted: its quota used more than its runtime quota for longer than `delayEvictTime`, and a pod "
        "within the runtime of its own quota waited for it. Only with `revokeOveruse`.",
        "Submit it again: it starts when the quota has room. To be safe from this, stay within `min`.",
    ),
)


PLUGIN = Plugin(
    NAME,
    20,
    PoolsPolicy,
    kinds=(QUOTA, PROFILE),
    section=PoolsSection,
    translate={
        QUOTA.name: quota_settings,
        PROFILE.name: profile_settings,
        "Node": node_settings,
        "Configuration": option_settings,
    },
    admit={"Pod": pod_admission},
    review=review,
    reviewed=(QUOTA.name, PROFILE.name),
    access={
        QUOTA.name: lambda key, quota: access_of_quota(quota, key),
        PROFILE.name: lambda key, profile: access_of_profile(profile, key),
    },
    unpreemptible=unpreemptible,
    namespaces={QUOTA.name: namespaces_of},
    chosen={QUOTA.name: QUOTA_OF_POD},
    writes={
        QUOTA.name: ("create", "delete", "patch"),  # root quotas of profiles
        PROFILE.name: ("patch",),  # the tree id
    },
    reasons=REASONS,
    title="Quota trees over node pools ([guide](pools.md))",
    quotas=QuotaTable(objects={QUOTA_OBJECT: read_row}, rows=rows_outside, explain=explain_row, called=called),
    fixes=FixFields(limits=fields_of, preemptible=PREEMPTIBLE),
    pods=PodMarks(quota_labels=(QUOTA_OF_POD,), fixed_labels=(PREEMPTIBLE,)),
)
