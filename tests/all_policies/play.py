"""Playing worlds: steps are drawn from a seed, played, and shortened when a world breaks a rule.

A world is a seed and a list of (step, number). Each step draws from a generator that is seeded with its number, so what
is left of a list still means the same after other steps were taken out.
"""

from __future__ import annotations

from collections import Counter
from random import Random

from tests.all_policies import cluster_world, engine_world
from tests.all_policies.checkpoint import Followers, check_cluster, check_engine
from tests.all_policies.cluster_world import ClusterWorld
from tests.all_policies.engine_world import EngineWorld
from tests.all_policies.surroundings import DIALECTS, MAKERS
from tests.all_policies.violation import BrokenRuleError

MOST_STEPS = 300
CHECK_EVERY = 50

Move = tuple[str, int]
"""A step by name, and the number that seeds it."""


class BrokenWorldError(AssertionError):
    """A world that broke a rule: its seed, the steps up to there, and the violation."""

    def __init__(
        self, seed: int, moves: list[Move], violation: Exception, story: list[str], counts: Counter[str]
    ) -> None:
        super().__init__(f"world {seed}, step {len(moves)}: {violation}")
        self.seed = seed
        self.moves = moves
        self.violation = violation
        self.story = story
        self.counts = counts

    @property
    def rule(self) -> str:
        return rule_of(self.violation)

    @property
    def found_by_followers(self) -> bool:
        """Whether the rule is one of those that are looked at now and then."""
        return self.rule.startswith(("audit", "replay", "snapshot", "restart", "ReplayError"))


def rule_of(error: Exception) -> str:
    """What a world is shrunk by: the rule that was broken, or the type of an error of the engine itself."""
    return error.rule if isinstance(error, BrokenRuleError) else type(error).__name__


def dialects_of(seed: int) -> frozenset[str]:
    """The dialects of a world, beside nodes."""
    rng = Random(seed)
    return frozenset(name for name in DIALECTS if rng.random() < 0.75)


def of_engine(seed: int) -> bool:
    """Every third world is one of the engine by itself."""
    return seed % 3 == 0


def drawn(seed: int, most: int = MOST_STEPS) -> list[Move]:
    """The steps of a world: its first objects, then what happens there."""
    rng = Random(seed)
    steps = ["begin random_node"] * 4
    for name in sorted(dialects_of(seed)):
        for maker, count in DIALECTS[name]:
            steps.extend([f"begin {maker.__name__}"] * count)
    known = engine_world.STEPS if of_engine(seed) else cluster_world.STEPS
    weights = [weight for weight, _ in known.values()]
    steps += rng.choices(list(known), weights, k=rng.randrange(most // 3, most + 1) - len(steps))
    return [(step, rng.randrange(2**32)) for step in steps]


def played(seed: int, moves: list[Move], check_every: int = CHECK_EVERY) -> Counter[str]:
    """Play the world to its end; returns what happened. Raises ``BrokenWorldError``.

    ``check_every`` so many steps, and at the end, the journal and its followers are checked; 0: never.
    """
    done = 0
    made = EngineWorld if of_engine(seed) else ClusterWorld
    world = made(dialects_of(seed))
    followers = Followers()
    try:
        for done, (name, number) in enumerate(moves, 1):
            world.story.append(f"--- {done} {name}")
            _take_step(world, name, Random(number))
            if check_every and (done % check_every == 0 or done == len(moves)):
                _check(world, followers)
    except Exception as error:
        raise BrokenWorldError(seed, moves[:done], error, world.story, world.counts) from error
    world.counts["steps"] += len(moves)
    return world.counts


def _take_step(world: ClusterWorld | EngineWorld, name: str, rng: Random) -> None:
    if name in MAKERS:
        world.change(MAKERS[name](rng))
    elif isinstance(world, EngineWorld):
        engine_world.STEPS[name][1](world, rng)
    else:
        cluster_world.STEPS[name][1](world, rng)
    world.after(name)


def _check(world: ClusterWorld | EngineWorld, followers: Followers) -> None:
    if isinstance(world, EngineWorld):
        check_engine(world, followers)
    else:
        check_cluster(world, followers)


def shrunk(broken: BrokenWorldError, tries: int = 400) -> BrokenWorldError:
    """A shorter list of steps that breaks the same rule: halves, quarters and so on are left out, then single steps."""
    best = broken
    size = max(1, len(best.moves) // 2)
    while tries > 0:
        start, shorter = 0, False
        while start < len(best.moves) and tries > 0:
            tries -= 1
            found = _broken(best, [*best.moves[:start], *best.moves[start + size :]])
            if found is None:
                start += size
            else:
                best, shorter = found, True
        if size == 1 and not shorter:
            return best
        size = max(1, size // 2)
    return best


def _broken(broken: BrokenWorldError, moves: list[Move]) -> BrokenWorldError | None:
    """The world of these steps if it breaks the same rule."""
    try:
        played(broken.seed, moves, len(moves) if broken.found_by_followers else 0)
    except BrokenWorldError as error:
        return error if error.rule == broken.rule else None
    return None
