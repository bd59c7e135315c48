"""What is asked for, as pods; and who may ask."""

from __future__ import annotations

from typing import Any

import pytest

from bursar.local.callers import LocalRights, LocalUser
from bursar.local.devices.api import GpuDevice
from bursar.local.submission import (
    JobRefusedError,
    Machine,
    SubmitRequest,
    options_in,
    pods_of,
    read_request,
    signal_number,
)
from bursar.objects.decode import ManifestError
from bursar.objects.local_options import LocalOptions, LocalSection, Members, local_options

GB = 1 << 30
H100 = GpuDevice("GPU-0", 0, "NVIDIA H100 80GB HBM3", 80 * GB, "1000")
SLICE = GpuDevice("MIG-1", 1, "NVIDIA H100 80GB HBM3 MIG 1g.10gb", 10 * GB, "140", parent="GPU-1")
BOX = Machine("box", 8, 64 * GB, (H100, SLICE))


def pod(**fields: Any) -> dict[str, Any]:  # noqa: ANN401 as the request
    return pods_of(SubmitRequest(["python", "train.py"], **fields), "vision", (1000, "ana"), BOX)[0]


def limits(found: dict[str, Any]) -> dict[str, str]:
    asked: dict[str, str] = found["spec"]["containers"][0]["resources"]["limits"]
    return asked


def worker(found: dict[str, Any]) -> dict[str, str]:
    marks: dict[str, str] = found["metadata"]["annotations"]
    return {key.partition("/")[2]: value for key, value in marks.items() if key.startswith("tensor-fusion.ai/")}


@pytest.mark.parametrize(
    ("asked", "marks", "requested"),
    [
        ({}, {}, {}),
        ({"cpu": "500m", "memory": "2Gi"}, {}, {"cpu": "500m", "memory": "2Gi"}),
        (
            {"gpus": 1},
            {"gpu-count": "1", "isolation": "shared"},
            {"bursar.dev/gpu": "1", "bursar.dev/vram": str(80 * GB)},
        ),
        (
            {"gpus": 1, "gpu_model": "1g.10gb"},
            {"gpu-count": "1", "isolation": "shared", "gpu-model": "H100 MIG 1g.10gb"},
            {"bursar.dev/gpu": "1", "bursar.dev/vram": str(10 * GB)},
        ),
        ({"vram": "20Gi"}, {"gpu-count": "1", "vram-request": str(20 * GB)}, {"bursar.dev/vram": str(20 * GB)}),
        (
            {"gpu_percent": 50},
            {"gpu-count": "1", "vram-request": str(40 * GB), "compute-percent-request": "50"},
            {"bursar.dev/vram": str(40 * GB)},
        ),
        (
            {"tflops": "100"},
            {"gpu-count": "1", "vram-request": str(8 * GB), "tflops-request": "100"},
            {"bursar.dev/vram": str(8 * GB)},
        ),
    ],
    ids=lambda value: ",".join(value) if isinstance(value, dict) else "",
)
def test_what_a_job_asks_for(asked: dict[str, Any], marks: dict[str, str], requested: dict[str, str]) -> None:
    found = pod(**asked)
    assert (worker(found), limits(found)) == (marks, requested)
    assert found["spec"]["nodeSelector"] == {"kubernetes.io/hostname": "box"}


def test_equal_jobs_have_equal_annotations() -> None:
    """So that the queue can tell that they are alike."""
    first, second = pod(gpus=1, time="1h"), pod(gpus=1, time="1h")
    assert first["metadata"]["annotations"] == second["metadata"]["annotations"]
    assert first["metadata"]["name"] != second["metadata"]["name"]


def test_options_come_back_from_the_annotations() -> None:
    options, rank = options_in(pod(time="1h", grace="5s", checkpoint="USR1", requeue=True)["metadata"]["annotations"])
    assert (options.user, options.name, options.time_ms, options.grace_ms) == (1000, "ana", 3_600_000, 5000)
    assert (options.checkpoint, options.requeue, rank) == (10, True, 0)


def test_a_gang_has_ranks_and_its_size() -> None:
    request = SubmitRequest(["mpi"], members=3, name="all")
    pods = pods_of(request, "vision", (1000, "ana"), BOX)
    assert [one["metadata"]["name"] for one in pods] == ["all-0", "all-1", "all-2"]
    assert {one["metadata"]["labels"]["bursar.dev/group-size"] for one in pods} == {"3"}
    assert [options_in(one["metadata"]["annotations"])[1] for one in pods] == [0, 1, 2]


def test_a_private_job_does_not_store_its_command() -> None:
    assert pod(private=True)["spec"]["containers"][0]["command"] == ["(private)"]
    assert pod()["spec"]["containers"][0]["command"] == ["python", "train.py"]


def test_a_long_command_is_stored_shortened() -> None:
    found = pods_of(SubmitRequest(["python", "x" * 5000]), "vision", (1000, "ana"), BOX)[0]
    assert found["spec"]["containers"][0]["command"] == ["python", "..."]


@pytest.mark.parametrize(
    ("asked", "code", "text"),
    [
        ({"gpus": 3}, 1, "3 GPUs are asked for, and box has 2"),
        ({"gpus": 2, "gpu_model": "H100 80GB HBM3 MIG"}, 1, "2 GPUs of model H100 80GB HBM3 MIG"),
        ({"gpus": 1, "gpu_model": "NVIDIA"}, 2, "could be H100, H100 MIG 1g.10gb"),
        ({"gpus": 1, "gpu_model": "A100"}, 1, "1 GPUs of model A100 are asked for, and box has 0"),
        ({"gpus": 1, "members": 3}, 1, "3 GPUs are asked for"),
        ({"vram": "81Gi"}, 1, "no GPU of box is that large"),
        ({"tflops": "1001"}, 1, "no GPU of box is that large"),
        ({"cpu": "5", "members": 2}, 1, "box has 8"),
        ({"memory": "65Gi"}, 1, "box has 64Gi"),
        ({"memory": "-1"}, 2, "--memory"),
        ({"cpu": "much"}, 2, "--cpu"),
        ({"time": "soon"}, 2, "--time"),
        ({"tflops": "1", "gpu_percent": 1}, 2, "say the same"),
        ({"gpu_percent": 101}, 2, "1 to 100"),
        ({"members": 257}, 2, "256"),
        ({"checkpoint": "HUPP"}, 2, "HUPP"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_refused_requests(asked: dict[str, Any], code: int, text: str) -> None:
    with pytest.raises(JobRefusedError, match=text.replace("(", r"\(")) as caught:
        pod(**asked)
    assert caught.value.code == code


def test_a_message_of_the_wrong_shape_is_refused() -> None:
    with pytest.raises(JobRefusedError, match="not understood"):
        read_request({"kind": "submit", "command": "ls"})
    with pytest.raises(JobRefusedError, match="no command"):
        pods_of(SubmitRequest([]), "vision", (1000, "ana"), BOX)


def test_signals_by_name_and_number() -> None:
    assert [signal_number(name) for name in ("", "USR1", "sigusr2", "15")] == [0, 10, 12, 15]


# Who may ask

ANA = LocalUser(1000, 1000, "ana", ("ana", "vision"))
TABLE = LocalOptions({"lab": Members(groups=("vision",)), "ml": Members(users=("bob", "ana"))}, Members(users=("zoe",)))


@pytest.mark.parametrize(
    ("options", "owner", "asked", "team"),
    [
        (LocalOptions(), 0, "", "ana"),
        (LocalOptions(), 0, "vision", "vision"),
        (LocalOptions(), 1000, "anything", "anything"),
        (TABLE, 0, "ml", "ml"),
        (TABLE, 1000, "lab", "lab"),
    ],
)
def test_teams(options: LocalOptions, owner: int, asked: str, team: str) -> None:
    assert LocalRights(options, owner).team(ANA, asked) == team


@pytest.mark.parametrize(
    ("caller", "options", "asked", "text"),
    [
        (ANA, LocalOptions(), "speech", "you are not in team 'speech'; your teams: ana, vision"),
        (ANA, TABLE, "speech", "there is no team 'speech'; your teams: lab, ml"),
        (ANA, TABLE, "", "name the team with -n; your teams: lab, ml"),
        (LocalUser(2, 2, "eve", ()), TABLE, "ml", "you are not in team 'ml'; user eve is in no team"),
        (LocalUser(2, 2, "eve", ()), TABLE, "", "user eve is in no team"),
    ],
)
def test_nobody_submits_for_another_team(caller: LocalUser, options: LocalOptions, asked: str, text: str) -> None:
    with pytest.raises(JobRefusedError, match=text):
        LocalRights(options, 0).team(caller, asked)


def test_own_jobs_and_admins() -> None:
    rights = LocalRights(TABLE, 0)
    rights.check_own(ANA, 1000, "ml/a")
    rights.check_own(LocalUser(5, 5, "zoe", ()), 1000, "ml/a")
    rights.check_own(LocalUser(0, 0, "root", ()), 1000, "ml/a")
    with pytest.raises(JobRefusedError, match="ml/a is a job of another user"):
        rights.check_own(LocalUser(6, 6, "bob", ()), 1000, "ml/a")


def test_an_agent_of_a_user_serves_that_user_only() -> None:
    assert LocalRights(TABLE, 0).serves(7)
    assert LocalRights(TABLE, 1000).serves(1000)
    assert not LocalRights(TABLE, 1000).serves(7)


@pytest.mark.parametrize(
    ("section", "path"),
    [
        (LocalSection(teams={"Bad Team": Members()}), "spec.local.teams.Bad Team"),
        (LocalSection(teams={"a": Members(users=("x y",))}), r"spec.local.teams.a.users\[0\]"),
        (LocalSection(admins=Members(groups=("",))), r"spec.local.admins.groups\[0\]"),
        (LocalSection(grace_period="soon"), "spec.local.gracePeriod"),
        (LocalSection(evict_idle_after="1 day"), "spec.local.evictIdleAfter"),
    ],
)
def test_a_wrong_section_names_the_field(section: LocalSection, path: str) -> None:
    with pytest.raises(ManifestError, match=path):
        local_options(section)
