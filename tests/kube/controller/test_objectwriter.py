"""Who is told in a status that a change is not in force."""

from __future__ import annotations

from typing import cast

import pytest

from bursar.control.kinds import known_kinds
from bursar.kube.client.api import Api
from bursar.kube.controller.objectwriter import ObjectWriter
from bursar.kube.controller.world import World
from bursar.policies.plugin import default_registry

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.mark.parametrize(
    ("kind", "told"),
    [
        ("QuotaTree.bursar.dev", True),
        ("ElasticQuota.n8s.nebuly.ai", True),
        ("Node", False),
        ("PodDisruptionBudget", False),
        ("GPUPool.tensor-fusion.ai", False),
    ],
)
async def test_conditions_that_are_not_bursars_to_write_are_left_alone(kind: str, told: bool) -> None:
    world = World(known_kinds(default_registry()))
    writer = ObjectWriter(cast("Api", None), world, lambda *_: None)
    writer.invalid((kind, "a/one"), "is wrong")
    assert bool(len(writer.desk)) == told
    await writer.desk.close()
