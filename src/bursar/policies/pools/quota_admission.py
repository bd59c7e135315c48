"""Admission of quotas and profiles: one apply or delete is judged as a whole, whatever the order of its objects.

All edits are entered into a layer on the topology, parents before their children, so that each quota finds the tree of
its parent. Then every rule is checked on the result, in Koordinator's order; added are cycles, keys that only Bursar
writes, and the check of every meaningful key on update.

Refused is what promises more than before, not what was promised already: a tree may have lost nodes since. The sum of
the children's min may exceed the min of their parent by as much as it did. Nodes are no promise: what they do to a root
quota counts as if it had been so before.

A root quota belongs to its profiles. What an apply says of it is accepted, and Bursar puts it right.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, final

from bursar.objects.decode import ManifestError, join
from bursar.policies.plugin import ObjectEdit, ObjectView
from bursar.policies.pools.affinity import check_terms
from bursar.policies.pools.node_pools import PoolNode
from bursar.policies.pools.parse import amounts_in
from bursar.policies.pools.quota_edits import (
    ANNOTATIONS,
    LABELS,
    QuotaEdit,
    check_reserved,
    check_self,
    default_weight,
    differ,
    extra_keys,
    fits,
    joined,
    keys_of,
    larger,
)
from bursar.policies.pools.root_quotas import listing
from bursar.policies.pools.settings import (
    BUILT_IN,
    GUARANTEED,
    IS_PARENT,
    NAMESPACES,
    PARENT,
    PROFILE_OBJECT,
    QUOTA_OBJECT,
    RESOURCE_KEYS,
    ROOT,
    SYSTEM,
    TREE,
    WEIGHT,
    PoolQuotaBody,
    QuotaObject,
)
from bursar.policies.pools.topology import NODE_OBJECT, ReadNode, Topology
from bursar.resources import dimension


@final
class QuotaReview:
    """Judges the edits of one apply or delete."""

    def __init__(self, topology: Topology, view: ObjectView, read_node: ReadNode, guarantee: bool) -> None:
        self.known: Final = topology
        self.topology: Final = topology.layer()
        self.view: Final = view
        self.read_node: Final = read_node
        self.guarantee: Final = guarantee
        self.edits: Final[dict[str, QuotaEdit]] = {}  # of quotas, by name
        self.nodes: Final[dict[str, Mapping[str, Any] | None]] = {}  # that change in the same apply
        self.moves_nodes: bool = False  # nodes or profiles change, so the objects of root quotas are out of date
        self.roots: Final[dict[str, PoolQuotaBody | None]] = {}  # root quotas that were computed from nodes

    def run(self, edits: Sequence[ObjectEdit]) -> list[ObjectEdit]:
        """The edits with their defaults."""
        ordered = sorted(edits, key=_key_of)
        profiles = [edit for edit in ordered if edit.kind == PROFILE_OBJECT]
        self.nodes.update({edit.key: edit.new for edit in ordered if edit.kind == NODE_OBJECT})
        self.moves_nodes = bool(self.nodes or profiles)
        filled: dict[tuple[str, str], dict[str, Any] | None] = {}
        for edit in profiles:
            filled[_key_of(edit)] = self._enter_profile(edit)
        for edit in ordered:
            if edit.kind == QUOTA_OBJECT:
                self._note(edit)
        for name in sorted(self.edits):
            self._enter(name)
        for edit in profiles:
            self._check_profile(edit)
        for name in sorted(self.edits):
            self._check(self.edits[name])
            filled[_key_of(self.edits[name].edit)] = self.edits[name].manifest
        self._check_sums()
        return [ObjectEdit(one.kind, one.key, one.old, filled.get(_key_of(one), one.new)) for one in edits]

    # Entering

    def _enter_profile(self, edit: ObjectEdit) -> dict[str, Any] | None:
        """Enters a profile with its tree id, which never changes."""
        if edit.new is None:
            self.topology.put_profile(edit.key, None)
            return None
        profile = self.topology.read_profile(edit.new)
        before = None if edit.old is None else self.topology.read_profile(edit.old)
        if before is not None and not profile.pinned:
            profile = replace(profile, tree=before.tree, pinned=True)
        if before is not None and before.tree != profile.tree:
            problem = f"cannot change from {before.tree!r} to {profile.tree!r}: make another profile"
            raise _error(edit, problem, join(LABELS, TREE))
        self.topology.put_profile(edit.key, profile)
        metadata = edit.new["metadata"]
        labels = {**(metadata.get("labels") or {}), TREE: profile.tree}
        return {**edit.new, "metadata": {**metadata, "labels": labels}}

    def _note(self, edit: ObjectEdit) -> None:
        try:
            one = QuotaEdit(edit)
        except ManifestError as error:
            raise error.located(subject=edit.subject) from None
        other = self.edits.setdefault(one.name, one)
        if other is not one:
            problem = f"there is a quota of this name in namespace {other.edit.key.partition('/')[0]}"
            raise _error(edit, f"{problem}: names are unique in the cluster", "metadata.name")
        if edit.new is None:
            self.topology.put(one.name, None)

    def _enter(self, name: str) -> None:
        """Enters a quota after the quotas above it that are edited, too."""
        path: dict[str, QuotaEdit] = {}
        at = self.edits.get(name)
        while at is not None and at.new is not None and at.name not in path and not self._is_entered(at):
            path[at.name] = at
            at = self.edits.get(at.new.parent)
        for one in reversed(list(path.values())):
            try:
                self._fill(one)
            except ManifestError as error:
                raise error.located(subject=one.edit.subject) from None
            self.topology.put(one.name, one.after)

    def _is_entered(self, one: QuotaEdit) -> bool:
        return one.after is not None and self.topology.object(one.name) is one.after

    def _fill(self, one: QuotaEdit) -> None:
        given = one.after
        if given is None or one.manifest is None:
            return
        quota = given.quota
        self.topology.check_name(quota.name, quota.namespace, "metadata.name")
        if quota.name in BUILT_IN:
            if quota.name in (ROOT, SYSTEM) and one.edit.old is not None and differ(one.edit.old, one.manifest):
                raise ManifestError("is built in and cannot be changed")
            return
        labels = {**given.labels, PARENT: quota.parent}
        if quota.parent != ROOT:
            self._fill_tree(one, quota, labels)
        annotations = dict(given.annotations)
        if quota.name not in self.topology.roots:
            annotations[WEIGHT] = default_weight(given, one.before)
        metadata = {**one.manifest["metadata"], "labels": labels}
        if annotations:
            metadata["annotations"] = annotations
        one.fill({**one.manifest, "metadata": metadata})

    def _fill_tree(self, one: QuotaEdit, quota: PoolQuotaBody, labels: dict[str, str]) -> None:
        """The tree of its parent, unless the apply itself names another one."""
        above = self.topology.quota(quota.parent)
        if above is None:
            raise ManifestError(f"there is no quota {quota.parent}", join(LABELS, PARENT))
        given = labels.get(TREE, "")
        if given and (one.before is None or one.before.labels.get(TREE) != given):
            return
        labels.pop(TREE, None)
        tree = self.topology.tree_of(above)
        if tree:
            labels[TREE] = tree

    # Checks

    def _check_profile(self, edit: ObjectEdit) -> None:
        before = None if edit.old is None else self.topology.read_profile(edit.old)
        profile = self.topology.profiles.profiles.get(edit.key)
        try:
            if profile is not None:
                self.topology.profiles.check_root(profile)
                check_terms(self.topology.profiles.order)
                root = self.topology.object(profile.quota_name)
                if root is not None and root.quota.namespace != profile.namespace:
                    problem = f"there is a quota of this name in namespace {root.quota.namespace}"
                    raise ManifestError(f"{problem}: names are unique in the cluster", "spec.quotaName")
                self._check_children_of_root(profile.quota_name)
            if before is not None and before.quota_name not in self.topology.roots:
                self._check_unused(before.quota_name, f"its root quota {before.quota_name} ")
        except ManifestError as error:
            raise error.located(subject=edit.subject) from None

    def _check_children_of_root(self, name: str) -> None:
        """The children of a root quota list only what its profiles manage."""
        for child in [self.topology.quota(child) for child in self.topology.children(name) if child not in self.edits]:
            if child is not None:
                try:
                    self._check_keys(child, child, name)
                except ManifestError as error:
                    raise ManifestError(error.problem, join(ANNOTATIONS, RESOURCE_KEYS)) from None

    def _check(self, one: QuotaEdit) -> None:
        try:
            if one.after is None:
                self._check_removal(one.name)
            elif one.name not in BUILT_IN:
                self._check_quota(one, one.after)
        except ManifestError as error:
            raise error.located(subject=one.edit.subject) from None

    def _check_removal(self, name: str) -> None:
        if name in BUILT_IN:
            raise ManifestError("is built in and cannot be deleted")
        profiles = self.topology.profiles.profiles_of_root(name)
        if profiles:
            raise ManifestError(f"is the root quota of profile {profiles[0].key}: delete that")
        self._check_unused(name)

    def _check_unused(self, name: str, which: str = "") -> None:
        children = self.topology.children(name)
        if children:
            raise ManifestError(f"{which}has children: {listing(children)}")
        pods = self.known.pods_of(self.view, name)
        if pods:
            count = f"{len(pods)} {'pod' if len(pods) == 1 else 'pods'}"
            raise ManifestError(f"{which}is in use by {count}: {listing(pods, 2)}")

    def _check_quota(self, one: QuotaEdit, given: QuotaObject) -> None:
        quota = given.quota
        for namespace in quota.namespaces:
            for name in self.topology.listing(namespace):
                if name != quota.name:
                    problem = f"namespace {namespace} is bound to quota {name} already"
                    raise ManifestError(problem, join(ANNOTATIONS, NAMESPACES))
        check_self(given, one.manifest or {})
        if quota.name in self.topology.roots:
            return  # its profile defines the rest
        check_reserved(given, one.before)
        self._check_parenthood(quota, one.old)
        self._check_place(quota, one.old)
        if self.guarantee and quota.tree and one.promises() and not one.is_forced:
            self._check_guarantee(one, quota)

    def _check_parenthood(self, quota: PoolQuotaBody, before: PoolQuotaBody | None) -> None:
        """A quota with children stays a parent; one with pods does not become one."""
        if before is None or before.is_parent == quota.is_parent:
            return
        path = join(LABELS, IS_PARENT)
        if before.is_parent:
            children = self.topology.children(quota.name)
            if children:
                raise ManifestError(f"must stay true: {listing(children)} are its children", path)
            return
        pods = self.topology.pods_of(self.view, quota.name)
        if pods:
            raise ManifestError(f"must stay false: {listing(pods)} belong to it", path)

    def _check_place(self, quota: PoolQuotaBody, before: PoolQuotaBody | None) -> None:
        """It has a parent in its tree, and both manage the same resources as far as they did not differ before."""
        if quota.parent == ROOT and before is not None and before.parent == ROOT and before.tree != quota.tree:
            problem = f"cannot change from {before.tree!r} to {quota.tree!r}: a quota changes its tree with its parent"
            raise ManifestError(problem, join(LABELS, TREE))
        misplaced = self.topology.misplaced(quota)
        if misplaced is not None:
            raise ManifestError(misplaced[1], join(LABELS, misplaced[0]))
        if quota.parent != ROOT:
            self._check_keys(quota, before, quota.parent)
        if before is None or keys_of(before) != keys_of(quota):
            for name in self.topology.children(quota.name):
                if name not in self.edits:
                    child = self.topology.quota(name)
                    if child is not None:
                        self._check_keys(child, child, quota.name)

    def _check_keys(self, child: PoolQuotaBody, before: PoolQuotaBody | None, name: str) -> None:
        """Whether a child lists no resource that its parent lacks, and a new child lists all of them."""
        parent = self._with_min(name)
        if parent is None:
            return
        stays = before is not None and before.parent == name
        had = self._before(name) if stays else None
        for path in ("spec.max", "spec.min"):
            extra = extra_keys(child, parent, path)
            if had is not None and before is not None:
                extra -= extra_keys(before, had, path)
            if extra:
                problem = f"{child.name} lists {joined(extra)}, which its parent {parent.name} does not"
                raise ManifestError(problem + self._managed_by(parent), path)
        missing = parent.maximum.keys() - child.maximum.keys()
        if missing and not stays:
            problem = f"{child.name} does not list {joined(missing)}, which its parent {parent.name} does"
            raise ManifestError(problem + self._managed_by(parent), "spec.max")

    def _managed_by(self, root: PoolQuotaBody) -> str:
        """What says which resources a root quota has."""
        profiles = self.topology.profiles.profiles_of_root(root.name)
        if not profiles:
            return ""
        return f"; the annotation {RESOURCE_KEYS} of profile {profiles[0].key} says what it manages"

    def _before(self, name: str) -> PoolQuotaBody | None:
        """A quota before the apply; as it is now if it was not known yet."""
        edit = self.edits.get(name)
        found = self.known.quota(name)
        if found is None and edit is not None:
            found = edit.old
        return self.topology.quota(name) if found is None else found

    def _with_min(self, name: str) -> PoolQuotaBody | None:
        """A quota after the apply; a root quota with the min that the nodes give it."""
        if name not in self.topology.roots:
            return self.topology.quota(name)
        if not self.moves_nodes and name not in self.edits and self._is_up_to_date(name):
            return self.topology.quota(name)
        if name not in self.roots:
            self.roots[name] = self.topology.root_with_nodes(name, self._nodes())
        return self.roots[name]

    def _is_up_to_date(self, name: str) -> bool:
        """Whether the object of a root quota lists what its profiles manage: their change comes first to a webhook."""
        stored = self.topology.object(name)
        return stored is not None and stored.quota.maximum.keys() == self.topology.roots[name].maximum.keys()

    def _nodes(self) -> list[tuple[str, PoolNode]]:
        found = {str(manifest["metadata"]["name"]): manifest for manifest in self.view.list(NODE_OBJECT)}
        for key, manifest in self.nodes.items():
            if manifest is None:
                found.pop(key, None)
            else:
                found[key] = manifest
        return [(key, self.read_node(found[key])) for key in sorted(found)]

    # Sums of min

    def _check_sums(self) -> None:
        """The min of a parent holds the mins of its children, or lacks no more than before."""
        more: dict[str, dict[str, int]] = {}  # by parent: by how much the sum of its children grew
        touched: set[str] = set()
        for one in self.edits.values():
            if one.is_forced or one.name in BUILT_IN:
                continue
            touched.add(one.name)
            for quota, sign in ((one.new, 1), (one.old, -1)):
                if quota is not None and quota.parent != ROOT:
                    touched.add(quota.parent)
                    grown = more.setdefault(quota.parent, {})
                    for resource, amount in quota.minimum.items():
                        grown[resource] = grown.get(resource, 0) + amount * sign
        for name in sorted(touched):
            if self.topology.promised(name):
                self._check_sum(name, more.get(name, {}))

    def _check_sum(self, name: str, more: dict[str, int]) -> None:
        parent = self._with_min(name)
        if parent is None:
            return
        sums = self.topology.promised(name)
        had = self._min_before(parent)
        for resource in sorted(sums):
            has = parent.minimum.get(resource, 0)
            lacked = sums[resource] - more.get(resource, 0) - had.get(resource, 0)
            if sums[resource] - has > max(0, lacked):
                raise self._too_much(parent, resource, sums[resource], has)

    def _min_before(self, parent: PoolQuotaBody) -> dict[str, int]:
        edit = self.edits.get(parent.name)
        if edit is None or edit.is_forced or parent.name in self.topology.roots:
            return parent.minimum
        return {} if edit.old is None else edit.old.minimum

    def _too_much(self, parent: PoolQuotaBody, resource: str, wanted: int, has: int) -> ManifestError:
        show = dimension(resource).show
        names = [name for name in self.topology.children(parent.name) if self._min_of(name, resource)]
        together = f"{show(wanted)} for {listing(names)} together"
        problem = f"{together} is more than the {show(has)} of their parent {parent.name}"
        profiles = self.topology.profiles.profiles_of_root(parent.name)
        if profiles:
            problem += f", which the nodes of profile {profiles[0].key} have"
        edit = self._blamed(parent.name, resource).edit
        return _error(edit, problem, join("spec.min", resource))

    def _min_of(self, name: str, resource: str) -> int:
        quota = self.topology.quota(name)
        return 0 if quota is None else quota.minimum.get(resource, 0)

    def _blamed(self, parent: str, resource: str) -> QuotaEdit:
        """The first child that is promised more than before; the parent if none is."""
        for name in sorted(self.edits):
            one = self.edits[name]
            if one.is_forced or one.new is None or one.new.parent != parent:
                continue
            had = one.old.minimum.get(resource, 0) if one.old is not None and one.old.parent == parent else 0
            if one.new.minimum.get(resource, 0) > had:
                return one
        return self.edits[parent]

    # Guarantees

    def _check_guarantee(self, one: QuotaEdit, quota: PoolQuotaBody) -> None:
        """With guaranteed usage, a min can only be promised where an ancestor has that much."""
        at = quota
        guaranteed = self._guaranteed(at)
        if fits(at.minimum, guaranteed):
            return
        need = larger(at.minimum, guaranteed)
        while at.parent != ROOT:
            parent = self.topology.quota(at.parent)
            if parent is None:
                break
            for name in self.topology.children(at.parent):
                sibling = self.topology.quota(name)
                if sibling is not None and name != at.name:
                    for resource, amount in self._guaranteed(sibling).items():
                        need[resource] = need.get(resource, 0) + amount
            need = larger(parent.minimum, need)
            if fits(need, self._guaranteed(parent)):
                return
            at = parent
        raise ManifestError("cannot be guaranteed: no quota above has that much left", "spec.min")

    def _guaranteed(self, quota: PoolQuotaBody) -> dict[str, int]:
        """What Bursar wrote on the object, which the topology does not follow."""
        edit = self.edits.get(quota.name)
        if edit is not None and edit.after is not None and GUARANTEED in edit.after.annotations:
            return amounts_in(edit.after.annotations, GUARANTEED)
        stored = self.view.get(QUOTA_OBJECT, quota.key)
        return {} if stored is None else amounts_in(stored["metadata"].get("annotations") or {}, GUARANTEED)


def _key_of(edit: ObjectEdit) -> tuple[str, str]:
    return edit.kind, edit.key


def _error(edit: ObjectEdit, problem: str, path: str) -> ManifestError:
    return ManifestError(problem, path, subject=edit.subject)
