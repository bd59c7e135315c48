"""Who counts in which account."""

from bursar.ledger.claims import Claim, ClaimSpec
from bursar.ledger.state import Account
from bursar.policies.gpus.selection import follow


def test_claims_come_and_go_and_what_is_kept_of_an_account_stays_the_same_mapping() -> None:
    residents: dict[str, dict[str, Claim]] = {}
    one, other = Account("limits", "limits/a"), Account("limits", "limits/b")
    first, second = Claim("1", ClaimSpec(), 0), Claim("2", ClaimSpec(), 0)
    follow(residents, first, one, 1)
    there = residents["limits/a"]
    follow(residents, second, one, 1)
    follow(residents, second, other, 1)
    assert (there, residents["limits/b"]) == ({"1": first, "2": second}, {"2": second})
    for claim in (first, second, second):
        follow(residents, claim, one, -1)
    follow(residents, first, one, 1)
    assert residents["limits/a"] is there
    assert there == {"1": first}
