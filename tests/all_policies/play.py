"""Playing worlds: steps are drawn from a seed, played, and shortened when a world breaks a rule.

A world is a seed and a list of (step, number). Each step draws from a generator that is seeded with its number, so what
is left of a list still means the same after other steps were taken out.
"""

from __future__ import annotations

from collections import Counter
from random import Random

from tests.all_policies.checkpoint import Followers, check_cluster
from tests.all_policies.cluster_world import BEGINNINGS, STEPS, ClusterWorld, dialects_of
from tests.all_policies.surroundings import DIALECTS, Maker, random_node
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


def rule_of(error: Exception) -> str:
    """What a world is shrunk by: the rule that was broken, or the type of an error of the engine itself."""
    return error.rule if isinstance(error, BrokenRuleError) else type(error).__name__


def drawn(seed: int, most: int = MOST_STEPS) -> list[Move]:
    """The steps of a world: its first objects, then what happens there."""
    rng = Random(seed)
    begun: list[Maker] = [random_node] * 4
    for name in sorted(dialects_of(seed)):
        for maker, count in DIALECTS[name]:
            begun.extend([maker] * count)
    names, weights = list(STEPS), [weight for weight, _ in STEPS.values()]
    steps = [f"begin {maker.__name__}" for maker in begun]
    steps += rng.choices(names, weights, k=rng.randrange(most // 3, most + 1) - len(steps))
    return [(step, rng.randrange(2**32)) for step in steps]


def played(seed: int, moves: list[Move], check_every: int = CHECK_EVERY) -> Counter[str]:
    """Play the world to its end; returns what happened. Raises ``BrokenWorldError``."""
    done = 0
    story: list[str] = []
    counts: Counter[str] = Counter()
    try:
        world = ClusterWorld(seed)
        story, counts = world.story, world.counts
        followers = Followers()
        for done, (name, number) in enumerate(moves, 1):
            story.append(f"--- {done} {name}")
            step = BEGINNINGS[name] if name in BEGINNINGS else STEPS[name][1]
            step(world, Random(number))
            world.after(name)
            if done % check_every == 0 or done == len(moves):
                check_cluster(world, followers)
    except Exception as error:
        raise BrokenWorldError(seed, moves[:done], error, story, counts) from error
    counts["steps"] += len(moves)
    return counts


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
    try:
        played(broken.seed, moves, 1)
    except BrokenWorldError as error:
        return error if error.rule == broken.rule else None
    return None
