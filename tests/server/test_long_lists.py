"""Long lists do not keep others from deciding, and say the same as before."""

from __future__ import annotations

import pytest

from bursar.policies.quota_table import QuotaRecord
from bursar.server import quotas
from bursar.sim.objects import Stored
from tests.server.live import Live, node, pod, quota


def filled(bed: Live) -> None:
    bed.give(node("n1"), node("n2"), quota("a", 4), quota("b", 2))
    bed.give(*(pod(team, f"p{number}") for team in ("a", "b") for number in range(4)))


def test_rows_of_quotas_are_made_without_the_lock(bed: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    filled(bed)
    owned: list[bool] = []
    make = quotas.row

    def noted(found: QuotaRecord) -> object:
        owned.append(bed.service.lock._is_owned())  # type: ignore[attr-defined]
        return make(found)

    monkeypatch.setattr(quotas, "row", noted)
    assert len(bed.client.quotas().items) == 2
    assert owned == [False, False]


def test_manifests_are_read_without_the_lock(bed: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    filled(bed)
    owned: list[bool] = []
    whole = Stored.manifest

    def noted(stored: Stored) -> dict[str, object]:
        owned.append(bed.service.lock._is_owned())  # type: ignore[attr-defined]
        return whole(stored)

    monkeypatch.setattr(Stored, "manifest", noted)
    assert len(bed.client.objects(kind="Pod").items) == 8
    assert owned == [False] * 8


@pytest.mark.parametrize(
    ("filters", "names"),
    [
        ({"namespace": "a"}, ["a/p0", "a/p1", "a/p2", "a/p3"]),
        ({"namespace": "nobody"}, []),
        ({"phase": "Pending"}, ["b/p2", "b/p3"]),
        ({"phase": "Running", "namespace": "b"}, ["b/p0", "b/p1"]),
        ({"node": "n9"}, []),
    ],
)
def test_claims_are_found_by_what_is_asked_for(bed: Live, filters: dict[str, str], names: list[str]) -> None:
    bed.give(
        node("n1"), node("n2", 2), quota("a", 4, max={"nvidia.com/gpu": 4}), quota("b", 2, max={"nvidia.com/gpu": 2})
    )
    bed.give(*(pod(team, f"p{number}") for team in ("a", "b") for number in range(4)))
    found = bed.client.claims(**filters)
    assert [f"{row.namespace}/{row.name}" for row in found.items] == names


def test_claims_of_a_node_are_those_that_were_placed_there(bed: Live) -> None:
    filled(bed)
    rows = bed.client.claims(node="n1").items
    assert rows
    assert {row.node for row in rows} == {"n1"}
