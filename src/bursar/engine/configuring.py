"""Settings: quotas, nodes and options come, change and go, and the claims they govern are bound anew.

Ruling: lowering a quota evicts nobody by itself, so claims that already count are rebound by force; a claim that a
policy can no longer read keeps the binding it had. One that is only held has not started: when its node goes, is
cordoned or becomes too small for it, it waits anew and may find another one.
"""

from __future__ import annotations

from bursar.engine import budgets
from bursar.engine.core import Core
from bursar.engine.leaving import all_held, back_to_pending
from bursar.engine.placing import is_possible
from bursar.engine.rebinding import rebind
from bursar.policies.settings import Setting, SettingError


def apply_settings(core: Core, settings: list[Setting]) -> None:
    """Apply all settings in order; raises ``SettingError`` for the first that nobody takes or accepts.

    Also when claims that are there could not be counted with them: their sum may leave the exact range.
    """
    try:
        _apply(core, settings)
    except OverflowError as error:
        names = ", ".join([f"{setting.kind} {setting.key}" for setting in settings])
        raise SettingError(names, "", f"what is there already cannot be counted by it: {error}") from None


def _apply(core: Core, settings: list[Setting]) -> None:
    stale: dict[str, None] = {}
    places: set[str] = set()
    for setting in settings:
        if setting.kind == budgets.KIND:
            core.budgets.configure(core.tx, setting)
            continue
        taken = False
        for policy in core.policies:
            if setting.kind in policy.kinds:
                taken = True
                if policy.placement:
                    places.add(setting.key)
                for uid in policy.configure(core.tx, setting):
                    stale[uid] = None
        if not taken:
            raise SettingError(f"{setting.kind} {setting.key}", "", "no policy takes settings of this kind")
    for uid in stale:
        claim = core.ledger.state.claims.get(uid)
        if claim is not None:
            rebind(core, claim, claim.place, True)
    if places:
        _leave_lost_places(core, places)


def _leave_lost_places(core: Core, places: set[str]) -> None:
    for claim in all_held(core):
        if claim.place in places and not is_possible(core, claim, claim.place):
            back_to_pending(core, claim)
