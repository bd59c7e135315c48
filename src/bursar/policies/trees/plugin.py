"""How the trees policy joins, and what it makes of a QuotaTree.

What the quota trees say when they refuse.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from bursar.objects.decode import ManifestError
from bursar.policies.plugin import ObjectView, Plugin, Reason
from bursar.policies.results import Setting
from bursar.policies.trees.api import QUOTA_TREE, QuotaTree, body_from
from bursar.policies.trees.policy import KIND, TreesPolicy
from bursar.policies.trees.records import LABEL, NAME


def tree_settings(key: str, tree: QuotaTree | None) -> list[Setting]:
    """A QuotaTree as a setting."""
    return [Setting(KIND, key, None if tree is None else body_from(tree))]


def check_removal(view: ObjectView, tree: Mapping[str, Any]) -> None:
    """A tree that pods name is in use."""
    name = str(tree["metadata"]["name"])
    for pod in view.list("Pod"):
        phase = (pod.get("status") or {}).get("phase")
        metadata = pod["metadata"]
        if f"{LABEL}{name}" in (metadata.get("labels") or {}) and phase not in {"Succeeded", "Failed"}:
            pod_name = f"{metadata.get('namespace', 'default')}/{metadata['name']}"
            raise ManifestError(f"is in use: the pod {pod_name} names it", subject=f"QuotaTree {name}")


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


PLUGIN = Plugin(
    NAME,
    10,
    TreesPolicy,
    kinds=(QUOTA_TREE,),
    translate={QUOTA_TREE.name: tree_settings},
    check_removal={QUOTA_TREE.name: check_removal},
    reasons=REASONS,
    title="Quota trees ([guide](trees.md))",
)
