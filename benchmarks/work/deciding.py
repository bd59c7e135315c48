"""Decide and release through the engine: transaction, decision and journal record included.

Claims are made before the clock starts. The journal is emptied every thousand records, as whoever writes it down does:
sealed (encoded and chained) or just dropped. ``kept`` is for a caller that never empties it.
"""

from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from statistics import median

from benchmarks.timing import RUNS, collector, rate, rate_once, say
from benchmarks.work.tree import LEAVES, TreePolicy, cost_of
from bursar.engine.engine import Engine
from bursar.ledger.claims import Claim, ClaimSpec
from bursar.policies.results import Setting

DROPPED, SEALED, KEPT = "dropped", "sealed", "kept"
_EMPTY_EVERY = 1_000
SMALL = (7, 1_000)  # leaves (with the accounts above them 10) and standing claims
_SHAPES = 10
_PAGE = 4096


def engine_over(leaves: int, policies: int = 1, own_bindings: bool = False) -> Engine:
    """An engine with that many trees of its own over the same namespaces."""
    trees = [TreePolicy(f"tree{number}", leaves, own_bindings) for number in range(policies)]
    engine = Engine(trees)
    engine.configure([Setting(f"{tree.name}.Tree", "all", None) for tree in trees])
    engine.journal.records.clear()
    return engine


def new_claims(leaves: int) -> Iterator[Claim]:
    """Claims without end, each with a uid and a name of its own, skipping from leaf to leaf; a leaf's are alike."""
    specs = [ClaimSpec(cost_of(shape)) for shape in range(_SHAPES)]
    number = 0
    while True:
        uid = f"{number:08x}-3c1e-4f5a-9d2b-{number * 2654435761 % 2**48:012x}"
        leaf = number * 7919 % leaves
        yield Claim(uid, specs[leaf % _SHAPES], number, str(leaf), f"worker-{number:07d}-x7k2p")
        number += 1


def run_pairs(engine: Engine, claims: list[Claim]) -> int:
    decide = engine.decide
    release = engine.release
    for claim in claims:
        decide(claim, 1)
        release(claim.uid, 2)
    return len(claims)


def run_emptying(engine: Engine, claims: list[Claim], records: str) -> int:
    """Pairs, with the journal emptied now and then; two records a pair."""
    step = len(claims) if records == KEPT else _EMPTY_EVERY // 2
    for start in range(0, len(claims), step):
        run_pairs(engine, claims[start : start + step])
        if records == SEALED:
            engine.journal.take()
        elif records == DROPPED:
            engine.journal.records.clear()
    return len(claims)


def pairs(count: int, with_collector: bool, records: str = DROPPED) -> dict[str, float]:
    """Pairs a second on the tree of the arithmetic."""
    return {"pairs": pair_rate(engine_over(LEAVES), new_claims(LEAVES), count, with_collector, records)}


def pair_rate(
    engine: Engine, supply: Iterator[Claim], count: int, with_collector: bool, records: str = DROPPED
) -> float:
    batches = [list(islice(supply, count)) for _ in range(RUNS)]

    def run() -> int:
        engine.journal.records.clear()
        return run_emptying(engine, batches.pop(), records)

    with collector(with_collector):
        return rate(run)


def growth(leaves: int, claims: int, count: int, with_collector: bool) -> dict[str, float]:
    """Microseconds a pair in a small ledger, and how many more in one of so many leaves and standing claims.

    Both ledgers are in one process and run in turn, so that a machine that gets busy slows both: the figure is the
    median of the differences.
    """
    small, large = _standing(*SMALL), _standing(leaves, claims)
    base: list[float] = []
    added: list[float] = []
    with collector(with_collector):
        for _ in range(RUNS):
            took = [1e6 / rate_once(_batch(ledger, count)) for ledger in (small, large)]
            base.append(took[0])
            added.append(took[1] - took[0])
    return {"base": median(base), "added": median(added)}


def _standing(leaves: int, claims: int) -> tuple[Engine, Iterator[Claim]]:
    engine = engine_over(leaves)
    supply = new_claims(leaves)
    admit(engine, supply, claims)
    return engine, supply


def _batch(ledger: tuple[Engine, Iterator[Claim]], count: int) -> Callable[[], int]:
    engine, supply = ledger
    claims = list(islice(supply, count))
    return lambda: run_emptying(engine, claims, DROPPED)


def admit(engine: Engine, supply: Iterator[Claim], count: int) -> None:
    """Decide so many claims, which then stand; the journal forgets them. The collector finds nothing: it is off."""
    with collector(False):
        for done in range(count):
            decision = engine.decide(next(supply), 1)
            assert decision.admitted
            if done % _EMPTY_EVERY == 0:
                engine.journal.records.clear()
            if done and done % 250_000 == 0:
                say(f"   {done:,} of {count:,} claims stand")
    engine.journal.records.clear()


def memory(claims: int, own_bindings: bool) -> dict[str, float]:
    """Resident bytes of so many claims, each bound in three policies, with its last decision."""
    engine = engine_over(LEAVES, policies=3, own_bindings=own_bindings)
    supply = new_claims(LEAVES)
    before = resident()
    admit(engine, supply, claims)
    after = resident()
    assert len(engine.state.claims) == claims
    return {"total": after, "each": (after - before) / claims}


def resident(process: int | str = "self") -> int:
    """Resident set of a process, by default this one, in bytes."""
    return int(Path(f"/proc/{process}/statm").read_text().split()[1]) * _PAGE
