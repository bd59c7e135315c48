"""A live Kubernetes cluster, asked like a server: its objects are listed and copied into an embedded cluster.

Bound pods run there too, even on nodes that are gone, and pending pods are decided as the controller would decide them
now. Pods whose quota is wrong are left out, as the controller leaves them. All objects keep their age. Nothing is ever
written to the live cluster.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from http import HTTPStatus
from pathlib import Path
from typing import Any, TypeVar, cast

import click
from msgspec import structs

from bursar.answers.questions import with_scheduler
from bursar.cli.answers_client import AnswersClient, is_installed
from bursar.cli.connection import LiveError, fail
from bursar.cli.store_file import FileClient
from bursar.kube.client.api import PODS, Api
from bursar.kube.client.auth import ClusterConfig
from bursar.kube.client.errors import ConfigError, KubeError, Unanswered
from bursar.kube.client.http import Http
from bursar.kube.client.kubeconfig import load
from bursar.kube.cluster_list import Body, Listed, list_cluster
from bursar.kube.controller.object_sync import QuotaSelection
from bursar.kube.controller.pod_model import ENDED
from bursar.objects.decode import ManifestError
from bursar.objects.kinds import NODE, Kind
from bursar.objects.manifests import Document
from bursar.objects.validation import few
from bursar.policies.plugin import default_registry
from bursar.server.client import Client, RequestFailedError
from bursar.server.operations import Operation
from bursar.server.service import Service
from bursar.server.types import Explanation

T = TypeVar("T")
Opened = Callable[[], AbstractContextManager[Client]]


@contextmanager
def live_cluster(kubeconfig: str, context: str) -> Iterator[Opened]:
    """Opens clients of the cluster that a kubeconfig names now: of its answers API, else of copies made here."""
    try:
        config = load(kubeconfig, context)
    except ConfigError as error:
        fail(str(error))
    with asyncio.Runner() as runner:
        if _answers(config, runner):
            client = AnswersClient(config, runner)
            yield lambda: nullcontext(client)
        else:
            click.echo(
                "note: this cluster has no answers API of Bursar: the answer is made here, from a copy", err=True
            )
            yield LiveCluster(config, runner).copied


def _answers(config: ClusterConfig, runner: asyncio.Runner) -> bool:
    try:
        return runner.run(is_installed(config))
    except Unanswered as error:
        raise _unanswered(error) from None
    except KubeError as error:
        raise LiveError(str(error)) from None


def _unanswered(error: Unanswered) -> LiveError:
    return LiveError(f"the cluster does not answer: {error}\n  name another one with --kubeconfig or --context")


class LiveCluster:
    """Makes copies of a cluster, each as of its moment. A warning that holds for all of them is printed once."""

    def __init__(self, config: ClusterConfig, runner: asyncio.Runner) -> None:
        self._config = config
        self._runner = runner  # one for all copies: credentials are kept from one to the next
        self._said: set[str] = set()

    @contextmanager
    def copied(self) -> Iterator[Client]:
        """A client of the cluster as it is now."""
        listed = self._listed()
        with tempfile.TemporaryDirectory(prefix="bursar-") as folder:
            service, obstructed = self._copy(listed, Path(folder) / "cluster.db")
            try:
                yield LiveClient(service, self._find, obstructed | listed.gated, listed.unscheduled)
            finally:
                service.close()
                service.store.close()

    def _listed(self) -> Listed:
        try:
            listed = self._runner.run(list_cluster(self._config, default_registry()))
        except Unanswered as error:
            raise _unanswered(error) from None
        except KubeError as error:
            raise LiveError(str(error)) from None
        if "pods" in listed.unread or "nodes" in listed.unread:
            raise LiveError(
                "pods and nodes of all namespaces must be readable; ask for the cluster role view, and to list nodes"
            )
        if listed.unread:
            self._warn(f"not readable, and left out: {', '.join(sorted(listed.unread))}")
        return listed

    def _copy(self, listed: Listed, path: Path) -> tuple[Service, dict[str, str]]:
        """The copy, and the pods that are left out because a quota is wrong, with the reason."""
        service = Service.open(path)
        service.cluster.staging.keeps_ages = True
        service.cluster.controller.leaves_nodes = True
        wrong = self._apply(service, [body for _, body in listed.objects] + _gone_nodes(listed))
        self._apply(service, [pod for pod in listed.pods if pod["spec"].get("nodeName")])
        waiting = [pod for pod in listed.pods if not pod["spec"].get("nodeName")]
        obstructed = _obstructed(listed.objects, wrong, waiting) if wrong else {}
        if obstructed:
            self._warn(f"left out until their quota is put right: {few(sorted(obstructed))}")
        self._apply(service, [pod for pod in waiting if _key(pod) not in obstructed | listed.gated])
        service.position()  # waits until everything is on the disk
        return service, obstructed

    def _apply(self, service: Service, waiting: list[Body]) -> list[tuple[Body, str]]:
        """Together if they fit together, else in whatever order they do; what remains is wrong, and said so."""
        while waiting:
            try:
                service.apply([Document("", 0, body) for body in waiting])
            except ManifestError:
                failed = [problem for problem in (_try(service, body) for body in waiting) if problem is not None]
                if len(failed) == len(waiting):
                    for _, problem in failed:
                        self._warn(problem)
                    return failed
                waiting = [body for body, _ in failed]
            else:
                return []
        return []

    def _find(self, namespace: str, name: str) -> Body | None:
        """A pod of the cluster, be it in the copy or not."""
        try:
            return self._runner.run(_fetched(self._config, namespace, name))
        except KubeError:
            return None

    def _warn(self, line: str) -> None:
        if line not in self._said:
            self._said.add(line)
            click.echo(f"warning: {line}", err=True)
            sys.stderr.flush()


def _try(service: Service, body: Body) -> tuple[Body, str] | None:
    try:
        service.apply([Document("", 0, body)])
    except ManifestError as error:
        return body, str(error)
    return None


def _key(body: Body) -> str:
    namespace = body["metadata"].get("namespace", "")
    return f"{namespace}/{body['metadata']['name']}" if namespace else str(body["metadata"]["name"])


def _obstructed(objects: list[tuple[Kind, Body]], wrong: list[tuple[Body, str]], waiting: list[Body]) -> dict[str, str]:
    """The pods that wait for a quota to be put right, and what is wrong with it."""
    problems = {id(body): problem for body, problem in wrong}
    selection = QuotaSelection(default_registry())
    for kind, body in objects:
        selection.take(kind.name, _key(body), body, problems.get(id(body), ""))
    marked = {_key(pod): (pod["metadata"].get("namespace", ""), pod["metadata"].get("labels") or {}) for pod in waiting}
    return {key: problem for key, marks in marked.items() if (problem := selection.problem(*marks))}


async def _fetched(config: ClusterConfig, namespace: str, name: str) -> Body | None:
    async with Http(config) as http:
        found = await Api(http).find(PODS, name, namespace)
        return None if found is None else found.plain()


def _gone_nodes(listed: Listed) -> list[Body]:
    """Unschedulable nodes in place of deleted ones whose pods are still there and count; they have room for nothing."""
    there = {body["metadata"]["name"] for kind, body in listed.objects if kind.name == NODE.name}
    places = {pod["spec"].get("nodeName") for pod in listed.pods} - {None, ""}
    nothing = {"allocatable": {"cpu": "0", "memory": "0", "pods": "0"}}  # unlisted, they would be unlimited
    node = {"apiVersion": NODE.api_version, "kind": NODE.kind, "spec": {"unschedulable": True}, "status": nothing}
    return [node | {"metadata": {"name": name}} for name in sorted(places - there)]


class LiveClient(FileClient):
    """Asks a copy, and says of pods that are not in it why that is so."""

    def __init__(
        self,
        service: Service,
        find: Callable[[str, str], Body | None],
        obstructed: Mapping[str, str],
        unscheduled: Mapping[str, str],
    ) -> None:
        """``unscheduled``: what the scheduler says about pods that were started and are not bound."""
        super().__init__(service)
        self._find = find
        self._obstructed = obstructed
        self._unscheduled = unscheduled

    def _ask(self, operation: Operation[T], values: dict[str, Any], body: bytes) -> T:
        key = f"{values.get('namespace', '')}/{values.get('name', '')}"
        try:
            found = super()._ask(operation, values, body)
        except RequestFailedError as error:
            asked = operation.name == "explain" and error.status == HTTPStatus.NOT_FOUND
            pod = self._find(values.get("namespace", ""), values.get("name", "")) if asked else None
            if pod is None:
                raise
            obstacle = self._obstructed.get(key)
            why = f"waits: {obstacle}" if obstacle else _why_not_there(pod)
            raise RequestFailedError(structs.replace(error.problem, detail=f"{key} {why}")) from None
        if isinstance(found, Explanation) and key in self._unscheduled:
            return cast("T", with_scheduler(found, self._unscheduled[key]))
        return found


def _why_not_there(pod: Body) -> str:
    if (pod.get("status") or {}).get("phase") in ENDED:
        return "has ended"
    if pod["metadata"].get("deletionTimestamp"):
        return "is being deleted"
    return "waits, but not for Bursar: no quota governs it"
