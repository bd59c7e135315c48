"""One decision inside an open transaction: try, else search for victims, else refuse and leave no trace.

Settings are applied here too, and the claims they govern are bound again. Lowering a quota evicts nothing by itself:
claims that count are rebound by force, and a claim that a policy can no longer read keeps its binding. A held claim has
not started: if its node is deleted, cordoned or becomes too small, it is pending again.

A ledger rebuilt from a cluster cannot see two things there: for whom a claim was evicted (a hold), and who displaced
whom (preemption history). ``resume_hold`` and the engine's ``recall_history`` restore them from what was recorded on
the pods.
"""

from __future__ import annotations

from bursar.engine import disruption_budgets
from bursar.engine.charging import Core
from bursar.engine.decision import ADMITTED, EVICTED, HOLDING, NEVER, PROTECTED, WAITING, Decision
from bursar.engine.demand import gang_obstacle
from bursar.engine.eligibility import exhausted_budgets
from bursar.engine.eviction import all_held, back_to_pending, begin_eviction, hold, keep_place, release, spare_victims
from bursar.engine.placement import is_possible, no_node, try_nodes
from bursar.engine.possible import GANGS, HOPELESS
from bursar.engine.preemption import VictimSearch, apply_plan
from bursar.engine.rebinding import rebind
from bursar.engine.time_box import DecisionCut, put_off
from bursar.ledger.claims import HELD, PENDING, RESERVED, Claim
from bursar.policies.policy import PlacementPolicy
from bursar.policies.results import Refusal, Setting, SettingError
from bursar.selectors import NodeNeeds


def decide(core: Core, claim: Claim, at: int) -> Decision:
    """Quota and place in one step."""
    if not core.needs_place(claim):
        return admit(core, claim, at)
    refusals = _try_everywhere(core, claim)
    if not refusals:
        return _admitted(core, claim, at)
    return _with_victims(core, claim, at, refusals)


def decide_in_time(core: Core, claim: Claim, at: int) -> Decision:
    """The decision, or its being put off: then it leaves no trace."""
    mark = core.tx.savepoint()
    core.time.begin()
    try:
        return decide(core, claim, at)
    except DecisionCut:
        _undo_search(core, mark)
        return refused(claim, at, (put_off(),))
    finally:
        core.time.end()


def group_in_time(core: Core, claims: list[Claim], at: int) -> list[Decision]:
    """The same for a gang: none of it is decided, or all."""
    mark = core.tx.savepoint()
    core.time.begin()
    try:
        return group(core, claims, at)
    except DecisionCut:
        _undo_search(core, mark)
        return [refused(claim, at, (put_off(),)) for claim in claims]
    finally:
        core.time.end()


def _undo_search(core: Core, mark: int) -> None:
    core.eviction_rules.only_at = ""
    core.tx.rollback_to(mark)


def admit(core: Core, claim: Claim, at: int) -> Decision:
    """Quota only; the place comes later."""
    refusals = core.attempt(claim, "", False)
    if not refusals:
        core.tx.set_state(claim, RESERVED)
        return Decision(claim.uid, ADMITTED, at)
    if may_preempt(claim, refusals):
        core.eviction_rules.blocked = 0
        search = VictimSearch(core, claim)
        plan = search.best_plan(placed=False)
        if plan is not None and not apply_plan(core, claim, plan):
            return _held(core, claim, at, plan.victims)
        refusals = _with_limit(search, binding_first(search, refusals))
        refusals = _with_protected(search, refusals, placed=False)
    return refused(claim, at, refusals)


def place(core: Core, claim: Claim, node: str, forced: bool, at: int) -> Decision:
    """A place for a claim that has its quota: the given node, or the best one; corrects the charge."""
    if claim.state == PENDING:
        return _fact(core, claim, node, at)
    if node:
        refusals = rebind(core, claim, node, forced)
        if refusals:
            return refused(claim, at, refusals)
        return _found(core, claim, at) if forced else _admitted(core, claim, at)
    state = claim.state
    mark = core.tx.savepoint()
    release(core, claim)
    core.tx.set_state(claim, PENDING)
    decision = decide(core, claim, at)
    if not decision.admitted:
        core.tx.rollback_to(mark)
    elif state > RESERVED:
        core.set_seen(claim, state)
    return decision


def unplace(core: Core, claim: Claim, at: int) -> Decision:
    """The claim counts in its quotas, by force if it did not before, and on no node."""
    if claim.state == PENDING:
        core.tx.set_state(claim, RESERVED)
        core.attempt(claim, "", True)
    else:
        rebind(core, claim, "", True)
    return Decision(claim.uid, ADMITTED, at)


def _fact(core: Core, claim: Claim, node: str, at: int) -> Decision:
    """The claim is on that node already: it counts, whatever quotas and nodes say, and so does its demand."""
    core.tx.set_state(claim, RESERVED)
    core.attempt(claim, node, True)
    return Decision(claim.uid, ADMITTED, at, node)


def _found(core: Core, claim: Claim, at: int) -> Decision:
    """The claim turned out to run: it waits for no victim any more."""
    if claim.state == HELD:
        spare_victims(core, claim)
        core.tx.set_state(claim, RESERVED)
    return Decision(claim.uid, ADMITTED, at, claim.place)


def group(core: Core, claims: list[Claim], at: int) -> list[Decision]:
    """All or none, in order; no member of a gang is another member's victim."""
    obstacle = _gang_obstacle(core, claims)
    if obstacle is not None:
        failed, refusal = obstacle
        return [_group_refusal(other, failed, refused(failed, at, (refusal,)), at) for other in claims]
    mark = core.tx.savepoint()
    decisions: list[Decision] = []
    for claim in claims:
        decision = decide(core, claim, at)
        if not decision.admitted:
            core.tx.rollback_to(mark)
            return [_group_refusal(other, claim, decision, at) for other in claims]
        decisions.append(decision)
    return decisions


def _gang_obstacle(core: Core, claims: list[Claim]) -> tuple[Claim, Refusal] | None:
    """Why the gang is hopeless, if it was found to be: its demand does not count, and nothing is tried for it."""
    name = claims[0].spec.group if claims else ""
    if not name or core.ledger.state.cell(GANGS, name) != HOPELESS:
        return None
    return gang_obstacle(core, name)


def _group_refusal(member: Claim, failed: Claim, decision: Decision, at: int) -> Decision:
    if member is failed:
        return decision
    first = decision.refusals[0]
    note = f"its group waits for {failed.key}: {first.sentence()}"
    refusal = Refusal("engine", "engine.group", note, permanent=first.permanent, topics=first.topics)
    return Decision(member.uid, decision.outcome, at, "", (refusal,))


def may_preempt(claim: Claim, refusals: tuple[Refusal, ...]) -> bool:
    if not claim.spec.preempts:
        return False
    for refusal in refusals:
        if refusal.permanent:
            return False
    return True


def refused(claim: Claim, at: int, refusals: tuple[Refusal, ...]) -> Decision:
    never = [refusal for refusal in refusals if refusal.permanent]
    if never and never[0] is not refusals[0]:
        refusals = (*never, *[refusal for refusal in refusals if not refusal.permanent])
    return Decision(claim.uid, NEVER if never else WAITING, at, "", refusals)


def displaced(victim: Claim, claimant: Claim, decision: Decision) -> Decision:
    """The decision about one of the claimant's victims."""
    if victim.leaving:
        found = Decision(victim.uid, EVICTED, decision.at, victim.place, (), (), (), claimant.key)
    else:
        note = f"{claimant.key} took the place that it held"
        refusal = Refusal("engine", "engine.displaced", note, topics=(claimant.uid,))
        found = Decision(victim.uid, WAITING, decision.at, "", (refusal,))
    found.seq = decision.seq
    return found


def _try_everywhere(core: Core, claim: Claim) -> tuple[Refusal, ...]:
    """Charge the claim on the best node. Returns the refusals of quotas, or else why no node takes it."""
    refused_by_quota = core.quota_refusals(claim)
    if refused_by_quota:
        return refused_by_quota
    refusals = try_nodes(core, claim)
    return no_node(core, claim) if refusals is None else refusals


def _with_victims(core: Core, claim: Claim, at: int, refusals: tuple[Refusal, ...]) -> Decision:
    if may_preempt(claim, refusals):
        core.eviction_rules.blocked = 0
        search = VictimSearch(core, claim)
        plan = search.best_plan()
        if plan is not None and not apply_plan(core, claim, plan):
            return _held(core, claim, at, plan.victims)
        refusals = binding_first(search, refusals)
        if plan is None and not search.quotas_stay and _only_nodes_are_in_the_way(core, claim, refusals):
            refusals = (*no_node(core, claim), *refusals)
        refusals = _with_limit(search, refusals)
        refusals = _with_protected(search, refusals, placed=True)
        refusals = (refusals[0].listening(_victims_topics(core, claim, refusals)), *refusals[1:])
    return refused(claim, at, refusals)


def _victims_topics(core: Core, claim: Claim, refusals: tuple[Refusal, ...]) -> tuple[str, ...]:
    """What may change whom the claim may displace on nodes, beside what the refusals wait for."""
    heard = {topic for refusal in refusals for topic in refusal.topics}
    named = [topic for p in core.granting if p.concerns(claim) for topic in p.node_victims_topics(claim)]
    return tuple([topic for topic in named if topic not in heard])


def _only_nodes_are_in_the_way(core: Core, claim: Claim, refusals: tuple[Refusal, ...]) -> bool:
    """Whether victims would satisfy the quotas that refused: the claim then waits for a node as well."""
    placing = {policy.name for policy in core.placing}
    for refusal in refusals:
        if refusal.policy in placing:
            return False
    return VictimSearch(core, claim).best_plan(placed=False) is not None


def _with_limit(search: VictimSearch, refusals: tuple[Refusal, ...]) -> tuple[Refusal, ...]:
    """Say so if sets of victims were left unjudged: the claim may wait although one of them is allowed."""
    if not search.cut:
        return refusals
    note = "too many sets of victims are possible: not all of them were judged"
    return (*refusals, Refusal("engine", "engine.search-limit", note, topics=refusals[0].topics))


_NAMED = 3  # protected claims in a sentence


def _with_protected(search: VictimSearch, refusals: tuple[Refusal, ...], placed: bool) -> tuple[Refusal, ...]:
    """Say so if claims that may not be displaced are what keeps the claim waiting, and why they may not be."""
    core, claim = search.core, search.claim
    rules = core.eviction_rules
    if not (rules.blocked or search.victims.allowances):
        return refusals
    rules.lenient = True
    try:
        plan = VictimSearch(core, claim).best_plan(placed)
    finally:
        rules.lenient = False
    victims = plan.victims if plan is not None else []
    reasons = [(victim.key, rules.obstacle(claim, victim)) for victim in victims]
    named = [f"{key} {why}" for key, why in reasons if why] or exhausted_budgets(core, claim, victims)
    if not named:
        return refusals
    more = f", and {len(named) - _NAMED} more" if len(named) > _NAMED else ""
    note = f"it would fit in place of claims that may not be displaced: {', '.join(named[:_NAMED])}{more}"
    return (*refusals, Refusal("engine", PROTECTED, note, topics=refusals[0].topics))


def binding_first(search: VictimSearch, refusals: tuple[Refusal, ...]) -> tuple[Refusal, ...]:
    """The refusals with the binding one in front: the first that victims could not resolve."""
    if len(refusals) > 1:
        for refusal in refusals:
            if not search.could_resolve(refusal):
                return (refusal, *[other for other in refusals if other is not refusal])
    return refusals


def _admitted(core: Core, claim: Claim, at: int) -> Decision:
    if claim.state <= RESERVED:
        hold(core, claim, [])
    outcome = HOLDING if claim.state == HELD else ADMITTED
    return Decision(claim.uid, outcome, at, claim.place, (), (), claim.waits_for)


def _held(core: Core, claim: Claim, at: int, victims: list[Claim]) -> Decision:
    hold(core, claim, victims)
    outcome = HOLDING if claim.state == HELD else ADMITTED
    return Decision(claim.uid, outcome, at, claim.place, (), tuple([v.uid for v in victims]), claim.waits_for)


def resume_hold(core: Core, claim: Claim, node: str, victims: list[Claim], at: int) -> Decision:
    """The claim gets the place that it held, and waits for the victims that are still there.

    It is refused, and nothing changes, if quotas or the node no longer take it; it is then decided again.
    """
    mark = core.tx.savepoint()
    for victim in victims:
        if victim.counts():
            begin_eviction(core, victim)
    refusals = core.attempt(claim, node, False)
    if refusals:
        core.tx.rollback_to(mark)
        return refused(claim, at, refusals)
    keep_place(core, claim, victims)
    outcome = HOLDING if claim.state == HELD else ADMITTED
    return Decision(claim.uid, outcome, at, claim.place, (), tuple([v.uid for v in victims]), claim.waits_for)


def apply_settings(core: Core, settings: list[Setting]) -> None:
    """Apply all settings in order; raises ``SettingError`` for the first that is not accepted.

    It also raises if existing claims cannot be counted with them, because a sum leaves the exact range.
    """
    try:
        _apply(core, settings)
    except OverflowError as error:
        names = ", ".join([f"{setting.kind} {setting.key}" for setting in settings])
        raise SettingError(names, "", f"what is there already cannot be counted by it: {error}") from None


def _apply(core: Core, settings: list[Setting]) -> None:
    stale: dict[str, None] = {}
    places: set[str] = set()
    needs = {claim.uid: core.possible.needs_of.needs(claim) for claim in all_held(core)}
    for setting in settings:
        if setting.kind in (disruption_budgets.KIND, disruption_budgets.OPTIONS):
            core.budgets.configure(core.tx, setting)
            continue
        taken = False
        for policy in core.policies:
            if setting.kind in policy.kinds:
                taken = True
                if isinstance(policy, PlacementPolicy):
                    places.add(setting.key)
                for uid in policy.configure(core.tx, setting):
                    stale[uid] = None
        if not taken:
            raise SettingError(f"{setting.kind} {setting.key}", "", "no policy takes settings of this kind")
    for uid in stale:
        claim = core.ledger.state.claims.get(uid)
        if claim is not None:
            rebind(core, claim, claim.place, True)
    if needs:
        _leave_lost_places(core, places, needs)


def _leave_lost_places(core: Core, places: set[str], needs: dict[str, tuple[NodeNeeds, ...]]) -> None:
    """Claims that are held go back if their node changed, or if their quotas allow other nodes than before."""
    for claim in all_held(core):
        doubtful = claim.place in places or core.possible.needs_of.needs(claim) != needs.get(claim.uid)
        if doubtful and not is_possible(core, claim, claim.place):
            back_to_pending(core, claim)
