import sqlite3
import threading
from pathlib import Path

import pytest

from bursar.store.schema import DamagedStoreError, ForeignFileError, StoreBusyError, StoreError
from bursar.store.store import Batch, ObjectWrite, Store, line_position
from bursar.store.upkeep import backup, check
from tests.store.world import filled, gone, lines_of, objects_at, put


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "bursar.db"


class TestWriting:
    def test_a_batch_is_there_after_it_was_opened_again(self, path: Path) -> None:
        lines = lines_of(1)
        with filled(path, lines) as store:
            assert store.commit(Batch(objects=[put("a/p", 1, b'{"x":1}')], at=7, meta={"uids": "4"})) == len(lines)
        with Store.open(path) as store:
            assert list(store.load_journal()) == lines
            assert store.last_seq == len(lines)
            assert list(store.objects()) == [("Pod", "a/p", 1, b'{"x":1}')]
            assert (store.meta("uids"), store.meta("nothing")) == ("4", None)

    def test_part_of_a_journal(self, path: Path) -> None:
        lines = lines_of(2)
        with filled(path, lines) as store:
            assert list(store.load_journal(5, 9)) == lines[4:9]
            assert store.line(3) == lines[2]
            with pytest.raises(StoreError, match="there is no journal record 9999"):
                store.line(9999)

    def test_a_batch_that_cannot_be_written_leaves_nothing(self, path: Path) -> None:
        lines = lines_of(3)
        with filled(path, lines[:4]) as store:
            with pytest.raises(StoreError, match="record 6 does not follow record 4"):
                store.commit(Batch(lines[5:6], [put("a/p", 1)]))
            with pytest.raises(StoreError, match="cannot be written"):
                store.commit(Batch(lines[4:5], [ObjectWrite("Pod", "a", "one", b"")]))  # type: ignore[arg-type]
            with pytest.raises(StoreError, match="not a journal line"):
                store.commit(Batch([*lines[4:5], b"rubbish"]))
            assert (store.last_seq, list(store.load_journal()), list(store.objects())) == (4, lines[:4], [])
            assert store.commit(Batch(lines[4:5])) == 5

    def test_several_batches_are_written_together_or_not_at_all(self, path: Path) -> None:
        lines = lines_of(4)
        with filled(path, lines[:2]) as store:
            with pytest.raises(StoreError, match="does not follow"):
                store.commit_all([Batch(lines[2:3]), Batch(lines[2:3])])
            assert store.commit_all([Batch(lines[2:3]), Batch(lines[3:5])]) == 5

    def test_a_reader_writes_nothing(self, path: Path) -> None:
        filled(path, lines_of(5)).close()
        with (
            Store.open(path, read_only=True) as store,
            pytest.raises(StoreError, match="not open for writing"),
        ):
            store.commit(Batch(objects=[put("a", 1)]))

    def test_a_reader_sees_what_a_writer_commits(self, path: Path) -> None:
        with Store.create(path) as writer, Store.open(path, read_only=True) as reader:
            writer.commit(Batch(objects=[put("a", 1)]))
            assert list(reader.objects()) == [("Pod", "a", 1, b"{}")]

    def test_durability_is_full(self, path: Path) -> None:
        with Store.create(path) as store:
            assert store._writer is not None
            assert store._writer.execute("PRAGMA synchronous").fetchone() == (2,)
            assert store._writer.execute("PRAGMA journal_mode").fetchone() == ("wal",)


class TestObjects:
    def test_objects_as_they_were(self, path: Path) -> None:
        lines = lines_of(6)
        with Store.create(path) as store:
            store.commit(Batch(objects=[put("early", 1)], at=1))
            store.commit(Batch(lines[:2], [put("a", 2, b"1"), put("b", 3, b"1")], at=2))
            store.commit(Batch(lines[2:3], [put("a", 4, b"2"), gone("b", 5), put("a", 6, b"3")], at=3))
            store.commit(Batch(lines[3:4], [put("b", 7, b"4", "Node")], at=4))
            assert objects_at(store, 0) == [("Pod", "early", 1, b"{}")]
            assert objects_at(store, 1) == [("Pod", "early", 1, b"{}")]
            assert objects_at(store, 2) == [("Pod", "a", 2, b"1"), ("Pod", "b", 3, b"1"), ("Pod", "early", 1, b"{}")]
            assert objects_at(store, 3) == [("Pod", "a", 6, b"3"), ("Pod", "early", 1, b"{}")]
            assert objects_at(store, 4) == list(store.objects())
            assert [(c.seq, c.at, c.version, c.body) for c in store.object_changes("Pod", "b")] == [
                (2, 2, 3, b"1"),
                (3, 3, 5, None),
            ]
            assert [row for row in store.objects() if row[1] == "b"] == [("Node", "b", 7, b"4")]

    def test_the_last_record_at_a_time(self, path: Path) -> None:
        lines = [b'[1,%d,%d,"",[]]' % (seq, at) for seq, at in [(1, 10), (2, 20), (3, 20), (4, 35)]]
        with filled(path, lines) as store:
            found = [store.line_at(time) for time in (0, 10, 19, 20, 34, 35, 99)]
        assert found == [0, 1, 1, 3, 3, 4, 4]

    def test_line_positions(self) -> None:
        assert line_position(b'[1,17,4000,"0.1",[]]') == (17, 4000)
        for rubbish in (b"", b"[1,2]", b"1,2,3,4", b'["a","b","c",1]'):
            with pytest.raises(ValueError, match=r"line|invalid"):
                line_position(rubbish)


class TestRefusing:
    def test_a_file_that_exists_is_not_overwritten(self, path: Path) -> None:
        path.write_text("precious")
        with pytest.raises(StoreError, match=r"bursar\.db: exists already"):
            Store.create(path)
        assert path.read_text() == "precious"
        assert [entry.name for entry in path.parent.iterdir()] == ["bursar.db"]

    def test_no_file(self, path: Path) -> None:
        with pytest.raises(StoreError, match="there is no such file"):
            Store.open(path)
        assert not path.exists()

    def test_no_folder(self, tmp_path: Path) -> None:
        with pytest.raises(StoreError, match="cannot be created"):
            Store.create(tmp_path / "no" / "bursar.db")

    @pytest.mark.parametrize("content", [b"hello, world, this is no database at all" * 100, b"x"])
    def test_a_file_that_is_no_database(self, path: Path, content: bytes) -> None:
        path.write_bytes(content)
        for read_only in (False, True):
            with pytest.raises(ForeignFileError, match=r"no store of Bursar's.*left as it is"):
                Store.open(path, read_only)
        assert path.read_bytes() == content

    def test_an_empty_file(self, path: Path) -> None:
        path.touch()
        with pytest.raises(ForeignFileError, match="no store of Bursar's"):
            Store.open(path)
        assert path.read_bytes() == b""

    def test_somebody_elses_database(self, path: Path) -> None:
        db = sqlite3.connect(path)
        db.execute("CREATE TABLE journal (seq, line)")
        db.commit()
        db.close()
        content = path.read_bytes()
        with pytest.raises(ForeignFileError, match="is a database, but no store of Bursar's"):
            Store.open(path)
        assert path.read_bytes() == content

    def test_a_newer_store(self, path: Path) -> None:
        Store.create(path).close()
        db = sqlite3.connect(path)
        db.execute("PRAGMA user_version = 9")
        db.close()
        with pytest.raises(ForeignFileError, match="has store format 9; this Bursar knows format 2"):
            Store.open(path)

    @pytest.mark.parametrize(
        "table", ["journal", "objects", "object_history", "manifests", "mentions", "snapshots", "meta"]
    )
    def test_a_store_without_a_table(self, path: Path, table: str) -> None:
        Store.create(path).close()
        _tamper(path, f"DROP TABLE {table}")
        with pytest.raises(DamagedStoreError, match=f"no table {table}.*newest backup"):
            Store.open(path)

    @pytest.mark.parametrize(
        ("statement", "problem"),
        [
            ("DELETE FROM journal WHERE seq = 1", "begins with record 2 instead of 1"),
            ("UPDATE journal SET line = CAST('[1,5,0,7]' AS BLOB) WHERE seq = 30", "another record in its place"),
            ("UPDATE journal SET line = CAST('[' AS BLOB) WHERE seq = 30", "not a journal line"),
        ],
    )
    def test_a_journal_with_broken_ends(self, path: Path, statement: str, problem: str) -> None:
        filled(path, lines_of(7)[:30]).close()
        _tamper(path, statement)
        with pytest.raises(DamagedStoreError, match=problem):
            Store.open(path)

    def test_torn_pages(self, path: Path) -> None:
        with Store.create(path) as store:
            store.commit(Batch(objects=[put(f"p{i}", i, b"x" * 300) for i in range(1, 400)]))
        content = bytearray(path.read_bytes())
        for start in range(4096, len(content), 4096):
            content[start : start + 100] = b"\xa5" * 100
        path.write_bytes(bytes(content))
        with pytest.raises(DamagedStoreError, match="damaged"):
            Store.open(path)

    def test_a_truncated_file(self, path: Path) -> None:
        with Store.create(path) as store:
            store.commit(Batch(objects=[put(f"p{i}", i, b"x" * 300) for i in range(1, 400)]))
        content = path.read_bytes()
        path.write_bytes(content[: len(content) // 2])
        with pytest.raises(DamagedStoreError, match="damaged"):
            Store.open(path)

    def test_two_writers(self, path: Path) -> None:
        with Store.create(path):
            with pytest.raises(StoreBusyError, match=r"in use by process \d+.*only one process may write"):
                Store.open(path)
            Store.open(path, read_only=True).close()
        Store.open(path).close()

    def test_a_lock_that_cannot_be_taken(self, path: Path) -> None:
        Store.create(path).close()
        lock = path.with_name("bursar.db-lock")
        lock.unlink()
        lock.mkdir()
        with pytest.raises(StoreError, match="cannot be opened for writing"):
            Store.open(path)

    def test_two_writers_by_two_names(self, path: Path, tmp_path: Path) -> None:
        other = tmp_path / "link.db"
        other.symlink_to(path)
        with Store.create(path), pytest.raises(StoreBusyError):
            Store.open(other)

    def test_a_medium_that_cannot_be_written(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        lines = lines_of(8)
        filled(path, lines).close()

        def refuse(*_: object) -> bool:
            return False

        connect = sqlite3.connect

        def read_only_medium(address: str, *args: object, **settings: object) -> sqlite3.Connection:
            if "mode=ro" in str(address):
                raise sqlite3.OperationalError("unable to open database file")
            return connect(address, *args, **settings)  # type: ignore[call-overload,no-any-return]

        monkeypatch.setattr("bursar.store.schema.sqlite3.connect", read_only_medium)
        with pytest.raises(StoreError, match=r"cannot be opened: unable to open.*-wal"):
            Store.open(path, read_only=True)
        monkeypatch.setattr("bursar.store.schema.os.access", refuse)
        with Store.open(path, read_only=True) as store:
            assert list(store.load_journal()) == lines


class TestBackup:
    def test_a_backup_is_a_store_of_that_moment(self, path: Path, tmp_path: Path) -> None:
        lines = lines_of(9)
        with filled(path, lines[:10]) as store:
            backup(store.path, tmp_path / "copy.db")
            store.commit(Batch(lines[10:]))
        with Store.open(tmp_path / "copy.db") as copy:
            assert list(copy.load_journal()) == lines[:10]
            assert check(copy) == []
            copy.commit(Batch(lines[10:]))

    def test_a_backup_overwrites_nothing(self, path: Path, tmp_path: Path) -> None:
        (tmp_path / "copy.db").write_text("precious")
        with Store.create(path) as store, pytest.raises(StoreError, match="exists already"):
            backup(store.path, tmp_path / "copy.db")
        assert (tmp_path / "copy.db").read_text() == "precious"

    def test_a_backup_while_others_write(self, path: Path, tmp_path: Path) -> None:
        lines = lines_of(10)
        with Store.create(path) as store:
            done = threading.Event()

            def write() -> None:
                for line in lines:
                    store.commit(Batch([line]))
                done.set()

            thread = threading.Thread(target=write)
            thread.start()
            count = 0
            while not done.is_set() or count == 0:
                backup(store.path, tmp_path / f"copy{count}.db")
                count += 1
            thread.join()
        for number in range(count):
            with Store.open(tmp_path / f"copy{number}.db", read_only=True) as copy:
                assert list(copy.load_journal()) == lines[: copy.last_seq]


def _tamper(path: Path, statement: str) -> None:
    db = sqlite3.connect(path)
    db.execute(statement)
    db.commit()
    db.close()
