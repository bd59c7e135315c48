"""What people are told about GPU nodes: events, on edges only, and the label that marks them.

A node is looked at when its cell, the arguments or its usage changed. What was told is remembered here and not in the
ledger: after a restart it is told once more.
"""

from __future__ import annotations

from typing import Final, final

from bursar.policies.crossquota.arguments import BAD_ANNOTATION, EXCEEDED, GPU_NODE_LABEL, PREFIX
from bursar.policies.crossquota.node_quota import GpuNodeFacts
from bursar.policies.crossquota.table import QuotaNodeIndex
from bursar.policies.results import Output
from bursar.resources import dimension


@final
class NodeStatusWriter:
    """Remembers what was told of each node."""

    def __init__(self) -> None:
        self.problems: Final[dict[str, tuple[str, ...]]] = {}  # by node: annotations that could not be read
        self.exceeded: Final[dict[str, tuple[str, ...]]] = {}  # by node: the resources that are over their quota
        self.labels: Final[dict[str, tuple[bool, bool]]] = {}  # by node: whether it should have it, and had it
        self.bad_annotations: int = 0  # told so far: for metrics

    def outputs(self, index: QuotaNodeIndex) -> list[Output]:
        found: list[Output] = []
        for name in sorted(index.changed):
            self._look(index, name, index.node(name), found)
        index.changed.clear()
        return found

    def _look(self, index: QuotaNodeIndex, name: str, facts: GpuNodeFacts | None, found: list[Output]) -> None:
        if facts is None:
            self.problems.pop(name, None)
            self.exceeded.pop(name, None)
            self.labels.pop(name, None)
            return
        if facts.problems != self.problems.get(name, ()):
            self.problems[name] = facts.problems
            for problem in facts.problems:
                self.bad_annotations += 1
                message = f"{problem}; the quota comes from the next level instead"
                found.append(_event(name, BAD_ANNOTATION, message))
        over = _over(index, facts)
        resources = tuple([resource for resource, _ in over])
        if resources != self.exceeded.get(name, ()):
            self.exceeded[name] = resources
            if over:
                numbers = ", ".join([shown for _, shown in over])
                message = f"pods without a GPU use more than their quota, and no more are let in: {numbers}"
                found.append(_event(name, EXCEEDED, message))
        self._label(name, facts, found)

    def _label(self, name: str, facts: GpuNodeFacts, found: list[Output]) -> None:
        now = (facts.is_gpu_node(), facts.labelled)
        if now[0] != now[1] and now != self.labels.get(name):
            value: dict[str, object] = {GPU_NODE_LABEL: "true" if now[0] else None}
            found.append(Output("Node", name, "labels", value))
        self.labels[name] = now


def _event(name: str, reason: str, message: str) -> Output:
    return Output("Node", name, "event", {"type": "Warning", "reason": reason, "message": message})


def _over(index: QuotaNodeIndex, facts: GpuNodeFacts) -> list[tuple[str, str]]:
    """(resource, its numbers) of each quota that is exceeded."""
    account = index.state.accounts.get(PREFIX + facts.name)
    found: list[tuple[str, str]] = []
    for quota in facts.quotas:
        resource = dimension(quota.resource)
        used = 0 if account is None else account.used.get(resource.index)
        if used > quota.cap:
            found.append((resource.name, f"{resource.name} {resource.show(used)} of {resource.show(quota.cap)}"))
    return found
