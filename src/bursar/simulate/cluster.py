"""The cluster of a simulation: the embedded one, with jobs in place of pods that are objects.

Quotas and nodes are ordinary objects. The pods of a job exist as claims only: one manifest of each shape and tenant
goes through admission, and all pods of that shape and tenant make the claim that comes of it. Their life is the
embedded cluster's: they start where they were placed and run for their time. An evicted job is submitted again at once,
as its controller would do, and begins again or goes on from where it was. The members of a gang are evicted together.

Nothing is written about pods, so labels that only inform people do not exist here.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping
from functools import cached_property
from heapq import heappop, heappush
from typing import Final, cast

from bursar.engine.decision import Decision
from bursar.ledger.claims import Claim, ClaimSpec
from bursar.objects.kinds import NODE, POD
from bursar.objects.manifests import Document
from bursar.objects.pods import GROUP_LABEL, GROUP_SIZE_LABEL
from bursar.policies.plugin import Registry
from bursar.policies.results import Output
from bursar.quantity import MILLI as MILLI_UNITS
from bursar.quantity import parse
from bursar.sim.cluster import Cluster
from bursar.simulate.demand import GPU, JobDemand

ARRIVED: Final = 0
STARTED: Final = 1
EVICTED: Final = 2
ENDED: Final = 3

Event = tuple[int, int, int]
"""(time, what happened, position of the job). A run is its events: every figure follows from them."""


class JobAttempt:
    """A job from its submission until it ends or is evicted."""

    __slots__ = ("began", "claims", "job", "over", "places")

    def __init__(self, job: int) -> None:
        self.job = job
        self.claims: list[Claim] = []
        self.places: list[str] = []  # of the members that were told to start
        self.began = -1  # when the last one was
        self.over = False


class VirtualCluster(Cluster):
    """Runs the jobs of a demand; ``step`` goes on to the next moment at which something happens."""

    def __init__(
        self,
        demand: JobDemand,
        marks: Mapping[str, Mapping[str, str]],
        *,
        resumes: bool = False,
        registry: Registry | None = None,
        start: int = 0,
    ) -> None:
        """``marks``: labels of each tenant's pods. ``resumes``: an evicted job goes on from where it was."""
        super().__init__(registry, start)
        self.demand = demand
        self.log: list[Event] = []
        self.placed: dict[str, int] = {}  # by node: thousandths of a GPU in use
        self.used = 0  # the same of all nodes
        self.last_decided: list[Claim] = []
        self._marks = marks
        self._resumes = resumes
        self._specs: dict[tuple[int, str], ClaimSpec] = {}
        self._attempts: dict[str, JobAttempt] = {}  # by uid of their claims
        self._left: dict[int, int] = {}  # by job: what an evicted one has yet to run
        self._ends: list[tuple[int, int, JobAttempt]] = []
        self._next = 0  # the job that arrives next
        self._uids = 0
        self._gone: deque[JobAttempt] = deque()  # evicted, to be submitted again
        self._statuses: dict[tuple[str, str, str], Output] = {}  # the last ones, not written yet

    # Answers

    @property
    def arrived(self) -> int:
        """How many jobs have arrived."""
        return self._next

    @cached_property
    def tenants(self) -> frozenset[str]:
        return frozenset(self.demand.tenants)

    @cached_property
    def node_gpus(self) -> dict[str, int]:
        """Thousandths of a GPU that each node has."""
        found: dict[str, int] = {}
        for stored in self.objects.all(NODE.name):
            amount = ((stored.body.get("status") or {}).get("allocatable") or {}).get(GPU)
            if amount is not None:
                found[stored.key] = parse(str(amount), MILLI_UNITS)
        return found

    @cached_property
    def pod_sizes(self) -> Counter[int]:
        """Thousandths of a GPU that a pod takes, of all jobs that take some, by how many pods there are."""
        shapes = self.demand.shapes
        sizes = Counter(shapes[job.shape].gpus for job in self.demand.jobs)
        del sizes[0]
        return sizes

    def write_statuses(self) -> None:
        """Bring the statuses of objects up to date."""
        for output in self._statuses.values():
            super().write(output)
        self._statuses.clear()

    # Time

    @property
    def upcoming(self) -> int | None:
        """When something happens next, if only jobs and policies act; None: never."""
        moments = [self.engine.next_due(self.now())]
        if self._next < len(self.demand.jobs):
            moments.append(self.demand.jobs[self._next].arrives)
        if self._ends:
            moments.append(self._ends[0][0])
        return min((moment for moment in moments if moment is not None), default=None)

    def step(self, moment: int) -> None:
        """Let everything happen that is due at that moment, and settle."""
        self._clock.now = max(moment, self._clock.now)
        now = self._clock.now
        while self._ends and self._ends[0][0] <= now:
            attempt = heappop(self._ends)[2]
            if not attempt.over:
                self._end(attempt)
        jobs = self.demand.jobs
        while self._next < len(jobs) and jobs[self._next].arrives <= now:
            self.log.append((now, ARRIVED, self._next))
            self.submit(self._next)
            self._next += 1
        self.settle()

    def settle(self) -> None:
        while True:
            super().settle()
            if not self._gone:
                return
            while self._gone:
                attempt = self._gone.popleft()
                for claim in attempt.claims:
                    del self._attempts[claim.uid]
                    self.controller.gone(claim.uid)
                self.submit(attempt.job)

    # Jobs

    def submit(self, position: int) -> None:
        """The pods of the job exist from now on, and wait."""
        job = self.demand.jobs[position]
        pods = self.demand.shapes[job.shape].pods
        attempt = JobAttempt(position)
        self.last_decided = attempt.claims
        spec = self._spec(position) if pods == 1 else self._gang_spec(position)
        for member in range(pods):
            self._uids += 1
            name = job.name if pods == 1 else f"{job.name}-{member}"
            claim = Claim(f"{job.tenant}/{name}#{self._uids}", spec, self.now(), job.tenant, name)
            attempt.claims.append(claim)
            self._attempts[claim.uid] = attempt
            self.controller.enter(claim)

    def _spec(self, position: int) -> ClaimSpec:
        job = self.demand.jobs[position]
        known = self._specs.get((job.shape, job.tenant))
        if known is None:
            known = self._specs[job.shape, job.tenant] = self._admitted(position, {})
        return known

    def _gang_spec(self, position: int) -> ClaimSpec:
        """Gangs have a name, so no two of them share a spec."""
        job = self.demand.jobs[position]
        size = self.demand.shapes[job.shape].pods
        return self._admitted(position, {GROUP_LABEL: job.name, GROUP_SIZE_LABEL: str(size)})

    def _admitted(self, position: int, labels: Mapping[str, str]) -> ClaimSpec:
        """The claim of a pod of that job, as admission leaves it."""
        job = self.demand.jobs[position]
        shape = self.demand.shapes[job.shape]
        marks = {**self._marks.get(job.tenant, {}), **labels}
        change = self.staged([Document("", 0, shape.body(job.tenant, job.name, marks))])[0]
        return cast("Claim", self.controller.read(change)).spec

    def _end(self, attempt: JobAttempt) -> None:
        self.log.append((self.now(), ENDED, attempt.job))
        self._left.pop(attempt.job, None)
        self._close(attempt)
        for claim in attempt.claims:
            del self._attempts[claim.uid]
            self.controller.gone(claim.uid)

    def _close(self, attempt: JobAttempt) -> None:
        """It takes no GPUs any more."""
        attempt.over = True
        gpus = self.demand.shapes[self.demand.jobs[attempt.job].shape].gpus
        if gpus:
            for place in attempt.places:
                self.placed[place] -= gpus
                self.used -= gpus

    # Ports

    def start(self, claim: Claim) -> None:
        attempt = self._attempts.get(claim.uid)
        if attempt is None or attempt.over:
            return
        job = self.demand.jobs[attempt.job]
        attempt.places.append(claim.place)
        gpus = self.demand.shapes[job.shape].gpus
        if gpus:
            self.placed[claim.place] = self.placed.get(claim.place, 0) + gpus
            self.used += gpus
        self._pods.seen.append(lambda: self.controller.running(claim.uid))
        if len(attempt.places) == len(attempt.claims):
            now = attempt.began = self.now()
            self.log.append((now, STARTED, attempt.job))
            if job.runs is not None:
                self._uids += 1
                heappush(self._ends, (now + self._left.get(attempt.job, job.runs), self._uids, attempt))

    def evict(self, claim: Claim, decision: Decision) -> None:
        attempt = self._attempts.get(claim.uid)
        if attempt is None or attempt.over:
            return
        if attempt.began >= 0:
            self.log.append((self.now(), EVICTED, attempt.job))
            job = self.demand.jobs[attempt.job]
            if self._resumes and job.runs is not None:
                left = self._left.get(attempt.job, job.runs)
                self._left[attempt.job] = left - (self.now() - attempt.began)
        self._close(attempt)
        self._gone.append(attempt)

    def write(self, output: Output) -> None:
        """Objects of policies are read back at once; only the last status of each object is of interest, and later."""
        if output.part == "object":
            super().write(output)
        elif output.kind != POD.name:
            self._statuses[output.kind, output.key, output.part] = output

    def event(self, kind: str, key: str, type: str, reason: str, message: str) -> None:  # noqa: A002 as Kubernetes says
        """Events are for people who watch."""
