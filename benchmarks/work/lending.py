"""Full clusters whose GPUs are lent: an owner's minimum covers all of them, and another team has borrowed them.

``elastic`` and ``trees`` have the same story: every node has eight GPUs, ``borrower`` has no quota of its own and runs
on all of them, ``owner`` uses nothing yet. With ``guarded`` one GPU of each node is in use by ``third``, within its own
quota, so that no node can be emptied. Without nodes the same quotas stand over one number of GPUs.
"""

from benchmarks.work.elastic import GPU
from bursar.engine.disruption_budgets import KIND as BUDGET
from bursar.engine.disruption_budgets import BudgetBody
from bursar.engine.engine import Engine
from bursar.ledger.claims import RUNNING, Claim, ClaimSpec
from bursar.policies.elastic.policy import ElasticPolicy
from bursar.policies.elastic.settings import ELASTIC_QUOTA, QUOTA_SETTING, ElasticQuotaBody, quota_id
from bursar.policies.nodes.policy import KIND as NODE
from bursar.policies.nodes.policy import NodesPolicy
from bursar.policies.nodes.rules import NodeBody
from bursar.policies.policy import Policy
from bursar.policies.results import Setting
from bursar.policies.trees.policy import KIND as TREE
from bursar.policies.trees.policy import TreesPolicy
from bursar.policies.trees.records import LABEL, TreeBody, TreeNodeBody
from bursar.resources import Limits, from_amounts
from bursar.selectors import Selector

ELASTIC, TREES = "elastic", "trees"
OWNER, BORROWER, THIRD = "owner", "borrower", "third"
PER_NODE = 8
OWNERS_PRIORITY = 10  # and of the third team: trees displace claims of lower priority


class Lent:
    """An engine whose ``units`` GPUs are all in use, all but ``third``'s by the borrower."""

    def __init__(self, kind: str, nodes: int, units: int, *, guarded: bool = False) -> None:
        self.quotas = {OWNER: units, BORROWER: 0, THIRD: nodes if guarded else 0}
        if guarded:
            self.quotas[OWNER] -= nodes
        self.kind = kind
        self.placeable = nodes > 0
        policy: Policy = ElasticPolicy() if kind == ELASTIC else TreesPolicy()
        self.engine = Engine([policy, NodesPolicy()])
        self.engine.configure([*self._settings(units), *_nodes(nodes)])
        self.count = 0
        for _ in range(self.quotas[THIRD]):
            self.run(THIRD)
        for _ in range(units - self.quotas[THIRD]):
            self.run(BORROWER)
        self.engine.journal.drop()

    def _settings(self, units: int) -> list[Setting]:
        if self.kind == TREES:
            nodes = {team: TreeNodeBody(team, "root", False, {GPU: gpus}) for team, gpus in self.quotas.items()}
            nodes["root"] = TreeNodeBody("root", "", False, {GPU: units})
            return [Setting(TREE, "T", TreeBody((GPU,), nodes))]
        found: list[Setting] = []
        for team, gpus in self.quotas.items():
            body = ElasticQuotaBody(ELASTIC_QUOTA, f"{team}/quota", (team,), Limits({GPU: gpus}))
            found.append(Setting(QUOTA_SETTING, quota_id(ELASTIC_QUOTA, body.key), body))
        return found

    def claim(self, team: str, gpus: int) -> Claim:
        self.count += 1
        priority = 0 if team == BORROWER else OWNERS_PRIORITY
        labels = {f"{LABEL}T": team} if self.kind == TREES else {}
        spec = ClaimSpec(from_amounts({GPU: gpus}), labels=labels, priority=priority, placeable=self.placeable)
        return Claim(f"{team}-{self.count}", spec, self.count, team)

    def run(self, team: str) -> None:
        """One more claim of one GPU, which runs."""
        claim = self.claim(team, 1)
        # The third team is spread first: one to a node, wherever the nodes are still empty.
        if team == THIRD:
            self.engine.submit(claim, 1)
            self.engine.place(claim.uid, f"n{self.count - 1:05}", 1, forced=True)
        else:
            decision = self.engine.decide(claim, 1)
            assert decision.admitted, decision
        self.engine.observe(claim.uid, RUNNING, 1)
        if self.count % 1_000 == 0:
            self.engine.journal.drop()

    def budget(self, evictable: int) -> None:
        """A disruption budget over all borrowers."""
        body = BudgetBody(BORROWER, Selector(), None, evictable, False)
        self.engine.configure([Setting(BUDGET, f"{BORROWER}/budget", body)])


def _nodes(count: int) -> list[Setting]:
    return [Setting(NODE, f"n{number:05}", NodeBody(Limits({GPU: PER_NODE}))) for number in range(count)]
