"""A Kubernetes cluster, asked through the answers API that Bursar serves in it, with the caller's own rights.

Objects are read from the API server itself. A caller who may not ask about all namespaces is answered about the one of
the kubeconfig, and a warning says so.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar, cast

import click
import msgspec

from bursar.answers.resources import API_VERSION, ROOT, path_of
from bursar.cli.connection import LiveError
from bursar.control.admission import known_kinds
from bursar.kube.client.api import Api, Resource, Select
from bursar.kube.client.auth import ClusterConfig
from bursar.kube.client.errors import ApiError, Forbidden, KubeError, NotFound, Unanswered
from bursar.kube.client.http import Call, Http, Request
from bursar.objects.decode import ManifestError
from bursar.objects.kinds import Kind
from bursar.objects.manifests import load_text
from bursar.policies.plugin import default_registry
from bursar.server import types
from bursar.server.client import Client, RequestFailedError, content_type
from bursar.server.operations import Operation

T = TypeVar("T")
SECONDS = 60.0  # that an answer may take
_NOWHERE = types.Moment(seq=0, resource_version="", time="", digest="")


async def is_installed(config: ClusterConfig) -> bool:
    """Whether the cluster serves the answers API, in whatever health it is; raises ``KubeError``."""
    async with Http(config) as http:
        try:
            await http.send(Request(Call("get", "", ROOT), "GET", ROOT))
        except NotFound:
            return False
        except ApiError as error:
            if error.code < 500:
                raise
    return True


class AnswersClient(Client):
    """Asks the answers API of a cluster."""

    def __init__(self, config: ClusterConfig, runner: asyncio.Runner) -> None:  # nothing of the parent's
        self._config = config
        self._runner = runner
        self._kinds = known_kinds(default_registry())
        self._said: set[str] = set()

    def _ask(self, operation: Operation[T], values: dict[str, Any], body: bytes) -> T:
        own = {"kinds": self._named_kinds, "object": self._object_of, "objects": self._objects_of}.get(operation.name)
        if own is not None:
            return cast("T", own(values))
        try:
            path, query = path_of(operation.name, values | _namespace_of(operation, body))
        except KeyError:
            raise _refused(400, f"a live cluster is known here as it is now: it keeps no {operation.name}") from None
        try:
            answer = self._sent(operation, path, query, body)
        except Forbidden as error:
            answer = self._own_namespace(operation, path, query, body, error)
        return msgspec.json.decode(answer, type=operation.answer or cast("type[T]", dict))

    def _own_namespace(
        self, operation: Operation[Any], path: str, query: Mapping[str, Any], body: bytes, error: Forbidden
    ) -> bytes:
        """The answer about the caller's own namespace, to a question about all of them that is forbidden."""
        namespace = self._config.namespace
        if path.startswith(f"{ROOT}/namespaces/") or not namespace:
            raise _refused(error.code, error.message)
        try:
            within, query = path_of(operation.name, {**query, "namespace": namespace})
            if within == path:  # it has no namespaces
                raise _refused(error.code, error.message)
            answer = self._sent(operation, within, query, body)
        except Forbidden:
            raise _refused(error.code, error.message) from None
        self._warn(f"you may not ask about all namespaces: this is the answer for the namespace {namespace}")
        return answer

    def _sent(self, operation: Operation[Any], path: str, query: Mapping[str, Any], body: bytes) -> bytes:
        verb = "create" if operation.accepts else "get"
        pairs = tuple((name, _text(one)) for name, value in query.items() for one in _each(value))
        payload = (body, content_type(operation)) if operation.accepts else (None, "application/json")
        return self._run(Request(Call(verb, API_VERSION, path), operation.method, path, pairs, *payload))

    def _run(self, request: Request) -> bytes:
        try:
            return self._runner.run(_exchanged(self._config, request))
        except Unanswered as error:
            raise LiveError(f"the cluster does not answer: {error}") from None
        except Forbidden:
            raise
        except ApiError as error:
            raise _refused(error.code, _explained(error)) from None
        except KubeError as error:
            raise LiveError(str(error)) from None

    # What the cluster itself answers

    def _named_kinds(self, _values: Mapping[str, Any]) -> types.KindList:
        items = [msgspec.convert(kind, types.KindInfo, from_attributes=True) for kind in self._kinds]
        return types.KindList(items=items)

    def _object_of(self, values: Mapping[str, Any]) -> dict[str, Any]:
        kind, key = self._kind(str(values["kind"])), str(values["key"])
        namespace, _, name = key.rpartition("/")
        try:
            return self._runner.run(_fetched(self._config, kind, namespace, name))
        except NotFound:
            raise _refused(404, f"there is no {kind.kind} {key!r:.200}") from None
        except ApiError as error:
            raise _refused(error.code, error.message) from None

    def _objects_of(self, values: Mapping[str, Any]) -> types.ObjectList:
        kind = self._kind(str(values.get("kind") or ""))
        select = Select(labels=str(values.get("label") or ""))
        try:
            items = self._runner.run(_listed(self._config, kind, str(values.get("namespace") or ""), select))
        except ApiError as error:
            raise _refused(error.code, error.message) from None
        return types.ObjectList(items=items, moment=_NOWHERE)

    def _kind(self, name: str) -> Kind:
        try:
            return self._kinds.find(name)
        except ManifestError as error:
            raise _refused(400, str(error)) from None

    def _warn(self, line: str) -> None:
        if line not in self._said:
            self._said.add(line)
            click.echo(f"warning: {line}", err=True)
            sys.stderr.flush()


def _namespace_of(operation: Operation[Any], body: bytes) -> dict[str, str]:
    """Manifests of one namespace are asked about there, because many callers may ask nowhere else."""
    if not operation.accepts:
        return {}
    try:
        documents = load_text(body.decode(), "")
    except (ManifestError, UnicodeDecodeError):
        return {}  # the API says what is wrong
    metadata = [document.body.get("metadata") for document in documents]
    found = {str(one.get("namespace") or "") if isinstance(one, dict) else "" for one in metadata}
    return {"namespace": found.pop()} if len(found) == 1 and "" not in found else {}


async def _exchanged(config: ClusterConfig, request: Request) -> bytes:
    async with Http(config) as http:
        return await http.send(request, within=SECONDS)


async def _fetched(config: ClusterConfig, kind: Kind, namespace: str, name: str) -> dict[str, Any]:
    async with Http(config) as http:
        return (await Api(http).get(Resource.of(kind), name, namespace)).plain()


async def _listed(config: ClusterConfig, kind: Kind, namespace: str, select: Select) -> list[dict[str, Any]]:
    async with Http(config) as http:
        listing = await Api(http).list(Resource.of(kind), namespace, select)
    head = {"apiVersion": kind.api_version, "kind": kind.kind}
    return [{**head, **item.plain()} for item in listing.items]


def _explained(error: ApiError) -> str:
    if error.code in {503, 504} and "the server is currently unable to handle the request" in error.message:
        return "Bursar's answers API is installed and does not answer: look at the pods of bursar-answers"
    return error.message


def _refused(status: int, detail: str) -> RequestFailedError:
    return RequestFailedError(types.Problem(type="about:blank", title="", status=status, detail=detail))


def _each(value: object) -> Iterable[object]:
    return value if isinstance(value, list | tuple) else (value,)


def _text(value: object) -> str:
    return "true" if value is True else str(value)
