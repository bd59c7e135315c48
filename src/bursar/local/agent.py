"""The agent of a machine: it queues the jobs of its users, starts those that the cluster admits, and reports their end.

It runs an event loop in a thread of its own, in the server's process or in one of its own, and never waits in it. It
never runs anything for a user: clients and shims do, as that user. Jobs outlive it. After a restart it takes over the
jobs that it has records of before it listens.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Event, Thread
from weakref import WeakSet

from bursar.local import peers
from bursar.local.cgroups import open_slice
from bursar.local.devices.api import DeviceReport, object_name
from bursar.local.job_processes import JobLookup, JobProcesses
from bursar.local.job_records import JobFiles, JobRecord
from bursar.local.job_requests import JobRequests, tell_places
from bursar.local.job_table import JobTable, problem_of
from bursar.local.jobs import RUNNING, DeviceManager, LocalJob, Surroundings
from bursar.local.links import ClusterLink, LinkError, PodState, RefusedByClusterError
from bursar.local.node import Registration, this_machine
from bursar.local.peers import Peer
from bursar.local.protocol import Message
from bursar.local.usage import machine_use, out_of_service
from bursar.objects.local_options import LocalOptions

LOG = logging.getLogger("bursar.local")
TICK_SECONDS = 1.0
_PRUNE_TICKS = 3600
_LOGS_KEPT_SECONDS = 14 * 24 * 3600


@dataclass(frozen=True, slots=True)
class AgentOptions:
    """Where the agent listens and keeps its files."""

    folder: Path
    socket: Path
    machine: str = ""
    cgroups: str = "auto"  # or none
    slice: str = "bursar.slice"


class LocalAgent:
    """The agent in its thread. ``start`` returns when it serves, or raises what kept it from that."""

    def __init__(
        self, link: Callable[[str], ClusterLink], devices: Callable[[str], DeviceManager], options: AgentOptions
    ) -> None:
        """``link`` is given the name of the machine, ``devices`` the path of the slice of jobs ("" for none)."""
        self.options = options
        machine = this_machine(options.machine)
        groups = open_slice(options.cgroups, options.slice)
        slice_ = "" if groups.root is None else str(groups.root)
        files = JobFiles(options.folder)
        self._work = Surroundings(
            machine.name, link(machine.name), devices(slice_), files, groups, LocalOptions(), lambda: self._look([])
        )
        self._registration = Registration(machine)
        self._gaps = 0  # of the link, when the machine was registered
        self._listener: socket.socket | None = None
        self._peers: WeakSet[Peer] = WeakSet()
        self._ready = Event()
        self._problem: BaseException | None = None
        self._thread = Thread(target=self._run, name="bursar-agent", daemon=True)
        self.report = DeviceReport()  # the newest

    def start(self) -> None:
        self._thread.start()
        self._ready.wait()
        if self._problem is not None:
            raise self._problem

    def stop(self) -> None:
        """Jobs go on; the next agent takes them over."""
        self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join()

    @property
    def alive(self) -> bool:
        return self._thread.is_alive()

    @property
    def machine(self) -> str:
        return self._work.machine

    @property
    def slice(self) -> Path | None:
        """The cgroup of all jobs, if there is one."""
        return self._work.groups.root

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as error:
            self._problem = error
            if self._ready.is_set():
                LOG.exception("the agent ended")
        finally:
            self._ready.set()
            self._work.close()

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stopping = asyncio.Event()
        self._looking = asyncio.Lock()
        work = self._work
        self._table = JobTable(work, self._registration.machine, os.geteuid())
        self._requests = JobRequests(self._table, work)
        work.options = await work.in_link(work.link.options)
        self._listener = await work.in_processes(peers.bind, self.options.socket)
        records: list[JobRecord] = await work.in_processes(work.files.load)
        await self._look(records)
        gone = self._registration.unknown(await work.in_link(work.link.objects, "GPU"))
        await work.in_link(work.link.remove, (), [f"GPU/{name}" for name in gone])
        unfollow = work.link.follow(self._heard)
        await self._take_over(records)
        self._loop.add_reader(self._listener, peers.accept, self._listener, self._met)
        self._ready.set()
        try:
            await self._tick()
        finally:
            unfollow()
            self._loop.remove_reader(self._listener)
            self._listener.close()
            await self._table.close()
            for peer in list(self._peers):  # who waits comes back to the next agent
                peer.closed = None
                peer.close()
            await work.in_devices(work.devices.close)

    async def _take_over(self, records: Sequence[JobRecord]) -> None:
        """Jobs from before a restart; what is left of those that the cluster has forgotten is ended."""
        states: list[PodState] = await self._work.in_link(self._work.link.pods)
        for record in self._table.take_over(records, states):
            LOG.warning("%s: is not charged any more; its processes are ended", record.pod)
            await self._work.in_processes(self._end_stale, record)

    def _end_stale(self, record: JobRecord) -> None:
        JobProcesses(record.uid, record.cgroup, record.process, record.shim).clear()
        self._work.files.remove(record.uid)

    # Messages

    def _met(self, connection: socket.socket) -> None:
        peer = Peer(connection, self._asked)
        self._peers.add(peer)
        if not self._table.rights.serves(peer.uid):
            peer.send("error", text="this agent serves another user", code=1)
            peer.close()

    def _asked(self, peer: Peer, message: Message, fds: list[int]) -> None:
        """A message of a client or shim."""
        kind = message["kind"]
        if kind == "hold":
            self._table.hold(peer, message, fds)
            return
        if kind == "again":
            self._table.again(peer, message, fds)
            return
        for fd in fds:
            os.close(fd)
        answers: dict[str, Callable[[Peer, Message], Awaitable[None]]] = {
            "submit": self._table.submit,
            "stop": self._requests.stop,
            "logs": self._requests.logs,
            "attach": self._requests.attach,
        }
        if kind in answers:
            self._table.run(self._answer(answers[kind], peer, message))
        elif kind != "exited":
            peer.send("error", text=f"{kind!r:.40} is no request that this agent knows", code=2)

    async def _answer(self, answer: Callable[[Peer, Message], Awaitable[None]], peer: Peer, message: Message) -> None:
        try:
            await answer(peer, message)
        except Exception as error:
            problem = problem_of(error)
            if problem is None:
                peer.send("error", text="the agent has a defect; its log says more", code=1)
                raise
            peer.send("error", text=problem[0], code=problem[1])

    def _heard(self, states: Sequence[PodState]) -> None:
        """News of the cluster, in any thread."""
        with contextlib.suppress(RuntimeError):  # the loop is closed: it is ending
            self._loop.call_soon_threadsafe(self._table.observe, states)

    # Every second

    async def _tick(self) -> None:
        ticks = 0
        while not self._stopping.is_set():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), TICK_SECONDS)
                return
            ticks += 1
            try:
                await self._look([])
                await self._wait_lines()
                await self._table.drop_orphans()
                if ticks % _PRUNE_TICKS == 0:
                    await self._work.in_processes(self._work.files.prune_logs, time.time() - _LOGS_KEPT_SECONDS)
            except LinkError as error:
                LOG.warning("the cluster does not answer: %s", error)
            except Exception:
                LOG.exception("a look at the machine failed")

    async def _wait_lines(self) -> None:
        if any(job.peer is not None and job.state != RUNNING for job in self._table):
            tell_places(self._table, await self._work.in_link(self._work.link.queue), out_of_service(self.report))

    async def _look(self, records: Sequence[JobRecord]) -> None:
        """At devices and options. ``records``: jobs from before a restart, which the table does not have yet."""
        async with self._looking:  # what is seen first is told first
            await self._look_now(records)

    async def _look_now(self, records: Sequence[JobRecord]) -> None:
        work = self._work
        work.options = await work.in_link(work.link.options)
        work.devices.options = work.options
        running = [job for job in self._table if job.processes is not None and job.record is not None]
        over = await self._over_quota(running)
        wanted = [
            replace(work.devices_of(job, job.record.cgroup), over_quota=job.uid in over)
            for job in running
            if job.record is not None
        ]
        known = [job.processes for job in running if job.processes is not None]
        known += [JobProcesses(one.uid, one.cgroup, one.process, one.shim) for one in records]
        report: DeviceReport = await work.in_devices(work.devices.poll, wanted, JobLookup(known).job_of)
        self.report = report
        gaps = work.link.gaps()
        if gaps != self._gaps and not any(job.forgotten for job in self._table):
            self._gaps = gaps
            self._registration.forget()
        machine, changed = self._registration.changes(report.devices, report.held)
        self._registration.machine = self._table.machine = machine
        work.uuids = self._registration.uuids()
        if changed:
            await work.in_link(self._tell, changed)
        for event in report.events:
            reference = ("GPU", object_name(event.gpu)) if event.gpu else ("Node", machine.name)
            await work.in_link(work.link.event, reference, event.type, event.reason, event.message)
        self._warn_and_evict(report)
        users = {job.uid: job.options.name for job in running}
        await work.in_link(work.link.usage, machine_use(machine.name, work.options.idle_after_ms, report, users))

    async def _over_quota(self, running: Sequence[LocalJob]) -> set[str]:
        """The jobs that may be evicted when they are idle, if any may."""
        if not self._work.options.evict_idle_after_ms or not running:
            return set()
        found: set[str] = await self._work.in_link(self._work.link.borrowing, [job.uid for job in running])
        return found

    def _tell(self, changed: list[dict[str, object]]) -> None:
        try:
            self._work.link.apply(changed)
        except RefusedByClusterError as error:
            LOG.warning("the cluster refuses this machine: %s", error)
        self._registration.told(changed)

    def _warn_and_evict(self, report: DeviceReport) -> None:
        for uid, line in report.warn:
            job = self._table.find(uid)
            if job is not None:
                job.say(line)
        for uid, why in report.evict:
            job = self._table.find(uid)
            if job is not None:
                job.end("Idle", why)
