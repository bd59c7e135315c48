"""What clients ask and see of jobs that are there: stop them, read their logs, attach to them, and why they wait.

The line about the queue is sent when it differs from the last one. Since when the job waits is sent beside it, so that
time alone makes no messages.

A job is named TEAM/NAME, or NAME where the caller has one job of that name. Everybody may ask about own jobs, admins
about all.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping

from bursar.local.callers import LocalUser
from bursar.local.job_table import JobTable
from bursar.local.jobs import GRANTED, QUEUED, RUNNING, LocalJob, Surroundings
from bursar.local.links import QueuePlace
from bursar.local.peers import Peer
from bursar.local.protocol import Message
from bursar.local.submission import JobRefusedError


class JobRequests:
    """Answers the messages ``stop``, ``logs`` and ``attach``."""

    def __init__(self, table: JobTable, work: Surroundings) -> None:
        self._table = table
        self._work = work

    async def stop(self, peer: Peer, message: Message) -> None:
        caller = await self._table.caller(peer)
        jobs = [self._job(caller, str(name)) for name in message.get("pods", ())]
        for job in jobs:
            if job.state != QUEUED:
                job.end("Stopped", f"stopped by {caller.name}", at_once=bool(message.get("now")))
        await self._table.withdraw([job for job in jobs if job.state == QUEUED])
        peer.send("ok", pods=[job.pod for job in jobs])

    async def attach(self, peer: Peer, message: Message) -> None:
        """The client's connection goes to the shim, and the agent has no more to do with it."""
        caller = await self._table.caller(peer)
        job = self._job(caller, str(message.get("pod", "")))
        if job.state != RUNNING or job.peer is None:
            raise JobRefusedError(
                f"{job.pod} does not run yet" if job.state != RUNNING else f"{job.pod} has no shim now"
            )
        peer.send("ok", pod=job.pod)
        connection = peer.release()
        connection.setblocking(True)
        job.peer.send("view", fds=(connection.fileno(),))
        connection.close()

    async def logs(self, peer: Peer, message: Message) -> None:
        """A descriptor of the log, and whether the job goes on; the connection ends when the job does."""
        caller = await self._table.caller(peer)
        name = str(message.get("pod", ""))
        job = self._running(caller, name)
        if job is not None:
            self._table.rights.check_own(caller, job.options.user, job.pod)
            fd = await self._work.in_processes(self._work.files.open_log, job.options.user, job.pod, job.number)
            found = None if fd is None else (job.options.user, fd)
            name = job.pod
        else:
            name = self._full(caller, name)
            found = await self._work.in_processes(self._work.files.newest_log, name)
        if found is None:
            raise JobRefusedError(f"there is no log of a job {name!r:.200}")
        owner, fd = found
        try:
            self._table.rights.check_own(caller, owner, name)
            peer.send("ok", fds=(fd,), pod=name, running=job is not None)
        finally:
            os.close(fd)
        if job is None:
            peer.close()
        else:
            job.readers.append(peer)

    # Names

    def _job(self, caller: LocalUser, name: str) -> LocalJob:
        job = self._running(caller, name)
        if job is None:
            raise JobRefusedError(f"there is no job {name!r:.200} that waits or runs")
        self._table.rights.check_own(caller, job.options.user, job.pod)
        return job

    def _running(self, caller: LocalUser, name: str) -> LocalJob | None:
        if "/" in name:
            return self._table.named(name)
        own = [job for job in self._table if job.pod.partition("/")[2] == name and job.options.user == caller.uid]
        if len(own) > 1:
            raise JobRefusedError(f"several jobs are called {name}: {', '.join(sorted(job.pod for job in own))}", 2)
        return own[0] if own else None

    def _full(self, caller: LocalUser, name: str) -> str:
        """With the team; one of the caller's that has a log of that name."""
        if "/" in name:
            return name
        teams = self._table.rights.teams(caller)
        for team in teams:
            found = self._work.files.newest_log(f"{team}/{name}")
            if found is not None:
                os.close(found[1])
                return f"{team}/{name}"
        return name


# The queue

_REASON_MOST = 300


def line_of(place: QueuePlace, out: str = "") -> str:
    """One line about a pending job. ``out``: GPUs that are not handed out, in words."""
    parts = [f"{place.position} of {place.length} in the queue"]
    if place.front:
        parts.append(f"after {place.front}")
    if out:
        parts.append(out)
    if place.reason:
        parts.append(place.reason if len(place.reason) <= _REASON_MOST else f"{place.reason[:_REASON_MOST]}...")
    return "; ".join(parts)


def tell_places(jobs: Iterable[LocalJob], places: Iterable[QueuePlace], out: str = "") -> None:
    """Send each client its line, if it changed. ``out`` is for those that want GPUs."""
    by_pod: Mapping[str, QueuePlace] = {place.pod: place for place in places}
    for job in jobs:
        place = by_pod.get(job.pod)
        if job.state == QUEUED and place is not None:
            send_line(job, line_of(place, out if job.options.gpus else ""), place.since)


def send_line(job: LocalJob, line: str, since: int) -> None:
    """``since``: milliseconds from 1970."""
    if line != job.line and job.peer is not None and job.state in {QUEUED, GRANTED}:
        job.line = line
        job.peer.send("wait", text=line, since=since, pod=job.pod)
