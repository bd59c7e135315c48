"""What the quota trees say when they refuse."""

from __future__ import annotations

from typing import Final

from bursar.policies.reasons import Reason

REASONS: Final = (
    Reason(
        "trees.quota.<resource>",
        "A node of the tree on the way from the pod's group upwards has no room, and nobody there may be displaced.",
        "Wait, ask for less, raise the quota of the node that is named, or make the node below it soft so that the "
        "group may borrow from above.",
    ),
    Reason(
        "trees.quota",
        "There would be room in the tree, but not after all that would have to leave has left.",
        "Wait, or ask for less.",
    ),
    Reason(
        "trees.unknown-tree",
        "A label `quota.bursar.dev/<tree>` names a tree that does not exist.",
        "Apply the `QuotaTree`, or correct the label. The pod starts by itself when the tree comes.",
    ),
    Reason(
        "trees.unknown-group",
        "The tree has no node with the name that the label gives.",
        "Correct the label, or add the node to the tree.",
    ),
    Reason(
        "trees.inner-group",
        "The label names a node that has children; pods belong to leaves.",
        "Name a leaf, or add one below the node.",
    ),
    Reason(
        "trees.outside",
        "Library only: the consumer names no tree of the forest that it is allocated on.",
        "Give the consumer a request for one of the forest's trees.",
    ),
)
