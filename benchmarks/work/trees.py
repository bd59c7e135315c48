"""Tree operations at size: a tree of four levels and three resources whose leaves are full and whose root is borrowed.

Every figure is the median time of one call of ``QuotaManager``, in microseconds of processor time as everywhere here
(see ``benchmarks.timing``): a call waits for nothing. Each call is timed by itself, so a figure includes one reading of
the clock, which is not taken off.
"""

import random
import time
from collections.abc import Callable
from statistics import median
from typing import ParamSpec, TypeVar

from benchmarks.timing import collector
from bursar.policies.trees import NORMAL, AllocationResponse, ConsumerInfo, QuotaManager, Token, consumer_from_plain
from tests.policies.trees.reference_model import Node, ReferenceModel, Wish

P = ParamSpec("P")
R = TypeVar("R")

RESOURCES = ("cpu", "memory", "nvidia.com/gpu")
OWNERS = 5  # GPUs, and owners of one each, of a leaf
BORROWERS = 15  # for each leaf
_PLENTY = 10**9
_SPARE = 20  # a share of this of the borrowed quota stays free at first


def shapes(count: int) -> list[dict[str, int]]:
    """Requests that all differ, of one GPU each."""
    return [{"cpu": 1 + i % 8, "memory": 1 + i, "nvidia.com/gpu": 1} for i in range(count)]


def nodes(leaves: int) -> dict[str, tuple[str, int]]:
    """(parent, GPUs) by node: ten below the root, at most ten below each of those, and the leaves.

    ``leaves`` is a multiple of ten. Only the root has more than the leaves below it need.
    """
    found = {"root": ("", leaves * (OWNERS + BORROWERS))}
    lowers = min(100, leaves)
    for upper in range(10):
        found[f"u{upper}"] = ("root", leaves // 10 * OWNERS)
    for lower in range(lowers):
        found[f"l{lower}"] = (f"u{lower * 10 // lowers}", leaves // lowers * OWNERS)
    for leaf in range(leaves):
        found[f"leaf{leaf}"] = (f"l{leaf * lowers // leaves}", OWNERS)
    return found


def quota(gpus: int) -> dict[str, int]:
    return {"cpu": _PLENTY, "memory": _PLENTY, "nvidia.com/gpu": gpus}


def document(name: str, leaves: int) -> dict[str, object]:
    listed = {node: {"parent": parent, "quota": quota(gpus)} for node, (parent, gpus) in nodes(leaves).items()}
    spec = {"resourceNames": list(RESOURCES), "nodes": listed}
    return {"kind": "QuotaTree", "metadata": {"name": name}, "spec": spec}


def consumer(name: str, leaf: int, request: dict[str, int], trees: tuple[str, ...]) -> ConsumerInfo:
    rows = [{"treeName": tree, "groupID": f"leaf{leaf}", "request": request} for tree in trees]
    return consumer_from_plain({"kind": "Consumer", "spec": {"id": name, "trees": rows}})


class Bench:
    """A manager with every leaf owned, and most of what can be borrowed taken at the root.

    The first fifth of the leaves is *quiet*: their last GPU is free, and nobody borrows in their name.
    """

    def __init__(self, leaves: int, shape_count: int) -> None:
        self.leaves = leaves
        self.quiet = leaves // 5
        self.asked = shapes(shape_count)
        self.random = random.Random(7)
        self.count = 0
        self.manager = QuotaManager()
        self.manager.add_tree_from_struct(document("T", leaves))
        self.manager.set_mode(NORMAL)
        for leaf in range(leaves):
            for number in range(OWNERS - (leaf < self.quiet)):
                self.add(f"own{leaf}-{number}", leaf)
        for _ in range(leaves * BORROWERS * (_SPARE - 1) // _SPARE):
            name = self.know_borrower()
            assert self.manager.allocate("T", name).places == (("T", "root"),)

    def add(self, name: str, leaf: int) -> None:
        self.know(name, leaf)
        assert self.manager.allocate("T", name).allocated

    def know(self, name: str, leaf: int, trees: tuple[str, ...] = ("T",)) -> None:
        self.manager.add_consumer(consumer(name, leaf, self.asked[self.count % len(self.asked)], trees))
        self.count += 1

    def know_borrower(self) -> str:
        name = f"borrower{self.count}"
        self.know(name, self.random.randrange(self.quiet, self.leaves))
        return name

    def fill(self) -> None:
        """Take all that is left to borrow."""
        while self.manager.allocate("T", self.know_borrower()).allocated:
            pass


def timed(call: Callable[P, R], *arguments: P.args, **named: P.kwargs) -> tuple[float, R]:
    started = time.process_time()
    result = call(*arguments, **named)
    return (time.process_time() - started) * 1e6, result


def operations(leaves: int, shape_count: int, rounds: int) -> dict[str, float]:
    with collector(enabled=False):
        bench = Bench(leaves, shape_count)
        found = {"consumers": float(bench.count), "borrow": _borrow(bench, rounds), "release": _release(bench, rounds)}
        return found | {"reclaim": _reclaim(bench, rounds), "refresh": _refresh(bench)}


def _borrow(bench: Bench, rounds: int) -> float:
    """A newcomer whose leaf is full, and everything up to the root: it borrows there."""
    times = []
    for _ in range(rounds):
        took, response = timed(bench.manager.allocate, "T", bench.know_borrower())
        assert response.places == (("T", "root"),)
        times.append(took)
    return median(times)


def _release(bench: Bench, rounds: int) -> float:
    """An owner leaves; somebody who borrows at the root comes down three levels in its place."""
    step = max(1, (bench.leaves - bench.quiet) // rounds)
    times = []
    for leaf in range(bench.quiet, bench.leaves, step)[:rounds]:
        took, released = timed(bench.manager.deallocate, "T", f"own{leaf}-0")
        assert released
        times.append(took)
    return median(times)


def _reclaim(bench: Bench, rounds: int) -> float:
    """Everything is lent; an owner whose leaf has room takes it back from a borrower."""
    bench.fill()
    times = []
    for leaf in range(min(rounds, bench.quiet)):
        bench.know(f"back{leaf}", leaf)
        took, response = timed(bench.manager.allocate, "T", f"back{leaf}")
        assert len(response.preempted) == 1
        times.append(took)
    return median(times)


def _refresh(bench: Bench) -> float:
    """The quota of one node changes, and everybody is looked at."""
    times = []
    for number in range(5):
        cache = bench.manager.get_tree_cache("T")
        cache.add_node_spec("u0", {"parent": "root", "quota": quota(bench.leaves // 10 * OWNERS - 1 - number)})
        times.append(timed(bench.manager.update_tree, "T")[0])
    return median(times)


def tries(leaves: int, shape_count: int, rounds: int) -> dict[str, float]:
    """Try and undo over a forest of two trees, each with all its consumers."""
    with collector(enabled=False):
        bench = Bench(leaves, shape_count)
        bench.manager.add_tree_from_struct(document("U", leaves))
        bench.manager.add_forest("F")
        for tree in ("T", "U"):
            bench.manager.add_tree_to_forest("F", tree)
        times = []
        for number in range(rounds):
            name = f"try{number}"
            bench.know(name, bench.random.randrange(leaves), ("T", "U"))
            took, response = timed(_try_and_undo, bench.manager, name)
            assert response.allocated
            times.append(took)
        return {"tries": median(times)}


def _try_and_undo(manager: QuotaManager, name: str) -> AllocationResponse:
    response = manager.try_allocate_forest("F", name)
    assert isinstance(response.token, Token)
    manager.undo_allocate_forest(response.token)
    return response


def reference(leaves: int, rounds: int) -> dict[str, float]:
    """The same calls on the reference model, which rescans and copies, at a size that it can bear."""
    dice = random.Random(7)
    naive = ReferenceModel()
    naive.add_tree("T", RESOURCES, {n: Node(parent, False, quota(gpus)) for n, (parent, gpus) in nodes(leaves).items()})
    for number in range(leaves * (OWNERS + BORROWERS)):
        leaf = number % leaves
        name = f"c{number}"
        naive.now.wishes[name] = {"T": Wish(f"leaf{leaf}", shapes(64)[number % 64])}
        if number < leaves * (OWNERS + BORROWERS - 1):
            naive.sit("T", name, f"leaf{leaf}" if number < leaves * OWNERS else "root", "")
    newcomers = [name for name in naive.now.wishes if ("T", name) not in naive.now.seats]
    borrow = [timed(naive.allocate, name, ["T"], "")[0] for name in dice.sample(newcomers, rounds)]
    release = [timed(naive.release, f"c{number}", ["T"])[0] for number in range(rounds)]
    return {"borrow": median(borrow), "release": median(release)}
