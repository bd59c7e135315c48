from pathlib import Path

import pytest

from bursar.engine.decision import Decision
from bursar.engine.engine import Engine
from bursar.server.time_travel import MomentError, at_record
from bursar.store.schema import DamagedStoreError, StoreError
from bursar.store.snapshots import newest, packed, restore, take
from bursar.store.store import Batch, ObjectWrite, Store
from bursar.store.upkeep import prune
from tests.engine.machine import Machine, new_engine
from tests.store.world import filled, gone, lines_of, lived, objects_at, put


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "bursar.db"


def decisions(engine: Engine) -> dict[str, list[object]]:
    found = {uid: claim.decision for uid, claim in engine.state.claims.items()}
    return {uid: [*d.record(), d.seq] for uid, d in found.items() if isinstance(d, Decision)}


def assert_same(copy: Engine, machine: Machine) -> None:
    engine = machine.engine
    assert (copy.version, copy.digest) == (engine.version, engine.digest)
    assert copy.state.plain() == engine.state.plain()
    assert copy.journal.head == engine.journal.head


@pytest.mark.parametrize("seed", range(12))
def test_a_snapshot_gives_the_state_of_the_whole_journal(path: Path, seed: int) -> None:
    machine = lived(seed, 120)
    lines = machine.engine.journal.take()
    cut = len(lines) * (seed + 1) // 13
    with filled(path, lines[:cut]) as store:
        first = take(store)
        assert first.seq == cut
        store.commit(Batch(lines[cut:]))
        from_snapshot, from_start, from_second = new_engine(), new_engine(), new_engine()
        assert restore(store, from_snapshot) == len(lines) - cut
        from_start.replay(lines)
        take(store)  # from the first one on
        assert restore(store, from_second) == 0
        for copy in (from_snapshot, from_start, from_second):
            assert_same(copy, machine)
            assert decisions(copy) == decisions(from_start)
        for copy in (from_snapshot, from_start, from_second):
            for uid, claim in sorted(copy.state.claims.items()):
                if claim.state == 0:
                    copy.decide(claim, 10**6)
                else:
                    copy.release(uid, 10**6)
        assert from_snapshot.state.plain() == from_start.state.plain() == from_second.state.plain()
        assert from_snapshot.journal.take() == from_start.journal.take() == from_second.journal.take()


@pytest.mark.parametrize("seed", range(6))
def test_a_replay_in_pieces_recalls_the_same_decisions(seed: int) -> None:
    lines = lines_of(seed, 120)
    whole, single = new_engine(), new_engine()
    whole.replay(lines)
    for line in lines:
        single.replay([line])
    assert decisions(single) == decisions(whole)
    assert len(decisions(whole)) == len(whole.state.claims)


@pytest.mark.parametrize("seed", [3, 4])
def test_any_state_of_the_past_comes_back(path: Path, seed: int) -> None:
    lines = lines_of(seed, 80)
    with filled(path, lines[:40]) as store:
        take(store)
        store.commit(Batch(lines[40:]))
        for seq in (0, 1, 20, 39, 40, 41, 60, len(lines)):
            copy, plain = new_engine(), new_engine()
            restore(store, copy, seq)
            plain.replay(lines[:seq])
            assert copy.state.plain() == plain.state.plain()
            assert copy.version == seq


def test_a_restored_engine_goes_on(path: Path) -> None:
    machine = lived(5, 80)
    lines = machine.engine.journal.take()
    with filled(path, lines) as store:
        take(store)
        copy = new_engine()
        restore(store, copy)
        for uid in sorted(copy.state.claims):
            copy.release(uid, 10**6)
        store.commit(Batch(copy.journal.take()))
        again = new_engine()
        restore(store, again)
        assert not again.state.claims
        assert again.digest == copy.digest


def test_what_a_decision_and_its_claim_both_name_is_once_in_memory(path: Path) -> None:
    lines = lines_of(3, 120)
    with filled(path, lines[:-40]) as store:
        take(store)
        store.commit(Batch(lines[-40:]))  # some are read from the snapshot, some from records
        copy = new_engine()
        restore(store, copy)
    decided = [(claim, d) for claim in copy.state.claims.values() if isinstance(d := claim.decision, Decision)]
    assert any(decision.place for _, decision in decided)
    for claim, decision in decided:
        assert decision.uid is claim.uid
        assert decision.place is claim.place or decision.place != claim.place


class TestDamage:
    def test_an_altered_journal_is_refused_with_the_record(self, path: Path) -> None:
        lines = lines_of(6)
        lines[20] = lines[20].replace(b'"cpu":', b'"gpu":', 1)
        with (
            filled(path, lines) as store,
            pytest.raises(DamagedStoreError, match=r"journal line 21: .*newest backup"),
        ):
            restore(store, new_engine())

    @pytest.mark.parametrize(
        ("old", "new"),
        [(b'"cpu":', b'"gpu":'), (b'["open"', b'["oqen"'), (b"bursar-snapshot", b"other"), (b"\n", b"x")],
    )
    def test_an_altered_snapshot_is_refused(self, path: Path, old: bytes, new: bytes) -> None:
        with filled(path, lines_of(7)) as store:
            text = take(store).text()
            assert old in text
            altered = packed(text.replace(old, new, 1))
            store.transact(lambda db: db.execute("UPDATE snapshots SET state = ?", (altered,)))
            with pytest.raises(DamagedStoreError, match="snapshot"):
                restore(store, new_engine())


class TestPruning:
    def test_nothing_goes_without_a_snapshot(self, path: Path) -> None:
        with filled(path, lines_of(8)) as store:
            assert prune(store, 10**9) == 0
            assert store.pruned_to == 0

    def test_what_a_snapshot_covers_goes(self, path: Path) -> None:
        machine = lived(9, 100)
        lines = machine.engine.journal.take()
        with Store.create(path) as store:
            store.commit(Batch(lines[:10], [put("a", 1, b"1"), put("b", 2), put("c", 3)]))
            store.commit(Batch(lines[10:20], [put("a", 4, b"2"), gone("b", 5)]))
            early = take(store)
            store.commit(Batch(lines[20:30], [put("a", 6, b"3")]))
            late = take(store)
            store.commit(Batch(lines[30:], [gone("a", 7)]))
            assert prune(store, early.at - 1) == 0
            assert prune(store, late.at - 1) == 20
            assert prune(store, late.at - 1) == 0
            assert [body for *_, body in objects_at(store, 20)] == [b"2", b"{}"]
            with pytest.raises(MomentError, match="record 19 was pruned: the journal begins with record 21"):
                at_record(store, 19)
        with Store.open(path) as store:
            assert (store.pruned_to, store.last_seq) == (20, len(lines))
            assert store.line_at(0) == 20
            assert list(store.load_journal(21)) == lines[20:]
            with pytest.raises(StoreError, match="up to 20 were pruned"):
                store.load_journal()
            with pytest.raises(StoreError, match="up to 20 were pruned"):
                store.line(3)
            copy = new_engine()
            restore(store, copy)
            assert_same(copy, machine)
            assert prune(store, late.at) == 10
            assert newest(store, store.last_seq) is not None
            copy = new_engine()
            restore(store, copy)
            assert_same(copy, machine)

    def test_manifests_go_with_the_last_entry_that_names_them(self, path: Path) -> None:
        lines = lines_of(9)
        with Store.create(path) as store:
            store.commit(Batch(lines[:10], [ObjectWrite("Pod", "a", 1, b"1", 1, b"old")]))
            store.commit(Batch(lines[10:20], [ObjectWrite("Pod", "a", 2, b"2", 2, b"new")]))
            at = take(store).at
            store.commit(Batch(lines[20:], [ObjectWrite("Pod", "a", 3, b"3", 2)]))
            assert prune(store, at) == 20
            assert store.manifest(2) == b"new"
            with pytest.raises(StoreError, match="there is no manifest 1"):
                store.manifest(1)

    def test_a_store_pruned_to_its_end_goes_on(self, path: Path) -> None:
        machine = lived(10, 40)
        with filled(path, machine.engine.journal.take()) as store:
            prune(store, take(store).at)
        machine.set_room("hosts", "h1", 3, 3)
        with Store.open(path) as store:
            store.commit(Batch(machine.engine.journal.take()))
            copy = new_engine()
            restore(store, copy)
            assert_same(copy, machine)
