"""The jobs of a machine: what clients and shims ask, what the cluster decides, and the tasks that carry jobs through.

Everything here runs in the agent's event loop. What may block is done in threads of ``Surroundings``.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Coroutine, Iterator, Sequence
from typing import Any

from bursar.local.callers import LocalRights, LocalUser, UserCache
from bursar.local.job_life import NOT_STARTED, JobLife
from bursar.local.job_records import JobRecord
from bursar.local.jobs import GRANTED, QUEUED, RUNNING, Handed, LocalJob, Surroundings
from bursar.local.links import GONE, TERMINATING, JobEnd, LinkError, PodState, RefusedByClusterError
from bursar.local.peers import Peer
from bursar.local.protocol import Message
from bursar.local.submission import JobRefusedError, Machine, options_in, pods_of, read_request

LOG = logging.getLogger("bursar.local")
UNREACHABLE = 3
_STATES_MOST = 10_000
CLIENT_SECONDS = 30.0  # for clients of queued jobs to come back after a restart


class JobTable:
    """All jobs that wait or run here, by the uid of their pod."""

    def __init__(self, work: Surroundings, machine: Machine, owner: int) -> None:
        self.machine = machine
        self._work = work
        self._owner = owner
        self._jobs: dict[str, LocalJob] = {}
        self._states: dict[str, PodState] = {}  # by uid: the newest that the cluster said
        self._unknown: dict[str, float] = {}  # since when there are pods without a job
        self._waiters: dict[Peer, set[str]] = {}  # the queued jobs of each client
        self._callers = UserCache()
        self._tasks: set[asyncio.Task[None]] = set()

    def __iter__(self) -> Iterator[LocalJob]:
        return iter(list(self._jobs.values()))

    def find(self, uid: str) -> LocalJob | None:
        return self._jobs.get(uid)

    def named(self, pod: str) -> LocalJob | None:
        return next((job for job in self._jobs.values() if job.pod == pod), None)

    @property
    def rights(self) -> LocalRights:
        return LocalRights(self._work.options, self._owner)

    async def caller(self, peer: Peer) -> LocalUser:
        caller: LocalUser = await self._work.in_processes(self._callers.find, peer.uid)
        return caller

    def run(self, work: Coroutine[Any, Any, None]) -> None:
        """In the background; a failure is logged."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            LOG.error("a step of the agent failed", exc_info=task.exception())

    # Clients

    async def submit(self, peer: Peer, message: Message) -> None:
        """Queue the jobs of a client, which waits on this connection."""
        request = read_request(message)
        caller = await self.caller(peer)
        self._work.options = await self._work.in_link(self._work.link.options)
        team = self.rights.team(caller, request.team)
        manifests = pods_of(request, team, (caller.uid, caller.name), self.machine)
        await self._work.in_processes(self._work.files.folder_of, caller.uid, caller.gid)
        states: list[PodState] = await self._work.in_link(self._work.link.submit, manifests)
        for state, manifest in zip(states, manifests, strict=True):
            options, rank = options_in(manifest["metadata"]["annotations"])
            self._add(LocalJob(state.pod, state.uid, options, rank, peer=peer))
        if not peer.open:
            await self._leave(peer)
            return
        peer.send("queued", pods=[state.pod for state in states], uids=[state.uid for state in states])
        for state in states:
            self.observe([self._states.get(state.uid, state)])

    def _add(self, job: LocalJob) -> None:
        self._jobs[job.uid] = job
        if job.peer is not None:
            self._waiters.setdefault(job.peer, set()).add(job.uid)
            job.peer.closed = self._lost

    def _lost(self, peer: Peer) -> None:
        """A client or shim is gone."""
        if peer in self._waiters:
            self.run(self._leave(peer))
        for job in self:
            if job.peer is peer:
                job.peer, job.since = None, time.monotonic()

    async def _leave(self, peer: Peer) -> None:
        """The jobs that wait for a client that is gone leave the queue; those that were granted do not start."""
        jobs = [job for job in map(self._jobs.get, self._waiters.pop(peer, ())) if job is not None]
        for job in jobs:
            if job.state == GRANTED and not job.held.done():
                job.end(NOT_STARTED, "its client went away")
        await self.withdraw([job for job in jobs if job.state == QUEUED])

    async def withdraw(self, jobs: Sequence[LocalJob]) -> None:
        """Take queued jobs out of the queue."""
        if not jobs:
            return
        while True:
            try:
                await self._work.in_link(self._work.link.remove, [job.pod for job in jobs])
            except LinkError as error:
                LOG.warning("pods cannot be taken out of the queue yet: %s", error)
                await asyncio.sleep(1)
            else:
                return

    # Shims

    def hold(self, peer: Peer, message: Message, fds: list[int]) -> None:
        """A shim hands the blocked process of a granted job over."""
        job = self._claimed(peer, message)
        if job is None or job.state != GRANTED or job.held.done() or not fds:
            for fd in fds:
                os.close(fd)
            peer.send("no", text="the job may not start any more")
            return
        for fd in fds[1:]:
            os.close(fd)
        self._release(job)
        job.peer = peer
        peer.closed = self._lost
        job.held.set_result(Handed(fds[0], peer))

    def again(self, peer: Peer, message: Message, fds: list[int]) -> None:
        """A client or shim is back after a restart of the agent, or waits for its next turn."""
        for fd in fds:
            os.close(fd)
        for pod, uid in zip(message.get("pods", ()), message.get("uids", ()), strict=False):
            job = self._claimed(peer, {"pods": [pod], "uids": [uid]})
            if job is None:
                peer.send("no", text="the job is not known here any more", pod=pod)
                continue
            job.peer = peer
            peer.closed = self._lost
            if job.state != RUNNING:
                self._waiters.setdefault(peer, set()).add(job.uid)
            if job.state == GRANTED:
                self._grant(job)

    def _claimed(self, peer: Peer, message: Message) -> LocalJob | None:
        """The job that a shim or client names, if it is its own."""
        uids = message.get("uids") or [""]
        job = self._jobs.get(str(uids[0]))
        return job if job is not None and job.options.user == peer.uid else None

    def _release(self, job: LocalJob) -> None:
        """Its client is no longer the one that it depends on."""
        for uids in self._waiters.values():
            uids.discard(job.uid)

    # The cluster

    def observe(self, states: Sequence[PodState]) -> None:
        """What the cluster has decided about pods of this machine, and made durable."""
        if len(self._states) > _STATES_MOST:
            self._states = {uid: state for uid, state in self._states.items() if uid in self._jobs or not state.ended}
        for state in states:
            job = self._jobs.get(state.uid)
            self._states[state.uid] = state
            if job is None:
                continue
            if job.state == QUEUED and state.active:
                self._begin(job, state)
            elif job.state == QUEUED and state.ended:
                self._withdrawn(job, state)
            if state.phase == GONE and job.state != QUEUED:
                job.forgotten = True
                job.end("Stopped", "its pod is gone")
            if state.phase == TERMINATING and job.state != QUEUED:
                reason = "Evicted" if state.evicted else "Stopped"
                job.end(reason, state.message if state.evicted else "its pod was deleted")

    def _begin(self, job: LocalJob, state: PodState) -> None:
        job.state = GRANTED
        job.gpus = state.gpus
        self._grant(job)
        self.run(self._live(job))

    def _grant(self, job: LocalJob) -> None:
        if job.peer is not None:
            log, status = self._work.files_of(job)
            job.peer.send("grant", pod=job.pod, uid=job.uid, log=str(log), status=str(status))

    def _withdrawn(self, job: LocalJob, state: PodState) -> None:
        del self._jobs[job.uid]
        self._release(job)
        if job.peer is not None:
            text = state.message or "it was taken out of the queue"
            job.peer.send("withdrawn", pod=job.pod, text=text)

    async def _live(self, job: LocalJob) -> None:
        """Carry a granted job through; a job that is queued again takes its place."""
        found = await JobLife(self._work, job).run()
        self._jobs.pop(job.uid, None)
        self._release(job)
        for reader in job.readers:
            reader.close()
        if job.failed:
            self._end_gang(job)
        state = next((one for one in found if one.pod == job.pod), None)
        if state is None:
            if job.peer is not None:
                job.peer.send("done")
            return
        following = LocalJob.again(job, state, job.attempt + 1)
        self._add(following)
        if job.peer is not None:
            log, status = self._work.files_of(following)
            job.peer.send("done", again=True, uid=following.uid, log=str(log), status=str(status))
        self.observe([self._states.get(state.uid, state)])

    def _end_gang(self, job: LocalJob) -> None:
        """A gang runs whole or not at all: when one is ended, or fails, so are the others."""
        if job.options.members > 1:
            gang = job.pod.rpartition("-")[0]
            for other in self:
                if other.options.members > 1 and other.pod.rpartition("-")[0] == gang and other.state != QUEUED:
                    other.end("GangEnded", f"{job.pod} of its gang ended")

    # After a restart

    def take_over(self, records: Sequence[JobRecord], states: Sequence[PodState]) -> list[JobRecord]:
        """Go on with what runs and waits. Returns records of jobs that the cluster does not charge any more."""
        self._states = {state.uid: state for state in states}
        stale: list[JobRecord] = []
        for record in records:
            state = self._states.get(record.uid)
            if state is None or not state.active:
                stale.append(record)
                continue
            job = LocalJob.recorded(record)
            self._jobs[job.uid] = job
            self.run(self._live(job))
        for state in states:
            if state.uid not in self._jobs and not state.ended:
                self._take_over_waiting(state)
        self.observe(list(states))
        return stale

    def _take_over_waiting(self, state: PodState) -> None:
        """A pod that waits, or was granted and did not begin: its client may come back."""
        try:
            options, rank = options_in(state.annotations)
        except (KeyError, ValueError) as error:
            LOG.warning("%s: is not a job of `bursar run`: %s", state.pod, error)
            self.run(self._disown(state))
            return
        self._jobs[state.uid] = LocalJob(state.pod, state.uid, options, rank)

    async def _disown(self, state: PodState) -> None:
        """A pod that claims to run here and has no client."""
        end = JobEnd(state.pod, state.uid, 1, NOT_STARTED, "it was not queued by `bursar run`")
        if state.active:
            await self._work.in_link(self._work.link.report, [end])
        else:
            await self._work.in_link(self._work.link.remove, [state.pod])

    async def drop_orphans(self) -> None:
        """Queued jobs whose clients did not come back leave the queue, and so do pods that no client knows of: their
        answer was lost on its way from the server.
        """
        limit = time.monotonic() - CLIENT_SECONDS
        unknown = [state for uid, state in self._states.items() if uid not in self._jobs and not state.ended]
        self._unknown = {state.uid: self._unknown.get(state.uid, time.monotonic()) for state in unknown}
        for state in unknown:
            if self._unknown[state.uid] < limit:
                await self._disown(state)
        lost = [job for job in self if job.state == QUEUED and job.peer is None and job.since < limit]
        for job in lost:
            job.since = time.monotonic()
        await self.withdraw(lost)

    async def close(self) -> None:
        """Stop following; jobs go on."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


def problem_of(error: Exception) -> tuple[str, int] | None:
    """(one line, exit code) of what a client is answered; None for a defect."""
    if isinstance(error, JobRefusedError):
        return str(error), error.code
    if isinstance(error, RefusedByClusterError):
        return str(error), 1
    if isinstance(error, LinkError):
        return str(error), UNREACHABLE
    return None
