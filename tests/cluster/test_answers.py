"""The answers API behind a real API server: who sees what, and what kubectl bursar makes of it."""

import json
import os
import ssl
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from http.client import HTTPSConnection
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.answers import ROOT, SERVICE_ACCOUNT, AnswersReplica, await_answers, proxy_flags, register
from tests.cluster.controlplane import ApiError, ControlPlane
from tests.cluster.controlplane.identities import ADMIN, User
from tests.cluster.controlplane.objects import may
from tests.cluster.controlplane.ports import Ports
from tests.cluster.installation import STEADY, Replica, install
from tests.cluster.waiting import eventually

GPU = "nvidia.com/gpu"
MEMBER = "carol"  # may view one namespace
STRANGER = "dave"  # may view none
EXPLANATIONS = "explanations.answers.bursar.dev"
RED, BLUE = "answers-red", "answers-blue"


def _pod(name: str, gpus: int, namespace: str = "") -> dict[str, Any]:
    resources = {"requests": {GPU: str(gpus)}, "limits": {GPU: str(gpus)}}
    spec = {"containers": [{"name": "c", "image": "i", "resources": resources}], "terminationGracePeriodSeconds": 0}
    metadata = {"name": name, **({"namespace": namespace} if namespace else {})}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def _quota(namespace: str, least: int, most: int) -> dict[str, Any]:
    return {
        "apiVersion": "n8s.nebuly.ai/v1alpha1",
        "kind": "ElasticQuota",
        "metadata": {"name": "quota", "namespace": namespace},
        "spec": {"min": {GPU: least}, "max": {GPU: most}},
    }


@pytest.fixture(scope="module")
def answering(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A cluster whose controller and answers run: red borrows what blue lends, and one pod of red waits."""
    folder = tmp_path_factory.mktemp("answers")
    users = (SERVICE_ACCOUNT, User(MEMBER), User(STRANGER))
    flags = proxy_flags(folder / "proxy")
    ports = Ports()
    with ControlPlane.start(users=users, apiserver_flags=flags) as plane:
        webhook, answers = ports.take(), ports.take()
        install(plane, webhook)
        register(plane, answers)
        Replica(plane, "answered", (*STEADY, "--webhook-port", str(webhook)))
        AnswersReplica(plane, answers)
        plane.add_nodes(1, {GPU: "4"}, prefix="gpu")
        for namespace, least in ((RED, 1), (BLUE, 3)):
            plane.create_namespace(namespace, {"bursar.dev/quota": "enforced"})
            eventually(partial(_applied, plane, _quota(namespace, least, 4)), "the webhook takes a quota")
        for name in ("r1", "r2", "r3"):
            plane.api().create(f"/api/v1/namespaces/{RED}/pods", _pod(name, 1))
            eventually(partial(_node, plane, RED, name), f"{name} is bound")
        plane.api().create(f"/api/v1/namespaces/{RED}/pods", _pod("waits", 2))
        plane.kubectl("create", "rolebinding", "viewers", "--clusterrole=view", f"--user={MEMBER}", "-n", BLUE)
        eventually(lambda: may(plane.api(), MEMBER, "get", EXPLANATIONS, BLUE), "roles are filled")
        await_answers(plane)
        eventually(lambda: _items(plane, ADMIN, "queue"), "the pod is in the queue")
        yield plane
    ports.close()


def _applied(plane: ControlPlane, body: dict[str, Any]) -> bool:
    return "error" not in plane.kubectl("apply", "-f", "-", input=json.dumps(body), check=False).lower()


def _node(plane: ControlPlane, namespace: str, name: str) -> str:
    found: str = plane.api().get(f"/api/v1/namespaces/{namespace}/pods/{name}")["spec"].get("nodeName", "")
    return found


def _items(plane: ControlPlane, user: str, path: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = plane.api(user).get(f"{ROOT}/{path}")["items"]
    return found


def _status(plane: ControlPlane, user: str, path: str, body: dict[str, Any] | None = None) -> int:
    try:
        plane.api(user).get(f"{ROOT}/{path}") if body is None else plane.api(user).create(f"{ROOT}/{path}", body)
    except ApiError as error:
        return error.status
    return 200


SEES = [
    ("namespaces/answers-red/explanations/waits", {ADMIN: 200, MEMBER: 403, STRANGER: 403}),
    ("namespaces/answers-red/claims", {ADMIN: 200, MEMBER: 403, STRANGER: 403}),
    ("namespaces/answers-red/queue", {ADMIN: 200, MEMBER: 403, STRANGER: 403}),
    ("namespaces/answers-blue/claims", {ADMIN: 200, MEMBER: 200, STRANGER: 403}),
    ("namespaces/answers-blue/queue", {ADMIN: 200, MEMBER: 200, STRANGER: 403}),
    ("namespaces/answers-blue/quotas", {ADMIN: 200, MEMBER: 200, STRANGER: 403}),
    ("namespaces/answers-blue/explanations/none", {ADMIN: 404, MEMBER: 404, STRANGER: 403}),
    ("claims", {ADMIN: 200, MEMBER: 403, STRANGER: 403}),
    ("queue", {ADMIN: 200, MEMBER: 403, STRANGER: 403}),
    ("quotas", {ADMIN: 200, MEMBER: 403, STRANGER: 403}),
    ("nodes", {ADMIN: 200, MEMBER: 403, STRANGER: 403}),
    ("gpus", {ADMIN: 200, MEMBER: 403, STRANGER: 403}),
]


@pytest.mark.parametrize(("path", "statuses"), SEES, ids=[path for path, _ in SEES])
def test_who_may_ask_what(answering: ControlPlane, path: str, statuses: dict[str, int]) -> None:
    assert {user: _status(answering, user, path) for user in statuses} == statuses


def test_a_member_of_one_team_plans_without_learning_who_the_others_are(answering: ControlPlane) -> None:
    path = f"{ROOT}/namespaces/{BLUE}/whatifs"
    pod = _pod("new", 3, BLUE)
    (all_of_it,) = answering.api().create(path, pod)["pods"]
    assert all_of_it["verdict"] == "after-evictions"
    assert sorted(all_of_it["victims"]) == [f"{RED}/r2", f"{RED}/r3"]
    answer = answering.api(MEMBER).create(path, pod)
    assert answer["pods"][0]["verdict"] == "after-evictions"
    assert answer["pods"][0]["victims"] == ["2 pods of other namespaces"]
    assert f"{RED}/" not in json.dumps(answer)
    assert _status(answering, MEMBER, f"namespaces/{BLUE}/whatifs", _pod("new", 1, RED)) == 403
    assert _status(answering, STRANGER, f"namespaces/{BLUE}/whatifs", pod) == 403


def test_quotas_of_others_are_numbers(answering: ControlPlane) -> None:
    rows = {row["namespace"]: row for row in _items(answering, MEMBER, f"namespaces/{BLUE}/quotas")}
    assert set(rows) == {BLUE}
    explained = answering.api(MEMBER).get(f"{ROOT}/namespaces/{BLUE}/quotaexplanations?kind=quota&key={RED}/quota")
    (item,) = explained["items"]
    assert item["counts"] == 3
    assert item["waiting"] == ["a pod of another namespace"]
    assert f"{RED}/waits" not in json.dumps(explained)


def test_kubectl_knows_the_resources_and_prints_an_explanation(answering: ControlPlane) -> None:
    listed = answering.kubectl("api-resources", "--api-group=answers.bursar.dev", "-o", "name").split()
    assert EXPLANATIONS in listed
    text = answering.kubectl(
        "get", "explanations.answers.bursar.dev", "waits", "-n", RED, "-o", "jsonpath={.claim.reason}"
    )
    assert text.startswith("elastic.")
    assert answering.kubectl("get", "queue.answers.bursar.dev", "-n", RED, "-o", "name").split() == [
        "queueentry.answers.bursar.dev/waits"
    ]
    assert "explanations" in answering.kubectl("explain", EXPLANATIONS, check=False).lower()


def test_only_the_api_server_is_let_in(answering: ControlPlane) -> None:
    found = answering.api().get("/apis/apiregistration.k8s.io/v1/apiservices/v1alpha1.answers.bursar.dev")
    with pytest.raises((ssl.SSLError, ConnectionError)):
        _forged(found["spec"]["service"]["port"])


def _forged(port: int) -> int:
    """The status of a request that names itself an administrator, without the certificate of the API server."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    connection = HTTPSConnection("127.0.0.1", port, timeout=10, context=context)
    headers = {"X-Remote-User": "admin", "X-Remote-Group": "system:masters"}
    connection.request("GET", f"{ROOT}/queue", headers=headers)
    return connection.getresponse().status


def _ask(plane: ControlPlane, *arguments: str, user: str = ADMIN) -> subprocess.CompletedProcess[str]:
    """As kubectl runs its plugins: by the name of the program."""
    plugin = Path(sys.executable).parent / "kubectl-bursar"
    environment = os.environ | {"KUBECONFIG": str(plane.kubeconfig_of(user)), "COLUMNS": "120"}
    command = [str(plugin)] if plugin.exists() else [sys.executable, "-m", "bursar"]
    flags = [] if plugin.exists() else ["--cluster"]
    return subprocess.run([*command, *arguments, *flags], env=environment, capture_output=True, text=True, check=False)


def test_a_member_without_cluster_rights_asks_why_the_own_pod_waits(answering: ControlPlane) -> None:
    answering.kubectl("create", "rolebinding", "viewers", "--clusterrole=view", f"--user={MEMBER}", "-n", RED)
    eventually(lambda: _status(answering, MEMBER, f"namespaces/{RED}/claims") == 200, "the member may view red", 30)
    done = _ask(answering, "explain", f"{RED}/waits", user=MEMBER)
    assert done.returncode == 0, done.stderr
    assert "note:" not in done.stderr
    assert "elastic." in done.stdout
    assert _ask(answering, "explain", f"{RED}/waits", user=STRANGER).returncode != 0
    answering.kubectl("delete", "rolebinding", "viewers", "-n", RED)


def test_commands_ask_the_api_and_not_a_copy(answering: ControlPlane, tmp_path: Path) -> None:
    for words in (("get", "queue"), ("get", "quotas"), ("get", "claims"), ("get", "nodes"), ("get", "gpus"), ("top",)):
        done = _ask(answering, *words)
        assert done.returncode == 0, done.stderr
        assert "note:" not in done.stderr
    assert [line.split()[1:3] for line in _ask(answering, "get", "queue").stdout.splitlines()[1:]] == [[RED, "waits"]]
    file = tmp_path / "quota.json"
    file.write_text(json.dumps(_quota(RED, 2, 6)))
    done = _ask(answering, "plan", "-f", str(file))
    assert done.returncode == 0, done.stderr
    assert "Nothing was changed" in done.stdout
    done = _ask(answering, "get", "queue", "-n", BLUE, user=MEMBER)
    assert done.returncode == 0, done.stderr
