"""What stands beside the journal is audited with it: objects, manifests, history and the log of changes."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from bursar.cli import check
from bursar.objects.decode import ManifestError
from bursar.objects.manifests import load_text
from bursar.server.service import Service
from bursar.store import snapshots, upkeep
from bursar.store.schema import DamagedStoreError
from bursar.store.store import Store
from tests.server.live import ManualClock, node, pod, quota, text


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A store with quotas that changed, pods that came, ran and went, a namespace, and an undo."""
    path = tmp_path / "b.db"
    service = Service.open(path, clock=ManualClock())
    work(service)
    service.close()
    return path


def work(service: Service, tag: str = "") -> None:
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": f"a{tag}", "labels": {"team": "x"}}}
    apply(service, namespace)
    apply(service, node(f"n1{tag}"), quota("a", 8))
    apply(service, pod("a", f"one{tag}"), pod("a", f"two{tag}", 2))
    apply(service, quota("a", 9))
    undone = apply(service, pod("a", f"gone{tag}"))
    service.undo(undone)
    service.finish([f"a/one{tag}"])
    apply(service, pod("a", f"one{tag}"))  # again, under the same name
    apply(service, quota("a", 8))


def apply(service: Service, *manifests: dict[str, Any]) -> int:
    return service.apply(load_text(text(*manifests).decode(), "t.json")).answer.id


def alter(path: Path, *statements: str) -> None:
    with sqlite3.connect(path) as db:
        for statement in statements:
            assert db.execute(statement).rowcount > 0, statement
    db.close()


def audit(path: Path) -> tuple[int, str]:
    done = CliRunner().invoke(check.audit, [str(path)])
    return done.exit_code, done.output


def opens(path: Path) -> bool:
    try:
        Service.open(path, clock=ManualClock()).close()
    except (DamagedStoreError, ManifestError):
        return False
    return True


def test_a_store_that_was_left_alone_is_good_and_covered(path: Path) -> None:
    code, output = audit(path)
    assert (code, "not covered" in output) == (0, False), output
    found = json.loads(CliRunner().invoke(check.audit, [str(path), "-o", "json"]).output)
    assert found["uncovered"] == []
    assert found["checked"]["objects"] > 15
    assert opens(path)
    assert audit(path)[0] == 0


def replaced(table: str, column: str, old: str, new: str, where: str = "1") -> str:
    told = f"CAST(replace(CAST({column} AS TEXT), '{old}', '{new}') AS BLOB)"
    return f"UPDATE {table} SET {column} = {told} WHERE {where}"  # noqa: S608 a test


OLDEST = "id = (SELECT min(id) FROM object_history WHERE kind LIKE 'ElasticQuota%')"
STATUS = ("body", "Running", "Pending", "kind = 'Pod'")
GPUS = '"nvidia.com/gpu":'
ALTERED = {
    "a manifest": (replaced("manifests", "text", f"{GPUS}8", f"{GPUS}7"),),
    "a manifest of before": (replaced("manifests", "text", f"{GPUS}9", f"{GPUS}99"),),
    "a manifest is gone": ("DELETE FROM manifests WHERE number = (SELECT max(number) FROM manifests)",),
    "a status": (replaced("objects", *STATUS),),
    "a status and its history": (replaced("objects", *STATUS), replaced("object_history", *STATUS)),
    "an older entry": (f"UPDATE object_history SET version = version + 1 WHERE {OLDEST}",),  # noqa: S608 a test
    "an entry is gone": (f"DELETE FROM object_history WHERE {OLDEST}",),  # noqa: S608 a test
    "an object is gone": ("DELETE FROM objects WHERE kind LIKE 'ElasticQuota%'",),
    "an object more": ("INSERT INTO objects SELECT kind, key || 'x', version, body FROM objects LIMIT 1",),
    "a change": ("UPDATE meta SET value = replace(value, 'two', 'six') WHERE name LIKE 'change/%'",),
    "a change is gone": ("DELETE FROM meta WHERE name = 'change/0000000000000004'",),
    "an actor": ('UPDATE meta SET value = replace(value, \'"actor":""\', \'"actor":"eve"\') WHERE name LIKE \'%04\'',),
}
UNSERVED = ["a manifest", "a status", "a status and its history", "an object is gone", "an object more"]


@pytest.mark.parametrize("statements", ALTERED.values(), ids=ALTERED)
def test_what_was_altered_is_found(path: Path, statements: tuple[str, ...]) -> None:
    alter(path, *statements)
    code, output = audit(path)
    assert code == 1, output
    assert output.startswith("BAD ")


@pytest.mark.parametrize("what", UNSERVED)
def test_a_server_does_not_start_with_objects_that_were_altered(path: Path, what: str) -> None:
    alter(path, *ALTERED[what])
    assert not opens(path)


def test_the_audit_names_the_object_or_the_change(path: Path) -> None:
    alter(path, *ALTERED["a manifest"])
    assert (
        "the manifest of ElasticQuota.n8s.nebuly.ai a/quota in the file is not the one that was applied"
        in audit(path)[1]
    )


def test_a_manifest_of_a_pod_that_was_altered_is_not_shown(path: Path) -> None:
    """A start does not read it; who asks for it does."""
    alter(path, replaced("manifests", "text", "two", "six"))
    service = Service.open(path, clock=ManualClock())
    try:
        with pytest.raises(ManifestError, match="was altered in the store"):
            service.read_durable(lambda cluster: cluster.find(cluster.kinds.find("Pod"), "a/two"))
    finally:
        service.close()


def test_single_bits_of_objects_and_history_do_not_flip_unseen(path: Path) -> None:
    content = path.read_bytes()
    with Store.open(path, read_only=True) as store:
        bodies = [bytes(body) for (body,) in store.rows("SELECT body FROM object_history WHERE body IS NOT NULL")]
        texts = [bytes(text) for (text,) in store.rows("SELECT text FROM manifests")]
    for wanted in [*bodies[::5], *texts[::3]]:
        place = content.index(wanted) + len(wanted) // 2
        flipped = bytearray(content)
        flipped[place] ^= 1
        path.write_bytes(flipped)
        assert audit(path)[0] != 0
    path.write_bytes(content)
    assert audit(path)[0] == 0


@pytest.fixture
def pruned(path: Path) -> Path:
    """Pruned at the end of the first half of the work, with the other half after it, or nothing."""
    clock = ManualClock()
    with Store.open(path) as store:
        snapshots.take(store)
    service = Service.open(path, clock=clock)
    work(service, "-later")
    service.close()
    with Store.open(path) as store:
        assert upkeep.prune(store, clock.now + 1) > 0
    return path


def test_a_pruned_store_is_covered_from_its_snapshot_on(pruned: Path) -> None:
    code, output = audit(pruned)
    assert (code, "not covered" in output) == (0, False), output
    assert opens(pruned)
    alter(pruned, replaced("manifests", "text", '"n1"', '"n7"'))
    assert audit(pruned)[0] == 1


def test_a_store_pruned_to_its_end_is_compared_with_the_snapshot(path: Path) -> None:
    with Store.open(path) as store:
        snapshots.take(store)
        upkeep.prune(store, 2**60)
    assert audit(path)[0] == 0
    assert opens(path)
    alter(path, *ALTERED["a status and its history"])
    assert audit(path)[0] == 1
    assert not opens(path)


def test_an_older_store_opens_and_the_audit_says_what_is_not_covered(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = path.with_name("old.db")
    monkeypatch.setattr(Service, "_voucher", lambda *_: None)  # as versions before wrote it
    service = Service.open(old, clock=ManualClock())
    work(service)
    service.close()
    monkeypatch.undo()
    with Store.open(old, read_only=True) as store:
        last = store.last_seq
    code, output = audit(old)
    assert code == 0
    assert "are not covered, because an older version wrote them" in output
    service = Service.open(old, clock=ManualClock())
    work(service, "-new")
    service.close()
    found = json.loads(CliRunner().invoke(check.audit, [str(old), "-o", "json"]).output)
    assert found["uncovered"]
    assert all(high <= last for _, high in found["uncovered"])
    alter(old, replaced("objects", *STATUS))
    assert not opens(old)


def test_a_failed_change_leaves_the_sum_as_it_was(path: Path) -> None:
    service = Service.open(path, clock=ManualClock())
    with pytest.raises(ManifestError):
        apply(service, pod("a", "bad", 0), {**pod("a", "worse"), "spec": 7})
    apply(service, pod("a", "good"))
    service.close()
    assert audit(path)[0] == 0
    assert opens(path)
