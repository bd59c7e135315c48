"""What the nodes say when they refuse."""

from __future__ import annotations

from typing import Final

from bursar.policies.reasons import Reason

REASONS: Final = (
    Reason(
        "nodes.full",
        "Nodes could take the pod if they were empty, but none has room now.",
        "Wait, ask for less, or add nodes. `explain` shows what each node is short of.",
    ),
    Reason(
        "nodes.none",
        "No node could ever take the pod, however empty.",
        "Ask for less, correct selector, affinity or tolerations, or add a node that fits.",
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
