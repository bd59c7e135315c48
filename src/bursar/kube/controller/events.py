"""Event deduplication on failover.

Events are written on edges only. A rebuilt ledger finds every pending pod pending and would report each again. Until
it settles for the first time, each message is compared with the latest event on the object, and repeats are skipped.
For a pending pod the reason is compared, not the text: its amounts change. Only the writing of events waits for that
list. If the events cannot be listed, all messages are written once more.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from bursar.control.controller import GROUP_INCOMPLETE
from bursar.kube.client.errors import KubeError
from bursar.kube.client.events import EventText, Known, event_text
from bursar.kube.controller.mirror import Mirror
from bursar.kube.controller.work_queue import Notice, cancelled
from bursar.objects.kinds import POD

log = logging.getLogger(__name__)
PATIENCE = 30.0  # seconds for which events wait until the earlier ones are listed

Tell = Callable[[Notice, str], None]
"""(notice, uid of the object it is about)."""
Recall = Callable[[Known], Awaitable[dict[str, EventText]]]
"""The latest event of each known object, by uid."""


class EventDeduplicator:
    """Passes on the events of a ledger. Without ``recall`` there are no earlier events."""

    def __init__(self, mirror: Mirror, tell: Tell, recall: Recall | None) -> None:
        self._mirror = mirror
        self._tell = tell
        self._recall = recall
        self._recalling: asyncio.Task[dict[str, EventText]] | None = None
        self._last: dict[str, EventText] | None = {}  # by uid; None: the ledger came to rest, and every event is new

    def begin(self, recalled: Callable[[], None]) -> None:
        """The ledger is built."""
        if self._recall is not None:
            self._recalling = asyncio.get_running_loop().create_task(self._recalled(self._recall))
            self._recalling.add_done_callback(lambda _: recalled())

    async def end(self) -> None:
        if self._recalling is not None:
            await cancelled(self._recalling)

    def tell(self, *, at_rest: bool) -> None:
        """Pass on new events, once the earlier ones are listed."""
        if self._recalling is not None:
            if not self._recalling.done():
                return
            self._last, self._recalling = self._recalling.result(), None
        notes = self._mirror.notes
        events, notes.events = notes.events, []
        for notice in events:
            uid = self._mirror.uid_of(notice.kind, notice.key)
            if self._last is None or self._is_news(self._last, notice, uid):
                self._tell(notice, uid)
        if at_rest:
            self._last = None

    def _is_news(self, last: dict[str, EventText], notice: Notice, uid: str) -> bool:
        new, before = event_text(notice.reason, notice.message), last.get(uid)
        waits = self._mirror.controller.reason(uid)[0] if notice.kind == POD.name else ""
        if notice.reason == GROUP_INCOMPLETE != waits:
            return False  # true only while the ledger was built, pod by pod
        if before is not None and (before == new or (before.reason == new.reason and notice.reason == waits)):
            return False
        if uid:
            last[uid] = new
        return True

    async def _recalled(self, recall: Recall) -> dict[str, EventText]:
        try:
            async with asyncio.timeout(PATIENCE):
                return await recall(lambda kind, uid: kind != POD.kind or uid in self._mirror.pods.by_uid)
        except (KubeError, TimeoutError) as error:
            log.warning(
                "events are repeated for all pending pods, because earlier ones are unknown: %s",
                str(error) or "not listed in time",
            )
            return {}
