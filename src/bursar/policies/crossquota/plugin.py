"""How the crossquota policy joins: its section of the Configuration, and what it makes of a Node."""

from __future__ import annotations

from bursar.objects.core import Node
from bursar.objects.errors import ManifestError, join
from bursar.objects.quantities import amounts_from
from bursar.policies.crossquota.arguments import Arguments
from bursar.policies.crossquota.names import ARGUMENTS_KIND, CURRENT, DEVICES, GPU_NODE_LABEL, NAME, NODE_KIND, VOLCANO
from bursar.policies.crossquota.policy import CrossQuotaPolicy
from bursar.policies.crossquota.quotas import NodeBody
from bursar.policies.crossquota.reading import read_arguments
from bursar.policies.crossquota.volcano import arguments_of_text
from bursar.policies.plugin import Plugin
from bursar.policies.settings import Setting

Section = dict[str, object]
"""The flat arguments, as the plugin's users have them; ``reading`` checks each key."""


def node_settings(key: str, node: Node | None) -> list[Setting]:
    """A Node as a setting; its capacity stands in where it does not say what is allocatable."""
    if node is None:
        return [Setting(NODE_KIND, key, None)]
    status = node.status
    field, given = ("allocatable", status.allocatable) if status.allocatable else ("capacity", status.capacity)
    meta = node.metadata
    amounts = amounts_from(given, f"status.{field}") | devices_of(meta.annotations.get(DEVICES, ""))
    return [Setting(NODE_KIND, key, NodeBody(amounts, meta.annotations, GPU_NODE_LABEL in meta.labels))]


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


PLUGIN = Plugin(
    NAME,
    60,
    CrossQuotaPolicy,
    section=Section,
    translate={"Node": node_settings, "Configuration": argument_settings},
)
