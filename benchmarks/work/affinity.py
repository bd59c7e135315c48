"""Masks of required node affinity: many requirements on many nodes, beside asking every node for every term."""

from benchmarks.timing import rate
from bursar.policies.nodes.masks import NodeMasks
from bursar.policies.nodes.rules import NodeFacts, failed_rule
from bursar.resources import Limits
from bursar.selectors import NodeNeeds, NodeTerm, Requirement

_VALUES = 4  # of a requirement
_ZONES = 50


def masks(nodes: int, requirements: int, most: int) -> dict[str, float]:
    """Masks a second: as they are made, with a handful of requirements, and by the rules of one node after the other.

    Every requirement is another one. One of them matches no node, so that no term ends the search.
    """
    known = NodeMasks()
    for slot in range(nodes):
        marks = {"kubernetes.io/hostname": f"node-{slot}", "zone": f"zone-{slot % _ZONES}", "os": "linux"}
        known.set_slot(slot, NodeFacts(f"node-{slot}", marks, (), (), False, Limits({}, True)))
    full, small = _needs(requirements, most), _needs(4, 4)
    return {
        "made": rate(lambda: _made(known, full)),
        "small": rate(lambda: _made(known, small)),
        "compared": rate(lambda: _compared(known, full), runs=3),
    }


def _needs(requirements: int, most: int) -> NodeNeeds:
    terms = []
    each = requirements // most
    for term in range(most):
        wanted = [
            Requirement("os", "In", tuple(f"{term}-{one}-{value}" for value in range(_VALUES)))
            for one in range(each - 1)
        ]
        terms.append(NodeTerm((Requirement("zone", "NotIn", (f"zone-{term % _ZONES}", f"no-{term}")), *wanted)))
    return NodeNeeds({}, tuple(terms))


def _made(known: NodeMasks, needs: NodeNeeds) -> int:
    for _ in range(5):
        known.allowed.clear()
        known.allowing(needs)
    return 5


def _compared(known: NodeMasks, needs: NodeNeeds) -> int:
    bytes([0 if facts is None or failed_rule(needs, facts) else 1 for facts in known.facts])
    return 1
