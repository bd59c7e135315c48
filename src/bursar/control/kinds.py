"""All kinds that a set of policies can be given, and the loop's own section of the Configuration."""

from __future__ import annotations

from bursar.objects.configuration import configuration_kind
from bursar.objects.core import Part
from bursar.objects.corekinds import CORE_KINDS
from bursar.objects.kindset import KindSet
from bursar.policies.plugin import Registry

SECTION = "control"


class ControlSection(Part, frozen=True):
    """``Configuration.spec.control``."""

    strict: bool = False  # nobody passes the most urgent claim that waits


def known_kinds(registry: Registry) -> KindSet:
    """Kubernetes' own kinds, the Configuration with a section for each policy that has one, and the policies' kinds."""
    sections = {plugin.name: plugin.section for plugin in registry if plugin.section is not None}
    configuration = configuration_kind(sections | {SECTION: ControlSection})
    return KindSet([*CORE_KINDS, configuration, *(kind for plugin in registry for kind in plugin.kinds)])
