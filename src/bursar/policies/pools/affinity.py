"""Which nodes are open to the pods of a tree, as alternatives of node affinity.

A node belongs to the first profile whose selector matches it. Pods of a tree run on the nodes of its own profiles. Pods
of the default tree run on the nodes that no profile has, and on those of profiles that share them. So total and
affinity agree: what an earlier profile wins is excluded for later ones.

The answer is a disjunction of terms. A term says for each label key which values it allows; with that the intersection,
the complement and the order of terms are exact. Terms within another one are dropped, so selectors that tell pools
apart by values of one label need one term.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from bursar.objects.decode import ManifestError
from bursar.policies.pools.node_pools import Profile
from bursar.policies.pools.settings import DEFAULT_TREE
from bursar.selectors import NodeNeeds, NodeTerm, Requirement

MOST_TERMS: Final = 64  # of one tree

Values = tuple[bool, bool, frozenset[str]]
"""Of one label: whether it may be absent; whether its value must be one of these, or must be none of them."""

Term = dict[str, Values]
"""By label key; all must hold. An empty term allows every node."""

_NONE: Final[frozenset[str]] = frozenset()


def open_terms(order: Iterable[Profile], tree: str) -> list[Term]:
    """The nodes that are open to a tree; ``order`` is that in which profiles select nodes."""
    found: list[Term] = [{}] if tree == DEFAULT_TREE else []
    for profile in reversed(list(order)):
        requirements = profile.requirements
        if requirements is None:
            continue
        if tree in profile.open_to():
            own = _term_of(requirements)
            found = found if own is None else _reduced([own, *found])
        else:
            found = _without(found, requirements)
        if len(found) > MOST_TERMS:
            return found
    return found


def check_terms(order: Sequence[Profile]) -> None:
    """Raises ``ManifestError`` where the selectors need more alternatives than a pod can carry."""
    for tree in sorted({DEFAULT_TREE, *[profile.tree for profile in order]}):
        if len(open_terms(order, tree)) > MOST_TERMS:
            problem = f"with the selectors of the other profiles, its tree would need more than {MOST_TERMS} terms of "
            raise ManifestError(problem + "node affinity: give each pool a value of one label", "spec.nodeSelector")


def needs_of(terms: list[Term]) -> NodeNeeds | None:
    """What pods need of their node; None if every node is open."""
    if {} in terms:
        return None
    return NodeNeeds({}, tuple([NodeTerm(tuple(_requirements(term))) for term in terms]))


def _without(terms: list[Term], requirements: tuple[Requirement, ...]) -> list[Term]:
    """The terms without the nodes that meet all requirements."""
    found: list[Term] = []
    for requirement in requirements:
        absent, listed, values = _values(requirement)
        for term in terms:
            both = _met(term, requirement.key, (not absent, not listed, values))
            if both is not None:
                found.append(both)
    return _reduced(found)


def _term_of(requirements: tuple[Requirement, ...]) -> Term | None:
    """None if they contradict each other."""
    found: Term | None = {}
    for requirement in requirements:
        if found is not None:
            found = _met(found, requirement.key, _values(requirement))
    return found


def _values(requirement: Requirement) -> Values:
    listed = requirement.operator in ("In", "DoesNotExist")
    absent = requirement.operator in ("NotIn", "DoesNotExist")
    return absent, listed, frozenset(requirement.values)


def _met(term: Term, key: str, values: Values) -> Term | None:
    """The term where the label has such a value, too; None if no node can."""
    known = term.get(key)
    both = values if known is None else _intersection(known, values)
    if both == (False, True, _NONE):
        return None
    return {**term, key: both}


def _intersection(one: Values, other: Values) -> Values:
    absent = one[0] and other[0]
    if one[1]:
        return absent, True, one[2] & other[2] if other[1] else one[2] - other[2]
    if other[1]:
        return absent, True, other[2] - one[2]
    return absent, False, one[2] | other[2]


def _reduced(terms: list[Term]) -> list[Term]:
    """The terms that are within no other one; of equal ones the first."""
    found: list[Term] = []
    for term in terms:
        if not any(_within(term, other) for other in found):
            found = [other for other in found if not _within(other, term)]
            found.append(term)
    return found


def _within(term: Term, other: Term) -> bool:
    for key, values in other.items():
        mine = term.get(key)
        if mine is None or _intersection(mine, values) != mine:
            return False
    return True


def _requirements(term: Term) -> list[Requirement]:
    found: list[Requirement] = []
    for key in sorted(term):
        absent, listed, values = term[key]
        if listed and values:
            found.append(Requirement(key, "In", tuple(sorted(values))))
        elif listed:
            found.append(Requirement(key, "DoesNotExist"))
        else:
            if not absent:
                found.append(Requirement(key, "Exists"))
            if values:
                found.append(Requirement(key, "NotIn", tuple(sorted(values))))
    return found
