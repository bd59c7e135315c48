"""How the crossquota policy joins: its section of the Configuration, Nodes as settings, rows, marks and reasons.

The arguments stand in the section, or in the text of a Volcano scheduler configuration. Only the entry of this plugin
is read there. An entry that switches the filter off is refused; one that switches scoring off means a weight of 0.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Final, cast

from bursar.ledger.claims import Claim
from bursar.objects.core import Node
from bursar.objects.decode import ManifestError, join
from bursar.objects.manifests import documents
from bursar.objects.pods import DEVICES, GPU_NODE_LABEL
from bursar.objects.requests import node_amounts
from bursar.policies.crossquota.arguments import (
    ARGUMENTS_KIND,
    CURRENT,
    NAME,
    NODE_KIND,
    NODE_MARKS,
    PREFIX,
    STRATEGY,
    VOLCANO,
    WEIGHT,
    Arguments,
    read_arguments,
)
from bursar.policies.crossquota.node_quota import MIRROR, CrossQuotaNodeBody, count_gpus
from bursar.policies.crossquota.policy import CrossQuotaPolicy
from bursar.policies.fix_fields import FixFields, no_limit_fields
from bursar.policies.plugin import PlacementRules, Plugin, PodMarks, Reason
from bursar.policies.quota_table import QuotaFigures, QuotaRecord, QuotaTable
from bursar.policies.results import Setting
from bursar.resources import UNLIMITED

_PREDICATE: Final = "enablePredicate"
_NODE_ORDER: Final = "enableNodeOrder"


def arguments_of_text(text: str, path: str = "") -> tuple[dict[str, object], str]:
    """(arguments, their path inside the text); raises ``ManifestError``, also when the plugin is not listed."""
    try:
        contents = [content for _, content in documents(text) if content is not None]
    except ManifestError as error:
        raise error.inside(path) from None
    if len(contents) != 1 or not isinstance(contents[0], dict):
        raise ManifestError("is not a Volcano scheduler configuration: one mapping with tiers", path)
    return _arguments(cast("dict[str, object]", contents[0]), path)


def _arguments(configuration: dict[str, object], path: str) -> tuple[dict[str, object], str]:
    found = [(plugin, where) for plugin, where in _plugins(configuration, path) if plugin.get("name") == NAME]
    if len(found) != 1:
        times = "not listed" if not found else "listed more than once"
        raise ManifestError(f"the plugin {NAME} is {times}", join(path, "tiers"))
    plugin, where = found[0]
    if plugin.get(_PREDICATE, True) is not True:
        raise ManifestError("the quota cannot be switched off while it is configured", join(where, _PREDICATE))
    given = plugin.get("arguments")
    if given is None:
        given = {}
    if not isinstance(given, dict):
        raise ManifestError("expected a mapping", join(where, "arguments"))
    arguments = dict(cast("dict[str, object]", given))
    if plugin.get(_NODE_ORDER, True) is not True:
        arguments[WEIGHT] = 0
    return arguments, join(where, "arguments")


def _plugins(configuration: dict[str, object], path: str) -> list[tuple[dict[str, object], str]]:
    """Every plugin entry with its path."""
    found: list[tuple[dict[str, object], str]] = []
    for i, tier in enumerate(_list(configuration, "tiers", path)):
        where = join(join(path, "tiers"), f"[{i}]")
        for j, plugin in enumerate(_list(_mapping(tier, where), "plugins", where)):
            inner = join(join(where, "plugins"), f"[{j}]")
            found.append((_mapping(plugin, inner), inner))
    return found


def _list(holder: dict[str, object], key: str, path: str) -> list[object]:
    value = holder.get(key)
    if not isinstance(value, list):
        raise ManifestError("expected a list", join(path, key))
    return cast("list[object]", value)


def _mapping(value: object, path: str) -> dict[str, object]:
    if not isinstance(value, dict):
        raise ManifestError("expected a mapping", path)
    return cast("dict[str, object]", value)


Section = dict[str, object]
"""The flat arguments, as the plugin's users have them; ``reading`` checks each key."""


def node_settings(key: str, node: Node | None) -> list[Setting]:
    if node is None:
        return [Setting(NODE_KIND, key, None)]
    meta = node.metadata
    amounts = node_amounts(node.status) | devices_of(meta.annotations.get(DEVICES, ""))
    return [Setting(NODE_KIND, key, CrossQuotaNodeBody(amounts, meta.annotations, GPU_NODE_LABEL in meta.labels))]


def devices_of(text: str) -> dict[str, int]:
    """How many devices of each driver a node has; what cannot be read is not counted."""
    found: dict[str, int] = {}
    for part in text.split(","):
        driver, _, count = part.partition("=")
        if driver and count.isascii() and count.isdigit() and len(count) < 10:
            found[driver] = int(count)
    return found


def argument_settings(_: str, section: Section | None) -> list[Setting]:
    """The section as a setting; without one nothing is limited."""
    body = None if section is None else arguments_from(section)
    return [Setting(ARGUMENTS_KIND, CURRENT, body)]


def arguments_from(section: Section) -> Arguments:
    """The arguments themselves, or those in the text of a Volcano scheduler configuration."""
    path = f"spec.{NAME}"
    text = section.get(VOLCANO)
    if text is None:
        return read_arguments(section, path)
    path = join(path, VOLCANO)
    if not isinstance(text, str):
        raise ManifestError("expected the text of a Volcano scheduler configuration", path)
    if len(section) > 1:
        raise ManifestError("has all arguments: none can be given beside it", path)
    given, inner = arguments_of_text(text, path)
    if VOLCANO in given:
        raise ManifestError("is not a known argument", join(inner, VOLCANO))
    return read_arguments(given, inner)


def exempt_namespaces(section: Section | None) -> tuple[str, ...] | None:
    """With any arguments the policy governs all namespaces but these."""
    if not section:
        return None
    with suppress(ManifestError):
        return arguments_from(section).exempt_namespaces
    return ()


def quota_rows(policy: CrossQuotaPolicy) -> Iterator[QuotaRecord]:
    """One row for each GPU node."""
    for facts in policy.index.facts:
        if facts is None or not facts.is_gpu_node():
            continue
        account = policy.state.accounts.get(PREFIX + facts.name)
        row = QuotaRecord(NAME, "Node", "", facts.name)
        for limit in facts.quotas:
            used = 0 if account is None else account.used.amount(limit.resource)
            row.resources[limit.resource] = QuotaFigures(used, max=None if limit.cap == UNLIMITED else limit.cap)
        yield row


class GpuNodeFence(PlacementRules):
    """Pins CPU pods that share a GPU node to it, and keeps all others off GPU nodes."""

    def __init__(self, policy: CrossQuotaPolicy) -> None:
        self._index = policy.index

    def keeps_off(self, claim: Claim) -> bool:
        return bool(self._index.patterns) and self._index.scope.limited(claim)

    def pins(self, claim: Claim) -> bool:
        if not claim.place or not self.keeps_off(claim):
            return False
        facts = self._index.node(claim.place)
        return facts is not None and facts.is_gpu_node()

    def unmarked(self, node: Node) -> bool:
        if not self._index.patterns:
            return False
        body = node_settings("", node)[0].body
        if not isinstance(body, CrossQuotaNodeBody) or body.labelled:
            return False
        return count_gpus(body.allocatable, self._index.patterns) > 0


REASONS: Final = (
    Reason(
        "crossquota.quota.<resource>",
        "Pods without a GPU already have all that they may have of this GPU node.",
        "Wait, let the pod run on nodes without GPUs, or raise the quota of the node.",
    ),
    Reason(
        "crossquota.reserve.<resource>",
        "What is left on this GPU node is kept for pods that will use its idle GPUs.",
        "Wait, let the pod run on nodes without GPUs, or lower the reserve.",
    ),
    Reason(
        "crossquota.annotation",
        "Event on a node: an annotation with the node's own quota cannot be read, and is not used.",
        "Correct the annotation.",
    ),
    Reason(
        "crossquota.exceeded",
        "Event on a node: pods without a GPU have more of it than they may, because the quota was lowered or they were "
        "there before it.",
        "Nothing has to be done: no pod is evicted, and none is admitted until the use is within the quota again.",
    ),
)


PLUGIN = Plugin(
    NAME,
    60,
    CrossQuotaPolicy,
    section=Section,
    translate={"Node": node_settings, "Configuration": argument_settings},
    reasons=REASONS,
    title="CPU pods on GPU nodes ([guide](crossquota.md))",
    quotas=QuotaTable(rows=quota_rows),
    fixes=FixFields(limits=no_limit_fields),
    pods=PodMarks(fixed_annotations=(STRATEGY,), read_annotations=(MIRROR,)),
    node_annotations=(NODE_MARKS,),
    placement=GpuNodeFence,
    everywhere=exempt_namespaces,
)
