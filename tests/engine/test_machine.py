"""The engine against its reference model, in short Hypothesis runs that shrink. ``tests.soak`` is the long run."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tests.engine.machine import HOSTS, PROJECTS, TEAMS, Machine

small = st.integers(1, 3)
choice = st.integers(0, 30)
room = st.sampled_from(
    [("hosts", name) for name in HOSTS]
    + [("teams", path) for path in TEAMS]
    + [("projects", path) for path in PROJECTS[:2]]
)


class EngineMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.machine = Machine()

    @precondition(lambda self: len(self.machine.engine.state.claims) < 12)
    @rule(
        team=choice,
        project=choice,
        cpu=small,
        gpu=st.integers(0, 1),
        priority=st.integers(0, 3),
        preemptible=st.booleans(),
    )
    def decide_new(self, team: int, project: int, cpu: int, gpu: int, priority: int, preemptible: bool) -> None:
        self.machine.decide_new(team, project, cpu, gpu, priority, preemptible)

    @rule(at=choice)
    def decide_again(self, at: int) -> None:
        self.machine.decide_again(at)

    @precondition(lambda self: len(self.machine.engine.state.claims) < 12)
    @rule(team=choice, project=choice, cpu=small, gpu=st.integers(0, 1), priority=st.integers(0, 3))
    def try_only(self, team: int, project: int, cpu: int, gpu: int, priority: int) -> None:
        self.machine.try_only(team, project, cpu, gpu, priority)

    @precondition(lambda self: len(self.machine.engine.state.claims) < 12)
    @rule(sizes=st.lists(st.integers(1, 2), min_size=2, max_size=3), priority=st.integers(0, 3))
    def decide_group(self, sizes: list[int], priority: int) -> None:
        self.machine.decide_group(sizes, priority)

    @rule(at=choice)
    def release(self, at: int) -> None:
        self.machine.release(at)

    @rule(at=choice)
    def advance(self, at: int) -> None:
        self.machine.advance(at)

    @rule(at=choice)
    def give_up(self, at: int) -> None:
        self.machine.give_up(at)

    @rule(at=choice, cpu=st.integers(1, 4))
    def resize(self, at: int, cpu: int) -> None:
        self.machine.resize(at, cpu)

    @rule(where=room, cpu=st.integers(1, 8), gpu=st.integers(0, 4))
    def set_room(self, where: tuple[str, str], cpu: int, gpu: int) -> None:
        self.machine.set_room(where[0], where[1], cpu, gpu)

    @rule()
    def replay(self) -> None:
        self.machine.check_replica()

    @invariant()
    def agrees(self) -> None:
        self.machine.check()

    def teardown(self) -> None:
        self.machine.check_replica()


TestEngineMachine = EngineMachine.TestCase
TestEngineMachine.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
