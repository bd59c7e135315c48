"""The store: every difference once, whatever order lists and events come in."""

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from bursar.kube.client.models import Meta, meta_of
from bursar.kube.client.watch import WatchStore


class Strict(msgspec.Struct, frozen=True):
    value: int


class Mirror:
    """A handler that rebuilds the collection, and fails when it is told something that cannot be."""

    def __init__(self) -> None:
        self.items: dict[str, tuple[str, int]] = {}
        self.told: list[str] = []
        self.syncs = 0

    def added(self, meta: Meta, item: Strict) -> None:
        assert meta.key not in self.items
        self.items[meta.key] = (meta.uid, item.value)
        self.told.append(f"+{meta.key}={item.value}")

    def modified(self, meta: Meta, item: Strict, before: Strict) -> None:
        assert self.items[meta.key] == (meta.uid, before.value)
        self.items[meta.key] = (meta.uid, item.value)
        self.told.append(f"~{meta.key}={item.value}")

    def deleted(self, meta: Meta, item: Strict) -> None:
        assert self.items.pop(meta.key)[0] == meta.uid
        self.told.append(f"-{meta.key}={item.value}")

    def undecodable(self, meta: Meta, problem: str) -> None:
        self.told.append(f"?{meta.key}")

    def synced(self) -> None:
        self.syncs += 1


def decode(_meta: Meta, raw: bytes) -> Strict:
    return msgspec.json.decode(raw, type=Strict)


def body(name: str, uid: str, version: int, value: object) -> bytes:
    meta = {"name": name, "namespace": "n", "uid": uid, "resourceVersion": str(version)}
    return msgspec.json.encode({"metadata": meta, "value": value})


def put(store: WatchStore[Strict], *what: object) -> None:
    raw = body(*what)  # type: ignore[arg-type]
    store.put(meta_of(raw), raw)


def remove(store: WatchStore[Strict], *what: object) -> None:
    raw = body(*what)  # type: ignore[arg-type]
    store.remove(meta_of(raw), raw)


def made() -> tuple[WatchStore[Strict], Mirror]:
    mirror = Mirror()
    return WatchStore(decode, mirror), mirror


def test_the_same_version_is_no_news() -> None:
    store, mirror = made()
    put(store, "a", "u", 1, 5)
    put(store, "a", "u", 1, 5)
    assert mirror.told == ["+n/a=5"]


def test_another_uid_is_an_end_and_a_beginning() -> None:
    store, mirror = made()
    put(store, "a", "u", 1, 5)
    put(store, "a", "v", 2, 6)
    assert mirror.told == ["+n/a=5", "-n/a=5", "+n/a=6"]


def test_what_a_list_lacks_is_gone_in_its_last_form() -> None:
    store, mirror = made()
    put(store, "a", "u", 1, 5)
    put(store, "b", "v", 2, 6)
    assert store.sweep({"n/b"}) == 1
    assert mirror.told == ["+n/a=5", "+n/b=6", "-n/a=5"]
    assert [item.value for item in store.items()] == [6]


def test_a_deletion_carries_its_last_form() -> None:
    store, mirror = made()
    put(store, "a", "u", 1, 5)
    remove(store, "a", "u", 2, 7)
    assert mirror.told == ["+n/a=5", "-n/a=7"]


def test_a_deletion_of_what_is_unknown_is_nothing() -> None:
    store, mirror = made()
    remove(store, "a", "u", 2, 7)
    put(store, "a", "v", 3, 5)
    remove(store, "a", "u", 4, 7)
    assert mirror.told == ["+n/a=5"]


def test_what_cannot_be_decoded_is_named_and_its_last_good_form_stays() -> None:
    store, mirror = made()
    put(store, "a", "u", 1, 5)
    put(store, "a", "u", 2, "wrong")
    assert store.get("n/a") == Strict(5)
    assert list(store.undecodable) == ["n/a"]
    put(store, "a", "u", 3, 6)
    assert store.undecodable == {}
    assert mirror.told == ["+n/a=5", "?n/a", "~n/a=6"]


def test_what_never_could_be_decoded_goes_without_a_word() -> None:
    store, mirror = made()
    put(store, "a", "u", 1, "wrong")
    assert store.get("n/a") is None
    assert len(store) == 1
    remove(store, "a", "u", 2, "wrong")
    assert (store.undecodable, mirror.told, len(store)) == ({}, ["?n/a"], 0)


Steps = st.lists(
    st.tuples(
        st.sampled_from(["put", "put", "new", "remove", "gap", "list"]),
        st.sampled_from("abc"),
        st.one_of(st.integers(0, 9), st.just("wrong")),
    ),
    max_size=40,
)


@given(Steps)
def test_the_handler_always_ends_up_with_what_there_is(steps: list[tuple[str, str, object]]) -> None:
    """Events may be lost in gaps; after the next complete list everything decodable is as on the server."""
    store, mirror = made()
    server: dict[str, tuple[str, int, object]] = {}
    heard = True
    for version, (what, name, value) in enumerate([*steps, ("list", "a", 0)]):
        if what == "gap":
            heard = False
        elif what == "list":
            for each, found in server.items():
                put(store, each, *found)
            store.sweep({f"n/{each}" for each in server})
            heard = True
        elif what == "remove" and name in server:
            uid = server.pop(name)[0]
            if heard:
                remove(store, name, uid, version, value)
        elif what in {"put", "new"}:
            uid = server[name][0] if name in server and what == "put" else f"u{version}"
            if heard and name in server and server[name][0] != uid:
                remove(store, name, server[name][0], version, server[name][2])
            server[name] = (uid, version, value)
            if heard:
                put(store, name, *server[name])
    decodable = {f"n/{name}": (uid, value) for name, (uid, _, value) in server.items() if value != "wrong"}
    assert {key: mirror.items[key] for key in decodable} == decodable
    assert mirror.items.keys() <= {f"n/{name}" for name in server}
    assert all(mirror.items[f"n/{name}"][0] == server[name][0] for name in server if f"n/{name}" in mirror.items)
