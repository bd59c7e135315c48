"""Commands that ask a live cluster: which those are, what they are not asked, and what is said when nobody answers."""

import asyncio
import socket
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml
from click.testing import CliRunner, Result

from bursar.cli import exit_codes
from bursar.cli.main import cli
from tests.kube.controller.stage import Stage, stage

NOTE = "note: this cluster has no answers API of Bursar: the answer is made here, from a copy\n"


def run(*arguments: str) -> Result:
    return CliRunner().invoke(cli, arguments, prog_name="bursar")


@pytest.fixture
def nobody(tmp_path: Path) -> str:
    """The kubeconfig of a cluster that is not there."""
    return kubeconfig(tmp_path, "http://127.0.0.1:1")


def kubeconfig(folder: Path, url: str, **context: str) -> str:
    config = {
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u", **context}}],
        "clusters": [{"name": "c", "cluster": {"server": url}}],
        "users": [{"name": "u", "user": {}}],
    }
    path = folder / "config"
    path.write_text(yaml.safe_dump(config))
    return str(path)


@pytest.mark.parametrize("options", [[], ["--cluster"], ["--context", "c"]])
def test_whoever_names_a_kubeconfig_means_its_cluster(nobody: str, options: list[str]) -> None:
    result = run("get", "pods", "--kubeconfig", nobody, *options)
    assert result.exit_code == exit_codes.UNREACHABLE
    first, second = result.stderr.removeprefix(NOTE).splitlines()
    assert first.startswith("error: the cluster does not answer: get /apis/answers.bursar.dev/v1alpha1")
    assert second == "  name another one with --kubeconfig or --context"


@pytest.mark.parametrize("command", [["get", "pods"], ["controller"]])
def test_a_kubeconfig_that_is_not_there_is_bad_input(tmp_path: Path, command: list[str]) -> None:
    result = run(*command, "--kubeconfig", str(tmp_path / "none"))
    assert result.exit_code == exit_codes.BAD_INPUT
    assert result.stderr.startswith(f"error: {tmp_path / 'none'}: ")


@pytest.mark.parametrize(
    "command",
    [
        ["history"],
        ["history", "a/p"],
        ["diff", "--from", "1"],
        ["get", "pods", "--at", "-1h"],
        ["top", "--at", "-1h"],
        ["explain", "a/p", "--at", "-1h"],
        ["describe", "Pod/a/p", "--at", "-1h"],
    ],
)
def test_a_live_cluster_is_not_asked_about_its_past(nobody: str, command: list[str]) -> None:
    result = run(*command, "--kubeconfig", nobody)
    assert result.exit_code == exit_codes.BAD_INPUT
    assert "a live cluster is known here as it is now; ask a server (--server URL)" in result.stderr


def test_a_controller_whose_port_is_taken_says_which_and_how_to_name_another(nobody: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        result = run("controller", "--kubeconfig", nobody, "--host", "127.0.0.1", "--health-port", str(port))
    assert result.exit_code == exit_codes.FAILED
    assert f"error: cannot listen on 127.0.0.1:{port}: Address already in use\n" in result.stderr
    assert "--health-port" in result.stderr


def test_a_controller_that_only_looks_on_sends_nothing_to_be_checked(nobody: str) -> None:
    result = run("controller", "--kubeconfig", nobody, "--shadow", "--dry-run")
    assert result.exit_code == exit_codes.BAD_INPUT
    assert "choose one of them" in result.stderr


class Watching:
    """Between the looks of a command something happens to the cluster; after the third it is interrupted."""

    def __init__(self, cluster: Stage, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.cluster = cluster
        self.config = kubeconfig(folder, cluster.fake.url)
        self.pauses: list[float] = []
        watched = SimpleNamespace(sleep=self._sleep, monotonic=time.monotonic)
        monkeypatch.setattr("bursar.cli.output.time", watched)  # of no other thread
        monkeypatch.setattr("bursar.cli.tables.age", lambda *_: "1s")  # nothing grows older

    def _sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        if len(self.pauses) == 1:
            self.cluster.bind(self.cluster.pod("a", "second", 2, gated=False), "n")
            Path(self.config).unlink()  # or it names another cluster by now, which this is not about
        if len(self.pauses) == 3:
            raise KeyboardInterrupt

    async def __call__(self, *command: str) -> Result:
        self.cluster.node("n", 8)
        self.cluster.namespace("a")
        self.cluster.bind(self.cluster.pod("a", "first", 1, gated=False), "n")
        return await asyncio.to_thread(run, *command, "--kubeconfig", self.config, "--watch")


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("command", "title", "seen"),
    [
        (["get", "pods"], "NAMESPACE", ["first", "first", "second"]),
        (["top", "nodes", "-r", "gpu"], "NODE", ["12", "37"]),
    ],
)
async def test_who_watches_a_live_cluster_sees_what_changes_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: list[str], title: str, seen: list[str]
) -> None:
    async with stage() as cluster:
        result = await Watching(cluster, tmp_path, monkeypatch)(*command)
        assert result.exit_code == exit_codes.OK, result.output
        assert result.output.count(title) == 2, "once as it was, once as it is, and no third time"
        assert [word for word in result.output.split() if word in seen] == seen


@pytest.mark.anyio
async def test_what_cannot_be_read_is_said_once_however_often_one_looks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with stage() as cluster:
        cluster.fake.fail("GET .*/priorityclasses", code=403, times=100)
        watching = Watching(cluster, tmp_path, monkeypatch)
        result = await watching("get", "pods", "--interval", "0.1")
        assert result.stderr == f"{NOTE}warning: not readable, and left out: priorityclasses\n"
        assert all(pause >= 0.1 for pause in watching.pauses)


# Manifests that name no namespace

BIG_POD = """
kind: Pod
apiVersion: v1
metadata: {name: big}
spec: {containers: [{name: c, resources: {requests: {nvidia.com/gpu: 2}, limits: {nvidia.com/gpu: 2}}}]}
"""
RAISED = """
kind: ElasticQuota
apiVersion: n8s.nebuly.ai/v1alpha1
metadata: {name: quota}
spec: {min: {nvidia.com/gpu: 2}, max: {nvidia.com/gpu: 2}}
---
kind: Node
apiVersion: v1
metadata: {name: other}
status: {allocatable: {nvidia.com/gpu: 1}}
"""


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("command", "manifests", "said"),
    [
        ("what-if", BIG_POD, ["a/big", "elastic.max.nvidia.com/gpu"]),
        ("plan", RAISED, ["ElasticQuota/a/quota changed", "Node/other created"]),
        ("what-if", BIG_POD.replace("name: big", "name: big, namespace: b"), ["b/big", "now"]),
        ("what-if", BIG_POD.replace("{name: big}", "[]"), ["metadata"]),
        ("what-if", BIG_POD.replace("kind: Pod", "kind: [Pod]"), ["kind"]),
    ],
)
async def test_manifests_without_a_namespace_are_of_that_of_the_context_as_for_kubectl(
    tmp_path: Path, command: str, manifests: str, said: list[str]
) -> None:
    file = tmp_path / "manifests.yaml"
    file.write_text(manifests)
    async with stage() as cluster:
        cluster.node("n", 8)
        cluster.namespace("a")
        cluster.quota("a", 1)
        config = kubeconfig(tmp_path, cluster.fake.url, namespace="a")
        result = await asyncio.to_thread(run, command, "-f", str(file), "--kubeconfig", config)
        for words in said:
            assert words in result.output


# Pods that the copy does not have, or not where they are


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("pod", "said"),
    [
        ("free/waits", "free/waits waits, but not for Bursar: no quota governs it"),
        ("a/ended", "a/ended has ended"),
        ("a/leaves", "a/leaves is being deleted"),
        ("a/nobody", "there is no claim 'a/nobody'"),
    ],
)
async def test_a_pod_that_bursar_does_not_decide_over_is_said_to_be_such(tmp_path: Path, pod: str, said: str) -> None:
    async with stage() as cluster:
        cluster.namespace("a")
        cluster.quota("a", 1)
        cluster.pod("free", "waits", gated=False)
        cluster.delete(cluster.pod("a", "leaves", finalizers=["example.org/stays"]))
        cluster.change(cluster.pod("a", "ended"), lambda body: body.update(status={"phase": "Failed"}))
        config = kubeconfig(tmp_path, cluster.fake.url)
        result = await asyncio.to_thread(run, "explain", pod, "--kubeconfig", config)
        assert result.exit_code == exit_codes.FAILED
        assert result.stderr.removeprefix(NOTE).splitlines()[0] == f"error: {said}"


@pytest.mark.anyio
async def test_a_pod_that_others_gate_is_said_to_wait_for_them(tmp_path: Path) -> None:
    async with stage() as cluster:
        cluster.node("n", 8)
        cluster.namespace("a")
        cluster.quota("a", 2)
        gates = [{"name": "bursar.dev/quota"}, {"name": "example.org/wait"}]
        cluster.pod("a", "p", gated=False, schedulingGates=gates)
        config = kubeconfig(tmp_path, cluster.fake.url)
        result = await asyncio.to_thread(run, "explain", "a/p", "--kubeconfig", config)
        assert result.exit_code == exit_codes.FAILED
        said = "a/p waits: other scheduling gates hold it back: example.org/wait"
        assert result.stderr.removeprefix(NOTE).splitlines()[0] == f"error: {said}"


@pytest.mark.anyio
async def test_what_the_scheduler_says_about_a_started_pod_is_explained(tmp_path: Path) -> None:
    async with stage() as cluster:
        cluster.node("n", 8)
        cluster.namespace("a")
        cluster.quota("a", 2)
        pod = cluster.pod("a", "p", gated=False)
        record = '{"seq": 1, "term": 0, "place": "n"}'
        cluster.change(pod, lambda body: body["metadata"].update(annotations={"bursar.dev/admission": record}))
        condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1 nodes"}
        cluster.change(pod, lambda body: body.update(status={"phase": "Pending", "conditions": [condition]}))
        config = kubeconfig(tmp_path, cluster.fake.url)
        result = await asyncio.to_thread(run, "explain", "a/p", "--kubeconfig", config)
        assert "scheduler: finds no node: 0/1 nodes [control.unscheduled]" in " ".join(result.output.split())


@pytest.mark.anyio
async def test_pods_on_a_node_that_is_gone_count_in_their_quotas_as_for_the_controller(tmp_path: Path) -> None:
    async with stage() as cluster:
        cluster.node("n", 8)
        cluster.namespace("a")
        cluster.quota("a", 2)
        cluster.bind(cluster.pod("a", "lost", 2), "gone")
        cluster.pod("a", "waits", 1)
        config = kubeconfig(tmp_path, cluster.fake.url)
        result = await asyncio.to_thread(run, "get", "pods", "--kubeconfig", config)
        assert result.stderr == NOTE
        rows = [line.split() for line in result.stdout.splitlines()]
        assert [row[1:3] for row in rows[1:]] == [["lost", "Running"], ["waits", "Pending"]]
        assert rows[2][-1] == "elastic.max.nvidia.com/gpu"
        node = await asyncio.to_thread(run, "get", "Node", "gone", "-o", "yaml", "--kubeconfig", config)
        status = yaml.safe_load(node.stdout)["status"]
        assert status["allocatable"] == {"cpu": "0", "memory": "0", "pods": "0"}


@pytest.mark.anyio
async def test_pods_whose_quota_is_wrong_wait_for_it_as_they_do_for_the_controller(tmp_path: Path) -> None:
    async with stage() as cluster:
        cluster.node("n", 8)
        for name in ("a", "b"):
            cluster.namespace(name)
        cluster.quota("a", most=1, least=2)
        for name in ("p0", "p1", "p2", "p3", "p4"):
            cluster.pod("a", name)
        cluster.pod("b", "free")
        config = kubeconfig(tmp_path, cluster.fake.url)
        result = await asyncio.to_thread(run, "explain", "a/p4", "--kubeconfig", config)
        assert result.exit_code == exit_codes.FAILED
        wrong, left_out, said = result.stderr.removeprefix(NOTE).splitlines()[:3]
        assert wrong.startswith("warning: ElasticQuota a/quota: ")
        assert left_out == "warning: left out until their quota is put right: a/p0, a/p1, a/p2 and 2 more"
        assert said.startswith("error: a/p4 waits: its quota ElasticQuota.n8s.nebuly.ai a/quota is not in force")
        listing = await asyncio.to_thread(run, "get", "pods", "--kubeconfig", config)
        assert "free" in listing.stdout
        assert "p0" not in listing.stdout


@pytest.mark.anyio
async def test_a_pod_that_quota_alone_admits_waits_for_no_node(tmp_path: Path) -> None:
    async with stage() as cluster:
        cluster.namespace("a")
        cluster.change_namespace("a", {"bursar.dev/place": "scheduler"})
        cluster.quota("a", 1)
        cluster.pod("a", "one")
        cluster.pod("a", "two")
        config = kubeconfig(tmp_path, cluster.fake.url)
        first, second = [
            await asyncio.to_thread(run, "explain", f"a/{name}", "--kubeconfig", config) for name in ("one", "two")
        ]
    assert "one is running" in first.output
    assert "elastic.total" in second.output
