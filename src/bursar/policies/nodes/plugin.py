"""How the nodes policy joins: Nodes and the section ``nodes`` of the Configuration as settings, and its reasons."""

from __future__ import annotations

from typing import Annotated, Final

from msgspec import Meta

from bursar.objects.core import Node, Part
from bursar.objects.decode import ManifestError
from bursar.objects.refused_pods import REFUSED_PODS, read_refusals
from bursar.objects.requests import node_amounts
from bursar.objects.validation import is_qualified
from bursar.policies.fix_fields import FixFields, no_limit_fields
from bursar.policies.nodes.policy import KIND, OPTIONS, NodesPolicy
from bursar.policies.nodes.rules import NAME, IgnoredBody, NodeBody
from bursar.policies.plugin import Plugin, Reason
from bursar.policies.results import Setting
from bursar.resources import Limits
from bursar.selectors import Taint


def node_settings(key: str, node: Node | None) -> list[Setting]:
    """A Node as a setting."""
    if node is None:
        return [Setting(KIND, key, None)]
    allocatable = Limits(node_amounts(node.status), stock=True)
    taints = tuple(Taint(taint.key, taint.value, taint.effect) for taint in node.spec.taints)
    refusals = read_refusals(node.metadata.annotations)
    refused = tuple((name, one.why) for name, one in refusals.items() if not one.over)
    return [Setting(KIND, key, NodeBody(allocatable, node.metadata.labels, taints, node.spec.unschedulable, refused))]


class NodesSection(Part, frozen=True):
    """``Configuration.spec.nodes``."""

    ignored_resources: Annotated[
        tuple[str, ...],
        Meta(
            max_length=256,
            description="Extended resources that a scheduler extender or webhook hands out, and no node lists: pods"
            " that request them need none of them from their node. Quotas count them.",
        ),
    ] = ()


def section_settings(key: str, section: NodesSection | None) -> list[Setting]:
    names = () if section is None else section.ignored_resources
    for index, name in enumerate(names):
        if "/" not in name or not is_qualified(name):
            problem = f"{name!r:.80} is not the name of an extended resource"
            raise ManifestError(problem, f"spec.nodes.ignoredResources[{index}]")
    return [Setting(OPTIONS, key, IgnoredBody(tuple(sorted({*names}))) if names else None)]


REASONS: Final = (
    Reason(
        "nodes.full",
        "Nodes could take the pod if they were empty, but none has room now.",
        "Wait, ask for less, or add nodes. `explain` shows what each node is short of.",
    ),
    Reason(
        "nodes.none",
        "No node could ever take the pod, however empty.",
        "Ask for less, correct selector, affinity or tolerations, or add a node that fits. Resources that a scheduler "
        "extender hands out stand in `spec.nodes.ignoredResources`.",
    ),
    Reason(
        "nodes.room.<resource>",
        "This node is short of the resource.",
        "Wait, or ask for less.",
    ),
    Reason(
        "nodes.selector",
        "The node's labels are not what `nodeSelector` wants, or it is not the node that was named.",
        "Correct the selector, or label nodes.",
    ),
    Reason(
        "nodes.affinity",
        "The node matches no term of the required node affinity, of the pod or of its quota.",
        "Correct the affinity, or label nodes.",
    ),
    Reason(
        "nodes.unschedulable",
        "The node is cordoned.",
        "Make it schedulable again, or wait for room elsewhere.",
    ),
    Reason(
        "nodes.taint",
        "The node has a taint that the pod does not tolerate.",
        "Add a toleration, or remove the taint.",
    ),
    Reason(
        "nodes.anti-affinity",
        "A pod on the node, or on one of the same topology, keeps such pods away by its required anti-affinity.",
        "Wait, use other labels, or change the anti-affinity of the pod that the sentence names.",
    ),
    Reason(
        "nodes.refused",
        "Kubernetes only: the scheduler refused such pods on the node not long ago, for a reason that it alone judges.",
        "See the scheduler's words; the node is tried again after some minutes.",
    ),
    Reason(
        "nodes.port",
        "A host port that the pod wants is taken on the node.",
        "Wait, or use another port.",
    ),
    Reason(
        "nodes.unknown",
        "There is no node of that name.",
        "Apply the node, or correct the name.",
    ),
    Reason(
        "nodes.removed",
        "The node was deleted; only pods that run there still hold it.",
        "Wait for room elsewhere.",
    ),
)


PLUGIN = Plugin(
    NAME,
    50,
    NodesPolicy,
    section=NodesSection,
    translate={"Node": node_settings, "Configuration": section_settings},
    node_annotations=(REFUSED_PODS,),
    reasons=REASONS,
    title="Nodes",
    fixes=FixFields(limits=no_limit_fields),
)
