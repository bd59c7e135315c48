"""Three rounds of ``failover``; many more of them are a command (see there)."""

import asyncio

from tests.cluster.controlplane import ControlPlane
from tests.cluster.robustness.failover import Storm


def test_leaders_that_are_killed_or_frozen_exceed_no_quota_and_forget_nobody(plane: ControlPlane) -> None:
    storm = Storm(plane, seed=3)
    storm.prepare()
    try:
        asyncio.run(storm.run(rounds=3, admitted=30))
        assert storm.audit() > len(storm.observer.admitted)
    finally:
        storm.clean()
