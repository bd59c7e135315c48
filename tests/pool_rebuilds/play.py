"""Playing histories: steps are drawn from a seed, played, compared, and shortened when a rebuilt cluster differs."""

from __future__ import annotations

from collections import Counter
from random import Random

from tests.pool_rebuilds.history import History, Move, drawn
from tests.pool_rebuilds.rebuild import DifferenceError, comes_to_rest, compare

COMPARE_EVERY = 12


class BrokenHistoryError(AssertionError):
    """A history that differs from what is rebuilt, or that ends in an error of Bursar itself."""

    def __init__(self, seed: int, moves: list[Move], error: Exception, story: list[str]) -> None:
        super().__init__(f"history {seed}, step {len(moves)}: {type(error).__name__}: {error}")
        self.seed = seed
        self.moves = moves
        self.what = error.what if isinstance(error, DifferenceError) else type(error).__name__
        self.story = story


def played(seed: int, moves: list[Move] | None = None, every: int = COMPARE_EVERY) -> Counter[str]:
    """Play the history to its end; returns what happened. Raises ``BrokenHistoryError``.

    After ``every`` so many steps and at the end the cluster comes to rest and is compared with a rebuilt one.
    """
    moves = drawn(seed) if moves is None else moves
    history = History()
    done = 0
    try:
        for done, move in enumerate(moves, 1):
            history.story.append(f"--- {done} {move}")
            history.take(move)
            if done % every == 0 or done == len(moves):
                _compare(history, Random(f"{seed} {move}"))
    except Exception as error:
        raise BrokenHistoryError(seed, moves[:done], error, history.story) from error
    history.counts["histories"] += 1
    return history.counts


def _compare(history: History, rng: Random) -> None:
    if comes_to_rest(history.cluster):
        compare(history.cluster, rng)
        history.counts["compared"] += 1
    else:
        history.counts["no rest"] += 1


def shrunk(broken: BrokenHistoryError, tries: int = 200) -> BrokenHistoryError:
    """A shorter list of steps that differs in the same way: runs of steps are left out, then single ones."""
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


def _broken(broken: BrokenHistoryError, moves: list[Move]) -> BrokenHistoryError | None:
    """The history of these steps if it differs in the same way at its end."""
    try:
        played(broken.seed, moves, max(1, len(moves)))
    except BrokenHistoryError as error:
        return error if error.what == broken.what else None
    return None
