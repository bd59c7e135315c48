"""Leader election by a Lease of coordination.k8s.io/v1, and how long the leader may still write.

Clocks of two processes are never compared. A leader counts from the moment before it sent the successful renewal; a
candidate counts from the moment it saw the lease change. So a leader that stops at its renew deadline has stopped
before a candidate may take over, by at least lease duration minus renew deadline. The monotonic clock also runs while
the process is stopped or the machine sleeps: ``remaining`` raises ``Fenced`` before any late write.

Every write of the lease carries the resourceVersion that was read, so one of two candidates gets a conflict.
leaseTransitions grows with each change of leader: it is the leader term, by which the API server refuses writes of
earlier leaders. (The first term is 0.)

A candidate or leader whose ``alive`` says no neither takes nor renews the lease: it holds it for others' work, in
another process (see ``election``).
"""

from __future__ import annotations

import asyncio
import logging
import math
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import msgspec

from bursar.kube.client.api import LEASES, NAMESPACES, Api, PatchKind, Writing
from bursar.kube.client.errors import AlreadyExists, Conflict, Fenced, KubeError, Malformed, NotFound
from bursar.kube.client.events import micro_time
from bursar.kube.client.http import NO_RETRY
from bursar.kube.client.models import Lease, RawObject

log = logging.getLogger(__name__)

_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def steady() -> float:
    """Seconds on a clock that never goes back and goes on while the machine sleeps."""
    return time.clock_gettime(_CLOCK)


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds. The lease is free ``duration`` after its last renewal; its holder stops at ``renew_deadline``."""

    duration: float = 15.0
    renew_deadline: float = 10.0
    retry_period: float = 2.0

    def __post_init__(self) -> None:
        if not self.duration > self.renew_deadline > self.retry_period > 0:
            given = f"{self.duration:g}, {self.renew_deadline:g} and {self.retry_period:g} s"
            raise ValueError(f"the lease's duration, renew deadline and retry period must fall: {given}")


class Elector:
    """Takes part in the election for as long as it runs. Set ``http.gate = elector.remaining``."""

    def __init__(
        self,
        api: Api,
        name: str,
        namespace: str,
        identity: str,
        *,
        timing: Timing | None = None,
        started: Callable[[int], None],
        stopped: Callable[[], None],
        clock: Callable[[], float] = steady,
    ) -> None:
        self.identity = identity
        self.term: int | None = None  # while leading
        self.floor: Callable[[], Awaitable[int]] | None = None  # a term before those of a lease that is created again
        self.alive: Callable[[], bool] = lambda: True
        self.extended: Callable[[float], None] = lambda _: None  # hears until when we may write
        self._api = api
        self._name = name
        self._namespace = namespace
        self._timing = timing or Timing()
        self._started = started
        self._stopped = stopped
        self._clock = clock
        self._lease: Lease | None = None  # as last read or written
        self._highest_term = -1  # a lease that was deleted begins after the terms it had
        self._changed_at = 0.0  # when it was seen to change
        self._until = -math.inf  # when we have to stop writing

    @property
    def leading(self) -> bool:
        return self.term is not None and self._clock() < self._until

    def remaining(self) -> float:
        """Seconds for which we may still write."""
        left = self._until - self._clock()
        if self.term is None:
            raise Fenced(f"{self._namespace}/{self._name}: {self.identity} does not hold the lease")
        if left <= 0:
            raise Fenced(f"{self._namespace}/{self._name}: the time to write ended {-left:.3f} s ago")
        return left

    async def run(self) -> None:
        """Compete, lead, compete again. When cancelled, stop leading and release the lease."""
        try:
            while True:
                await self._compete()
                await self._lead()
        finally:
            await self._leave()

    async def _compete(self) -> None:
        while True:
            try:
                async with asyncio.timeout(self._timing.renew_deadline):
                    if await self._try_to_take():
                        return
            except TimeoutError:
                log.warning("lease %s/%s: no answer in time", self._namespace, self._name)
            except KubeError as error:
                log.warning("lease %s/%s: %s", self._namespace, self._name, error)
            await asyncio.sleep(self._timing.retry_period * random.uniform(1.0, 1.2))  # noqa: S311 no secret

    async def _try_to_take(self) -> bool:
        lease = await self._look()
        if not self.alive() or (lease is not None and not self._is_free(lease)):
            return False
        sent = self._clock()
        try:
            taken = await (self._create() if lease is None else self._take(lease))
        except (AlreadyExists, Conflict):
            return False  # another replica was faster
        self._extend(sent + self._timing.renew_deadline)
        if self._clock() >= self._until:  # frozen meanwhile; it will be free when its time is over
            return False
        self.term = taken.spec.lease_transitions
        log.info("lease %s/%s: %s leads, term %d", self._namespace, self._name, self.identity, self.term)
        self._started(self.term)
        return True

    def _is_free(self, lease: Lease) -> bool:
        holder = lease.spec.holder_identity
        if not holder or holder == self.identity:  # given back, or ours from a term that ended
            return True
        return self._clock() - self._changed_at >= max(lease.spec.lease_duration_seconds, self._timing.duration)

    async def _lead(self) -> None:
        try:
            while True:
                left = self._until - self._clock()
                if left <= 0:
                    log.warning("lease %s/%s: not renewed in time", self._namespace, self._name)
                    return
                await asyncio.sleep(min(left, self._timing.retry_period))
                if not await self._renewed():
                    return
        finally:
            self._stop()

    async def _renewed(self) -> bool:
        """Try to renew; False when the lease is lost for certain. Trouble is no reason to give up before the time."""
        left = self._until - self._clock()
        if left <= 0:
            return True  # the caller sees to it
        if not self.alive():
            log.warning("lease %s/%s: not renewed, because its holder makes no progress", self._namespace, self._name)
            return True
        try:
            async with asyncio.timeout(left):
                try:
                    await self._renew()
                except Conflict:  # perhaps with an earlier renewal of ours whose answer was lost
                    await self._look()
                    if self._is_ours():
                        await self._renew()
        except NotFound:
            return False
        except (KubeError, TimeoutError) as error:
            log.warning("lease %s/%s: renewing: %s", self._namespace, self._name, str(error) or "no answer in time")
        return self._is_ours()

    async def _renew(self) -> None:
        if self._lease is not None:
            sent = self._clock()
            await self._write(self._lease, {"holderIdentity": self.identity, "renewTime": micro_time()})
            self._extend(sent + self._timing.renew_deadline)

    def _extend(self, until: float) -> None:
        self._until = until
        self.extended(until)

    def _is_ours(self) -> bool:
        spec = None if self._lease is None else self._lease.spec
        return spec is not None and (spec.holder_identity, spec.lease_transitions) == (self.identity, self.term)

    def _stop(self) -> None:
        self._extend(-math.inf)
        if self.term is not None:
            log.info("lease %s/%s: %s leads no more", self._namespace, self._name, self.identity)
            self.term = None
            self._stopped()

    async def _leave(self) -> None:
        """Give the lease back, to make failover fast, unless a write of ours may still be under way."""
        if not self._holds() or not await self._api.http.drain(self._timing.retry_period):
            return
        try:
            async with asyncio.timeout(self._timing.renew_deadline / 2):
                try:
                    await self._give_back()
                except Conflict:  # with a renewal that was under way when the process was stopped
                    await self._look()
                    await self._give_back()
        except (KubeError, TimeoutError) as error:
            log.info("lease %s/%s: not given back: %s", self._namespace, self._name, error)

    def _holds(self) -> bool:
        return self._lease is not None and self._lease.spec.holder_identity == self.identity

    async def _give_back(self) -> None:
        if self._lease is not None and self._holds():
            await self._write(self._lease, {"holderIdentity": "", "leaseDurationSeconds": 1, "renewTime": micro_time()})

    async def _look(self) -> Lease | None:
        """The lease as it is now. That it changed since we last looked is noted, with our own time."""
        try:
            limit = self._timing.renew_deadline / 2
            body = await self._api.get(LEASES, self._name, self._namespace, within=limit, retry=NO_RETRY, gated=False)
        except NotFound:
            self._lease = None
            return None
        self._note(_read(body), self._clock())
        return self._lease

    def _note(self, lease: Lease, now: float) -> None:
        known = self._lease
        if known is None or known.metadata.resource_version != lease.metadata.resource_version:
            self._changed_at = now
        self._lease = lease
        self._highest_term = max(self._highest_term, lease.spec.lease_transitions)

    async def _create(self) -> Lease:
        if self.floor is not None:
            self._highest_term = max(self._highest_term, await self.floor())
        body = {
            "apiVersion": LEASES.api_version,
            "kind": LEASES.kind,
            "metadata": {"name": self._name, "namespace": self._namespace},
            "spec": {**self._claim(), "leaseTransitions": self._highest_term + 1},
        }
        created = _read(await self._api.create(LEASES, body, self._namespace, self._how()))
        self._note(created, self._clock())
        return created

    async def _take(self, lease: Lease) -> Lease:
        return await self._write(lease, {**self._claim(), "leaseTransitions": lease.spec.lease_transitions + 1})

    def _claim(self) -> dict[str, object]:
        now = micro_time()
        return {
            "holderIdentity": self.identity,
            "leaseDurationSeconds": math.ceil(self._timing.duration),
            "acquireTime": now,
            "renewTime": now,
        }

    async def _write(self, lease: Lease, spec: dict[str, object]) -> Lease:
        patch = {"metadata": {"resourceVersion": lease.metadata.resource_version}, "spec": spec}
        answer = await self._api.patch(LEASES, self._name, self._namespace, PatchKind.MERGE, patch, how=self._how())
        written = _read(answer)
        self._note(written, self._clock())
        return written

    def _how(self) -> Writing:
        return Writing(gated=False, within=self._timing.renew_deadline / 2, retry=NO_RETRY)


def _read(body: RawObject) -> Lease:
    try:
        return body.into(Lease)
    except msgspec.DecodeError as error:
        raise Malformed(f"lease {body.key}: {error}") from None


NO_TERM = -1  # there was no leader yet


async def announced_term(api: Api, namespace: str, annotation: str) -> int:
    """The term in an annotation of a namespace: that of the last leader whose patches were accepted."""
    found = await api.find(NAMESPACES, namespace)
    annotations = {} if found is None else found.plain()["metadata"].get("annotations") or {}
    written = str(annotations.get(annotation, ""))
    return int(written) if written.isdecimal() else NO_TERM
