"""What a failed write means for whoever wanted it."""

from __future__ import annotations

import pytest

from bursar.kube.client.errors import error_for
from bursar.kube.client.models import ApiStatus
from bursar.kube.controller.work_queue import Again, sent

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(("wanted", "after"), [(None, None), (0.0, None), (3.0, 3.0), (3600.0, 60.0)])
async def test_a_server_in_trouble_is_given_a_pause_also_when_it_asks_for_none_and_none_without_end(
    wanted: float | None, after: float | None
) -> None:
    async def write() -> None:
        raise error_for("patch /pods/p", 503, ApiStatus(code=503), wanted)

    with pytest.raises(Again) as again:
        await sent(write(), refused=lambda _: None)
    assert again.value.after == after
