from pathlib import Path

from tests.cluster.controlplane import ControlPlane
from tests.cluster.controlplane.auditing import WRITES, Call, calls, flags
from tests.cluster.controlplane.identities import ALICE


def test_the_audit_log_has_the_writes_of_one_user(tmp_path: Path) -> None:
    log = tmp_path / "log"
    assert list(calls(log)) == []
    audit = flags(tmp_path / "policy.json", log, ALICE, WRITES)
    with ControlPlane.start(scheduler=False, kwok=False, apiserver_flags=audit) as plane:
        namespace = plane.create_namespace()
        path = f"/api/v1/namespaces/{namespace}/configmaps"
        plane.api(ALICE).create(path, {"metadata": {"name": "mine"}})
        plane.api(ALICE).get(f"{path}/mine")
        plane.api().delete(f"{path}/mine")
    assert list(calls(log)) == [Call("create", "", "configmaps", namespace, "mine", 201)]


def test_a_line_that_is_being_written_is_not_read(tmp_path: Path) -> None:
    log = tmp_path / "log"
    whole = '{"verb": "create", "objectRef": {"resource": "pods", "name": "a"}, "responseStatus": {"code": 201}}\n'
    log.write_text(whole + whole[:40])
    assert [call.name for call in calls(log)] == ["a"]
