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
from bursar.kube.client.events import Known, Said, said
from bursar.kube.controller.mirror import Mirror
from bursar.kube.controller.work_queue import Notice, cancelled
from bursar.objects.kinds import POD

log = logging.getLogger(__name__)
PATIENCE = 30.0  # seconds for which people are told nothing because what they were told is being looked up

Tell = Callable[[Notice, str], None]
"""(what to say, uid of the object it is about)."""
Recall = Callable[[Known], Awaitable[dict[str, Said]]]
"""What was said last, by uid of the objects that are known."""


class EventDeduplicator:
    """Passes on what the ledger has to say. Without ``recall`` nothing was said before."""

    def __init__(self, mirror: Mirror, tell: Tell, recall: Recall | None) -> None:
        self._mirror = mirror
        self._tell = tell
        self._recall = recall
        self._recalling: asyncio.Task[dict[str, Said]] | None = None
        self._last: dict[str, Said] | None = {}  # by uid; None: the ledger came to rest, and what it says now is news

    def begin(self, recalled: Callable[[], None]) -> None:
        """The ledger is built."""
        if self._recall is not None:
            self._recalling = asyncio.get_running_loop().create_task(self._recalled(self._recall))
            self._recalling.add_done_callback(lambda _: recalled())

    async def end(self) -> None:
        if self._recalling is not None:
            await cancelled(self._recalling)

    def tell(self, *, at_rest: bool) -> None:
        """Say what there is to say, as soon as it is known what was said before."""
        if self._recalling is not None:
            if not self._recalling.done():
                return
            self._last, self._recalling = self._recalling.result(), None
        notes = self._mirror.notes
        events, notes.events = notes.events, []
        for told in events:
            uid = self._mirror.uid_of(told.kind, told.key)
            if self._last is None or self._is_news(self._last, told, uid):
                self._tell(told, uid)
        if at_rest:
            self._last = None

    def _is_news(self, last: dict[str, Said], told: Notice, uid: str) -> bool:
        new, before = said(told.reason, told.message), last.get(uid)
        waits = self._mirror.controller.reason(uid)[0] if told.kind == POD.name else ""
        if told.reason == GROUP_INCOMPLETE != waits:
            return False  # so it was only while the ledger was built, pod by pod
        if before is not None and (before == new or (before.reason == new.reason and told.reason == waits)):
            return False
        if uid:
            last[uid] = new
        return True

    async def _recalled(self, recall: Recall) -> dict[str, Said]:
        try:
            async with asyncio.timeout(PATIENCE):
                return await recall(lambda kind, uid: kind != POD.kind or uid in self._mirror.pods.by_uid)
        except (KubeError, TimeoutError) as error:
            log.warning("everybody is told again why they wait; events: %s", str(error) or "not listed in time")
            return {}
