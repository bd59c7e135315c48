"""Pods that come in Protocol Buffers are the pods that come as JSON.

The numbers of fields are the same here and there: whether they are right a real API server shows (tests/cluster).
"""

from collections.abc import Iterator
from types import UnionType
from typing import Any, Union, get_args, get_origin

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bursar.kube.client import protobuf as kinds
from bursar.kube.client.models import Meta
from bursar.kube.client.pod_protobuf import POD, Packed
from bursar.kube.client.protobuf import Message, MessageField
from bursar.kube.controller.pod_model import SeenPod, identity, read_pod, unjudged
from tests.kube.protobuf_writer import enveloped

PODS = Packed(SeenPod, identity, POD)
NOT_DESCRIBED = {".apiVersion", ".kind"}  # stand in the envelope
names = st.text("abcxyz-./", min_size=1, max_size=8)


def _by_name(described: Message) -> dict[str, MessageField]:
    return {field.name: field for field in described.fields if field is not None}


def _structs(annotation: Any) -> Iterator[type[msgspec.Struct]]:  # noqa: ANN401 any annotation
    if isinstance(annotation, type) and issubclass(annotation, msgspec.Struct):
        yield annotation
    elif get_origin(annotation) in {tuple, Union, UnionType}:
        for inner in get_args(annotation):
            yield from _structs(inner)


def _undescribed(struct: type[msgspec.Struct], described: Message, path: str) -> Iterator[str]:
    by_name = _by_name(described)
    for field in msgspec.structs.fields(struct):
        here = f"{path}.{field.encode_name}"
        found = by_name.get(field.encode_name)
        if found is None:
            yield here
        elif found.message is not None:
            for inner in _structs(field.type):
                yield from _undescribed(inner, found.message, here)


def test_everything_that_is_read_of_a_pod_is_described() -> None:
    assert set(_undescribed(SeenPod, POD, "")) == NOT_DESCRIBED


def _bodies(described: Message) -> st.SearchStrategy[dict[str, Any]]:
    """Anything that can be described."""
    optional: dict[str, st.SearchStrategy[Any]] = {}
    inlined: list[st.SearchStrategy[dict[str, Any]]] = []
    for name, field in _by_name(described).items():
        if field.kind == kinds.INLINE and field.message is not None:
            inlined.append(_bodies(field.message))
            continue
        one = _values(field)
        optional[name] = st.lists(one, min_size=1, max_size=3) if field.many else one
    required = {name: optional.pop(name) for name in list(optional) if _is_always_there(_by_name(described)[name])}
    own = st.fixed_dictionaries(required, optional=optional)
    return st.tuples(own, *inlined).map(lambda parts: {key: value for part in parts for key, value in part.items()})


def _is_always_there(field: MessageField) -> bool:
    return field.kind == kinds.NAME or field.name == "nodeSelectorTerms"


def _values(field: MessageField) -> st.SearchStrategy[Any]:
    if field.message is not None:
        return _bodies(field.message)
    return {
        kinds.TEXT: names,
        kinds.NAME: names,
        kinds.NUMBER: st.integers(1, 65535),
        kinds.AMOUNT: st.integers(-(2**31), 2**31 - 1),
        kinds.FLAG: st.just(True),
        kinds.THERE: st.just({}),
        kinds.TIME: st.integers(1, 4 * 10**9).map(kinds._timestamp),
        kinds.TEXTS: st.dictionaries(names, st.text(max_size=8), min_size=1, max_size=3),
        kinds.QUANTITIES: st.dictionaries(names, st.sampled_from(["1", "100m", "64Mi"]), min_size=1, max_size=3),
    }[field.kind]


@given(_bodies(POD))
def test_a_pod_is_the_same_in_both(body: dict[str, Any]) -> None:
    whole = {"apiVersion": "v1", "kind": "Pod", **body}
    assert PODS(Meta(), enveloped(POD, whole)) == read_pod(msgspec.json.encode(whole))


@pytest.mark.parametrize(
    ("source", "judged"), [("emptyDir", True), ("image", True), ("persistentVolumeClaim", False), ("future", False)]
)
def test_a_volume_that_nobody_knows_is_not_judged(source: str, judged: bool) -> None:
    volumes = [{"name": "a", source: {}}]
    pod = PODS(Meta(), enveloped(POD, {"kind": "Pod", "spec": {"volumes": volumes}}))
    assert unjudged(pod.spec) == (() if judged else ("volumes",))
