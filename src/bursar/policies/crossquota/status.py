"""The status of GPU nodes: an event when a quota is exceeded or an annotation is wrong, and the label of GPU nodes."""

from __future__ import annotations

from typing import Final, final

from bursar.objects.pods import GPU_NODE_LABEL
from bursar.policies.crossquota.arguments import BAD_ANNOTATION, EXCEEDED, PREFIX
from bursar.policies.crossquota.node_quota import GpuNodeFacts
from bursar.policies.crossquota.table import QuotaNodeIndex
from bursar.policies.results import Output
from bursar.policies.status import StatusWriter
from bursar.resources import dimension

_NODE: Final = "Node"


@final
class NodeStatusWriter(StatusWriter):
    """Writes events and the GPU label of nodes whose facts, arguments or usage changed."""

    def __init__(self) -> None:
        super().__init__()
        self.bad_annotations: int = 0  # events so far: for metrics

    def outputs(self, index: QuotaNodeIndex) -> list[Output]:
        for name in sorted(index.changed):
            self._node(index, name, index.node(name))
        index.changed.clear()
        return self.take()

    def _node(self, index: QuotaNodeIndex, name: str, facts: GpuNodeFacts | None) -> None:
        if facts is None:
            for aspect in (BAD_ANNOTATION, EXCEEDED, GPU_NODE_LABEL):
                self.changed(aspect, name, None)
            return
        if self.changed(BAD_ANNOTATION, name, facts.problems):
            self.bad_annotations += len(facts.problems)
            for problem in facts.problems:
                message = f"{problem}; the quota comes from the next level instead"
                self.write_event(_NODE, name, BAD_ANNOTATION, message)
        over = _over(index, facts)
        if self.changed(EXCEEDED, name, [resource for resource, _ in over]) and over:
            numbers = ", ".join([shown for _, shown in over])
            message = f"pods without a GPU use more than their quota, and no more are let in: {numbers}"
            self.write_event(_NODE, name, EXCEEDED, message)
        wanted = facts.is_gpu_node()
        if self.changed(GPU_NODE_LABEL, name, (wanted, facts.labelled)) and wanted != facts.labelled:
            self.write(_NODE, name, "labels", {GPU_NODE_LABEL: "true" if wanted else None})


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
