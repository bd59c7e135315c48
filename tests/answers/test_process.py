"""A replica that answers, over TLS: whom it lets in, what it says, and when it is ready."""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from http.client import HTTPSConnection
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from bursar.answers.access import CONFIG_NAME, CONFIG_NAMESPACE, REVIEWS
from bursar.answers.process import AnswersOptions, AnswersReplica
from bursar.answers.resources import ROOT
from bursar.kube.admission import certs
from bursar.kube.admission.predicate import ANSWERS_SERVICE, CERTIFICATES
from bursar.kube.client.api import CONFIG_MAPS, SECRETS
from tests.answers.test_access import DATA
from tests.kube.client.certificates import Certificate, authority, issued_by
from tests.kube.controller.stage import OWN, Stage, stage
from tests.kube.waiting import eventually

pytestmark = pytest.mark.anyio
NAME = f"{ANSWERS_SERVICE}.{OWN}.svc"
PROXY = "front-proxy-client"
ALICE = {"X-Remote-User": "alice"}


@dataclass
class Server:
    replica: AnswersReplica
    stage: Stage
    root: Certificate
    folder: Path
    served: certs.Certificates

    def ask(self, path: str, who: Certificate | None, headers: dict[str, str]) -> tuple[int, Any]:
        """A request, as the API server sends it."""
        context = ssl.create_default_context(cadata=self.served.authorities.decode())
        if who is not None:
            for name, text in (("crt", who.pem), ("key", who.key)):
                (self.folder / name).write_text(text)
            context.load_cert_chain(self.folder / "crt", self.folder / "key")
        connection = Named("127.0.0.1", self.replica.server.port, timeout=10, context=context)
        try:
            connection.request("GET", path, headers=headers)
            response = connection.getresponse()
            return response.status, json.loads(response.read())
        finally:
            connection.close()

    async def asked(self, path: str, name: str = PROXY, headers: dict[str, str] | None = None) -> tuple[int, Any]:
        who = issued_by(self.root, name)
        return await asyncio.to_thread(self.ask, path, who, ALICE if headers is None else headers)


class Named(HTTPSConnection):
    """Asks by the name of the service."""

    def connect(self) -> None:
        super(HTTPSConnection, self).connect()
        self.sock = self._context.wrap_socket(self.sock, server_hostname=NAME)  # type: ignore[attr-defined]


@asynccontextmanager
async def serving(folder: Path) -> AsyncIterator[Server]:
    async with stage(more=(REVIEWS,)) as cluster:
        cluster.node("n", 2)
        cluster.namespace("a")
        cluster.quota("a", 1)
        cluster.pod("a", "p", 2)
        root = authority("proxies")
        served = certs.make([NAME], datetime.now(UTC))
        write(cluster, root, served)
        replica = AnswersReplica(cluster.api, AnswersOptions(host="127.0.0.1", port=0, health_port=0))
        replica.reviews._review = allowed  # type: ignore[assignment,method-assign]
        running = asyncio.create_task(replica.run(lambda _: None))
        try:
            await eventually(lambda: running.done() or not replica.unready())
            yield Server(replica, cluster, root, folder, served)
        finally:
            running.cancel()
            with suppress(asyncio.CancelledError):
                await running


async def allowed(_user: object, _namespace: str) -> bool:
    return True


def write(cluster: Stage, root: Certificate, served: certs.Certificates) -> None:
    data = DATA | {"requestheader-client-ca-file": root.pem}
    cluster.fake.state.create(CONFIG_MAPS, CONFIG_NAMESPACE, {"metadata": {"name": CONFIG_NAME}, "data": data})
    held = {name: base64.b64encode(text).decode() for name, text in certs.secret_data(served).items()}
    cluster.fake.state.create(SECRETS, OWN, {"metadata": {"name": CERTIFICATES}, "data": held})


async def test_the_proxy_of_the_api_server_is_answered(tmp_path: Path) -> None:
    async with serving(tmp_path) as server:
        status, found = await server.asked(f"{ROOT}/namespaces/a/explanations/p")
        assert (status, found["kind"], found["metadata"]) == (200, "Explanation", {"name": "p", "namespace": "a"})
        assert found["claim"]["reason"].startswith("elastic.")
        status, found = await server.asked("/apis")
        assert (status, found["kind"]) == (200, "APIGroupList")


async def test_others_are_not_let_in(tmp_path: Path) -> None:
    async with serving(tmp_path) as server:
        path = f"{ROOT}/queue"
        for who in (None, issued_by(authority("others"), PROXY)):
            with pytest.raises((ssl.SSLError, ConnectionError)):
                await asyncio.to_thread(server.ask, path, who, ALICE)
        status, found = await server.asked(path, name="another")
        assert (status, found["reason"]) == (401, "Unauthorized")
        assert "another" in found["message"]
        assert (await server.asked(path, headers={}))[0] == 401
        assert (await server.asked("/apis", name="another"))[0] == 401


async def test_refusals_are_statuses_that_name_what_is_wrong(tmp_path: Path) -> None:
    async with serving(tmp_path) as server:
        for path, code, said in (
            ("namespaces/a/explanations/q", 404, "there is no claim 'a/q'"),
            ("queue?at=-5m", 400, "knows the cluster as it is now"),
            ("queue?colour=red", 400, "the parameter 'colour' is not known"),
            ("quotaexplanations", 400, "the parameter kind is required"),
            ("pods", 404, "there is no"),
        ):
            status, found = await server.asked(f"{ROOT}/{path}")
            assert (status, found["kind"], found["code"]) == (code, "Status", code), found
            assert said in found["message"]


async def test_parameters_that_clients_add_do_not_matter(tmp_path: Path) -> None:
    async with serving(tmp_path) as server:
        status, found = await server.asked(f"{ROOT}/queue?limit=500&timeout=30s&pretty=true")
        assert (status, found["kind"], len(found["items"])) == (200, "QueueEntryList", 1)
        assert found["items"][0]["metadata"] == {"name": "p", "namespace": "a"}


async def test_a_new_certificate_and_a_new_authority_count_from_the_next_connection(tmp_path: Path) -> None:
    async with serving(tmp_path) as server:
        before, server.root = server.root, authority("newer proxies")
        server.served = certs.make([NAME], datetime.now(UTC))
        state = server.stage.fake.state
        state.delete(CONFIG_MAPS, CONFIG_NAMESPACE, CONFIG_NAME)
        state.delete(SECRETS, OWN, CERTIFICATES)
        write(server.stage, server.root, server.served)
        await server.replica._read_certificates()
        assert (await server.asked(f"{ROOT}/queue"))[0] == 200
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await asyncio.to_thread(server.ask, f"{ROOT}/queue", issued_by(before, PROXY), ALICE)


async def test_health_and_metrics_are_served_without_certificates(tmp_path: Path) -> None:
    async with serving(tmp_path) as server:
        await server.asked(f"{ROOT}/queue")
        port = server.replica.health.port

        def read(path: str) -> str:
            with urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as response:
                return str(response.read().decode())

        assert await asyncio.to_thread(read, "/readyz") == "ok\n"
        metrics = await asyncio.to_thread(read, "/metrics")
        assert 'bursar_answers_requests_total{code="200",resource="queue"} 1.0' in metrics
        (behind,) = [line for line in metrics.splitlines() if line.startswith("bursar_answers_behind_seconds ")]
        assert float(behind.split()[1]) < 5


async def test_a_replica_whose_watches_fail_is_behind(tmp_path: Path) -> None:
    async with serving(tmp_path) as server:
        server.stage.fake.fail("GET .*", code=500, times=100_000)
        server.stage.fake.end_watches()
        await eventually(lambda: server.replica.follower.behind() > 1.5)
        server.stage.fake.faults.clear()
        await eventually(lambda: server.replica.follower.behind() < 1.0)
