"""How the trees policy joins, and what it makes of a QuotaTree."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bursar.objects.errors import ManifestError
from bursar.policies.plugin import ObjectView, Plugin
from bursar.policies.settings import Setting
from bursar.policies.trees.asks import LABEL, NAME
from bursar.policies.trees.kinds import QUOTA_TREE, QuotaTree, body_from
from bursar.policies.trees.policy import KIND, TreesPolicy


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


PLUGIN = Plugin(
    NAME,
    10,
    TreesPolicy,
    kinds=(QUOTA_TREE,),
    translate={QUOTA_TREE.name: tree_settings},
    check_removal={QUOTA_TREE.name: check_removal},
)
