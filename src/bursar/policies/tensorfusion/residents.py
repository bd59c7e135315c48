"""Who counts in which account: follows the ledger's charges as they are done, undone and replayed."""

from __future__ import annotations

from bursar.ledger.accounts import Account
from bursar.ledger.claims import Claim


def follow(residents: dict[str, dict[str, Claim]], claim: Claim, account: Account, sign: int) -> None:
    """A claim came into an account or (``sign`` below 0) went. ``residents``: by account name, then by uid.

    What is kept of an account stays the same mapping: searches for victims look into it while they go on.
    """
    there = residents.get(account.name)
    if there is None:
        there = {}
        residents[account.name] = there
    if sign > 0:
        there[claim.uid] = claim
    else:
        there.pop(claim.uid, None)
