"""A control plane that is started, disturbed and stopped by a test.

Order matters: the API server starts when etcd answers, everything else at once when the API server is ready; at the end
the API server stops before etcd, without which it could not finish. All files lie in one folder, which is removed on a
clean stop and kept, with the logs, when the block that used the plane failed.
"""

import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.cluster.controlplane import binaries, commands, identities, objects
from tests.cluster.controlplane.api import Api, ApiError
from tests.cluster.controlplane.guard import Guard
from tests.cluster.controlplane.identities import ADMIN, ALICE, Identities, User
from tests.cluster.controlplane.ports import Ports, is_free
from tests.cluster.controlplane.processes import Component, ComponentError

ETCD = "etcd"
APISERVER = "kube-apiserver"
SCHEDULER = "kube-scheduler"
CONTROLLER_MANAGER = "kube-controller-manager"
KWOK = "kwok"


class ControlPlane:
    """Made by ``ControlPlane.start``; a context manager that stops it."""

    def __init__(self, folder: Path, users: Iterable[User], found: Mapping[str, binaries.Binary]) -> None:
        self.folder = folder
        self.binaries = found
        self._ports = Ports()
        self._etcd = commands.Etcd(self._ports.take(), self._ports.take(), folder / "etcd")
        self._port = self._ports.take()
        self.url = f"https://127.0.0.1:{self._port}"
        self.ca_path = folder / "certificates" / "apiserver.crt"
        for name in ("certificates", "logs"):
            (folder / name).mkdir(parents=True, exist_ok=True)
        self._who = Identities(folder, self.url, self.ca_path, users)
        self._guard = Guard(folder)
        self._components: dict[str, Component] = {}
        self._stopped: set[str] = set()  # components that somebody wants to be away
        self._spawned: list[Component] = []
        self._apis: dict[str, Api] = {}

    @classmethod
    def start(
        cls,
        *,
        scheduler: bool = True,
        controller_manager: bool = True,
        kwok: bool = True,
        users: Iterable[User] = (),
        folder: Path | None = None,
        apiserver_flags: Sequence[str] = (),
        scheduler_limits: Sequence[str] = commands.FAST,
    ) -> Self:
        """A plane that takes pods when this returns. ``users`` get tokens beside the usual ones."""
        wanted = {SCHEDULER: scheduler, CONTROLLER_MANAGER: controller_manager, KWOK: kwok}
        parts = [name for name, want in wanted.items() if want]
        found = binaries.find((ETCD, APISERVER, "kubectl", *parts))
        plane = cls(folder or Path(tempfile.mkdtemp(prefix="bursar-cluster-")), users, found)
        try:
            plane._start(parts, list(apiserver_flags), scheduler_limits)
        except BaseException as error:
            plane.stop(keep=isinstance(error, Exception))  # the logs of a failure stay, not those of a Ctrl-C
            raise
        return plane

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop(keep=kind is not None)

    # Access

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig file."""
        return self.kubeconfig_of(ADMIN)

    def kubeconfig_of(self, user: str) -> Path:
        return self._who.kubeconfig(user)

    def token(self, user: str = ADMIN) -> str:
        return self._who.token(user)

    def api(self, user: str = ADMIN) -> Api:
        """A blocking client that acts as this user."""
        if user not in self._apis:
            self._apis[user] = Api(self.url, self.ca_path, self.token(user))
        return self._apis[user]

    def kubectl(self, *arguments: str, input: str | None = None, user: str = ADMIN, check: bool = True) -> str:  # noqa: A002 as in subprocess
        """What kubectl prints, as this user; an error of kubectl is a ``ComponentError`` with its message.

        Who has no token is played by the administrator: ``kubectl("get", "pods", "--as=dave", "--as-group=x")``.
        """
        command = [str(self.binaries["kubectl"].path), f"--kubeconfig={self.kubeconfig_of(user)}", *arguments]
        done = subprocess.run(command, input=input, capture_output=True, text=True, check=False)
        if check and done.returncode:
            raise ComponentError(f"kubectl {' '.join(arguments)}: {done.stderr.strip()}")
        return done.stdout + ("" if check else done.stderr)

    # Set-up

    def create_namespace(self, name: str | None = None, labels: Mapping[str, str] | None = None) -> str:
        """A namespace that takes pods at once; a name of its own unless one is given."""
        chosen = name or objects.unique("test")
        objects.create_namespace(self.api(), chosen, labels or {})
        return chosen

    def delete_namespace(self, name: str) -> None:
        objects.delete_namespace(self.api(), name)

    def add_nodes(
        self,
        count: int,
        allocatable: Mapping[str, str] | None = None,
        labels: Mapping[str, str] | None = None,
        prefix: str | None = None,
    ) -> list[str]:
        """Ready nodes, named ``<prefix>-0`` and so on; what ``allocatable`` leaves out is ample."""
        chosen = prefix or objects.unique("node")
        names = [f"{chosen}-{number}" for number in range(count)]
        objects.add_nodes(self.api(), names, allocatable or {}, labels or {})
        return names

    def remove_nodes(self, names: Iterable[str]) -> None:
        self.api().in_parallel(lambda name: self.api().delete(f"/api/v1/nodes/{name}"), names)

    # Bad days

    def component(self, name: str) -> Component:
        """``etcd``, ``kube-apiserver`` and so on: to be killed, frozen, looked at."""
        return self._components[name]

    def stop_component(self, name: str) -> None:
        self._stopped.add(name)
        self._components[name].stop()

    def start_component(self, name: str) -> None:
        """Start one that was stopped, and wait for it where there is something to wait for."""
        component = self._components[name]
        self._stopped.discard(name)
        component.start()
        if name == APISERVER:
            component.wait_until(self._apiserver_ready)
            self._restart_clients()
        elif name == ETCD:
            component.wait_until(self._etcd_ready)

    def restart_component(self, name: str) -> None:
        self.stop_component(name)
        self.start_component(name)

    def spawn(self, name: str, command: list[str]) -> Component:
        """Another process beside the components, a controller under test: with a log among theirs, ended with them."""
        component = Component(name, command, self.folder / "logs" / f"{name}.log", self._guard)
        self._spawned.append(component)
        component.start()
        return component

    # Life and end

    def stop(self, *, keep: bool = False) -> None:
        """Stop everything, wait until the ports are free, remove the folder unless it is to be kept."""
        for api in self._apis.values():
            api.close()
        others = [part for name, part in self._components.items() if name not in {ETCD, APISERVER}] + self._spawned
        for part in others:
            part.ask_to_stop()
        for part in (*others, *(self._components[name] for name in (APISERVER, ETCD) if name in self._components)):
            part.stop()
        taken = [port for port in (self._port, *self._etcd[:2]) if not is_free(port)]
        self._ports.close()
        self._guard.close()
        if not keep:
            shutil.rmtree(self.folder, ignore_errors=True)
        if taken:
            raise ComponentError(f"ports still taken after the stop: {taken}")

    def _start(self, parts: list[str], apiserver_flags: list[str], scheduler_limits: Sequence[str]) -> None:
        self._add(ETCD, self._etcd.command(self._path(ETCD)))
        self.start_component(ETCD)
        command = commands.apiserver(self._path(APISERVER), self._etcd, self._port, self.ca_path.parent, self._who)
        self._add(APISERVER, [*command, *apiserver_flags])
        self.start_component(APISERVER)
        makers: dict[str, Callable[[Path, Identities], list[str]]] = {
            SCHEDULER: partial(commands.scheduler, limits=scheduler_limits),
            CONTROLLER_MANAGER: commands.controller_manager,
            KWOK: commands.kwok,
        }
        for name in parts:
            self._add(name, makers[name](self._path(name), self._who))
            self.start_component(name)
        objects.grant_edit(self.api())
        if CONTROLLER_MANAGER in parts:
            self._components[CONTROLLER_MANAGER].wait_until(self._roles_filled)

    def _restart_clients(self) -> None:
        """They would come back by themselves, but each restart of the API server makes them wait longer for it; and one
        that was just starting when the server went has ended.
        """
        there = [name for name in (SCHEDULER, CONTROLLER_MANAGER, KWOK) if name in self._components]
        clients = [self._components[name] for name in there if name not in self._stopped]
        for client in clients:
            client.ask_to_stop()
        for client in clients:
            client.stop()
            client.start()

    def _path(self, name: str) -> Path:
        return self.binaries[name].path

    def _add(self, name: str, command: list[str]) -> None:
        self._components[name] = Component(name, command, self.folder / "logs" / f"{name}.log", self._guard)

    def _etcd_ready(self) -> bool:
        connection = HTTPConnection("127.0.0.1", self._etcd.client_port, timeout=2)
        try:
            connection.request("GET", "/readyz")
            return connection.getresponse().status == 200
        except (HTTPException, OSError):
            return False
        finally:
            connection.close()

    def _apiserver_ready(self) -> bool:
        """It says that it is ready a moment before it knows all roles, so one who lives by a role asks too."""
        try:
            if not self.ca_path.exists() or self.api().get("/readyz") != {"text": "ok"}:
                return False
            return "items" in self.api(identities.SCHEDULER).get("/api/v1/pods?limit=1")
        except (ApiError, HTTPException, OSError):
            return False

    def _roles_filled(self) -> bool:
        """The controller manager works: it has put all of ``edit`` together, which takes it two rounds: the rules for
        writing come first, and those for reading when ``view`` has them.
        """
        gated_pods = (("create", "pods"), ("get", "pods"))
        return all(objects.may(self.api(), ALICE, verb, resource) for verb, resource in gated_pods)
