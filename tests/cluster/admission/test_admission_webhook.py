"""The webhook on a real API server, with certificates that it made itself: end to end, renewed, and down."""

import base64
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest

from bursar.kube.admission.certs import LIFETIME
from bursar.kube.admission.manifests import gate_hooks, quota_hooks
from bursar.kube.admission.predicate import CERTIFICATES, GATE, AdmissionOptions
from bursar.policies.plugin import default_registry
from tests.cluster.admission.users import Acting, apply
from tests.cluster.admission.webhook_replica import Replica, at_port, open_definitions
from tests.cluster.controlplane import ApiError, ControlPlane
from tests.cluster.controlplane.api import Object
from tests.cluster.controlplane.identities import ADMIN
from tests.cluster.installation import await_definitions
from tests.cluster.waiting import eventually

POOLS = "quota.scheduling.koordinator.sh/"
HOOKS = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/bursar-quotas"
GATE_HOOKS = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/bursar-gate"
BY_LABEL = {"quota.bursar.dev/lab": "x"}
SECRET = f"/api/v1/namespaces/bursar-system/secrets/{CERTIFICATES}"
QUOTAS = "/apis/scheduling.sigs.k8s.io/v1alpha1/namespaces/{}/elasticquotas"


@pytest.fixture(scope="module")
def replica(guarded: ControlPlane) -> Iterator[Replica]:
    """A leading replica whose certificates the API server trusts."""
    for definition in open_definitions():
        apply(guarded, definition)
    await_definitions(guarded)
    replica = Replica(guarded)
    port = replica.start()
    for configuration in quota_hooks(AdmissionOptions(), default_registry()):
        apply(guarded, at_port(configuration, port))
    replica.sync()
    yield replica
    replica.stop()
    for kind in ("mutatingwebhookconfigurations", "validatingwebhookconfigurations"):
        guarded.api().delete(f"{HOOKS.rpartition('/')[0].rpartition('/')[0]}/{kind}/bursar-quotas")


@pytest.fixture
def quotas(replica: Replica, guarded: ControlPlane) -> Iterator[str]:
    """A namespace for quotas, once the webhook answers."""
    assert replica.tls.loaded is not None
    namespace = guarded.create_namespace()
    eventually(lambda: _answers(guarded, namespace), "the webhook answers")
    yield namespace
    for name in ("team", "org"):
        _drop(guarded, namespace, name)
    guarded.delete_namespace(namespace)


def _answers(plane: ControlPlane, namespace: str) -> bool:
    try:
        plane.api().create(QUOTAS.format(namespace) + "?dryRun=All", quota("probe"))
    except ApiError as error:
        if "failed calling webhook" not in error.message:
            raise
        return False
    return True


def _drop(plane: ControlPlane, namespace: str, name: str) -> None:
    plane.kubectl("delete", "elasticquotas.scheduling.sigs.k8s.io", name, f"-n{namespace}", "--ignore-not-found")


def quota(name: str, labels: dict[str, str] | None = None, **spec: Any) -> Object:  # noqa: ANN401 any field
    return {
        "apiVersion": "scheduling.sigs.k8s.io/v1alpha1",
        "kind": "ElasticQuota",
        "metadata": {"name": name, "labels": {POOLS + key: value for key, value in (labels or {}).items()}},
        "spec": {"max": {"cpu": "40"}, "min": {"cpu": "10"}} | spec,
    }


def create(plane: ControlPlane, namespace: str, body: Object) -> Object:
    return plane.api().create(QUOTAS.format(namespace), body)


def bundle(plane: ControlPlane) -> bytes:
    return base64.b64decode(plane.api().get(HOOKS)["webhooks"][0]["clientConfig"].get("caBundle", ""))


# Quotas


def test_parent_tree_and_weight_are_filled_in(guarded: ControlPlane, quotas: str) -> None:
    create(guarded, quotas, quota("org", {"is-parent": "true", "tree-id": "t1"}))
    made = create(guarded, quotas, quota("team", {"parent": "org"}))["metadata"]
    assert made["labels"] == {POOLS + "parent": "org", POOLS + "tree-id": "t1"}
    assert made["annotations"] == {POOLS + "shared-weight": '{"cpu":"40"}'}


def test_a_refusal_reaches_whoever_asked(guarded: ControlPlane, quotas: str) -> None:
    with pytest.raises(ApiError) as error:
        create(guarded, quotas, quota("team", {"parent": "nobody"}))
    assert error.value.status == 422
    assert "denied the request: ElasticQuota" in error.value.message
    assert error.value.message.endswith(f"{quotas}/team: metadata.labels.{POOLS}parent: there is no quota nobody")


def test_an_update_is_judged(guarded: ControlPlane, quotas: str) -> None:
    create(guarded, quotas, quota("team"))
    with pytest.raises(ApiError, match="cannot change from '' to 't2'"):
        guarded.api().patch(f"{QUOTAS.format(quotas)}/team", {"metadata": {"labels": {POOLS + "tree-id": "t2"}}})


def test_a_parent_is_not_deleted(guarded: ControlPlane, quotas: str) -> None:
    create(guarded, quotas, quota("org", {"is-parent": "true"}))
    create(guarded, quotas, quota("team", {"parent": "org"}))
    with pytest.raises(ApiError, match="has children: team"):
        guarded.api().delete(f"{QUOTAS.format(quotas)}/org")


def test_a_quota_in_use_is_not_deleted(guarded: ControlPlane, quotas: str) -> None:
    create(guarded, quotas, quota("team"))
    user = Acting(guarded, quotas)
    user.create_pod("one", labels={POOLS + "name": "team"})
    with pytest.raises(ApiError, match=rf"ElasticQuota {quotas}/team: is in use by 1 pod: {quotas}/one"):
        guarded.api().delete(f"{QUOTAS.format(quotas)}/team")
    guarded.api().delete(f"{user.pods}/one", {"gracePeriodSeconds": 0})
    guarded.api().delete(f"{QUOTAS.format(quotas)}/team")


def test_a_dry_run_leaves_nothing(guarded: ControlPlane, quotas: str) -> None:
    made = guarded.api().create(QUOTAS.format(quotas) + "?dryRun=All", quota("team"))
    assert made["metadata"]["annotations"] == {POOLS + "shared-weight": '{"cpu":"40"}'}
    assert guarded.api().get(QUOTAS.format(quotas))["items"] == []


def test_a_status_is_written_without_asking(guarded: ControlPlane, quotas: str) -> None:
    create(guarded, quotas, quota("team"))
    guarded.api().patch(f"{QUOTAS.format(quotas)}/team/status", {"status": {"used": {"cpu": "1"}}})


# Certificates


def test_the_bundle_is_that_of_the_secret(guarded: ControlPlane, replica: Replica) -> None:
    data = guarded.api().get(SECRET)["data"]
    assert bundle(guarded) == base64.b64decode(data["ca.crt"])
    assert replica.tls.loaded is not None
    assert replica.tls.loaded.key == base64.b64decode(data["tls.key"])


def test_another_pass_changes_nothing(guarded: ControlPlane, replica: Replica) -> None:
    before = (
        guarded.api().get(SECRET)["metadata"]["resourceVersion"],
        guarded.api().get(HOOKS)["metadata"]["generation"],
    )
    replica.sync()
    after = guarded.api().get(SECRET)["metadata"]["resourceVersion"], guarded.api().get(HOOKS)["metadata"]["generation"]
    assert before == after


def test_a_lost_bundle_is_put_back(guarded: ControlPlane, replica: Replica) -> None:
    operation = {"op": "remove", "path": "/webhooks/0/clientConfig/caBundle"}
    guarded.api().patch(HOOKS, [operation], "application/json-patch+json")
    replica.sync()
    assert bundle(guarded) == base64.b64decode(guarded.api().get(SECRET)["data"]["ca.crt"])


@pytest.mark.parametrize("hours", [1, -1], ids=["ahead", "behind"])
def test_a_certificate_of_a_replica_whose_clock_is_wrong_is_trusted(
    guarded: ControlPlane, replica: Replica, quotas: str, hours: int
) -> None:
    before = bundle(guarded)
    guarded.api().delete(SECRET)
    replica.ahead = timedelta(hours=hours)
    replica.sync()
    replica.ahead = timedelta()
    assert bundle(guarded) != before
    eventually(lambda: _answers(guarded, quotas), "the webhook answers")


def test_certificates_are_renewed_in_time_and_quotas_can_be_changed_all_along(
    guarded: ControlPlane, replica: Replica, quotas: str
) -> None:
    guarded.api().delete(SECRET)
    replica.ahead = timedelta(days=29) - LIFETIME  # so that it makes one that has 29 days left now
    replica.sync()
    replica.ahead = timedelta()
    eventually(lambda: _answers(guarded, quotas), "the old certificate is trusted")
    before = replica.tls.loaded
    assert before is not None
    with _follower(guarded) as follower, ThreadPoolExecutor(1) as pool:
        assert follower.tls.loaded == before
        renewal = pool.submit(replica.sync)
        while not renewal.done():
            assert _answers(guarded, quotas)
        renewal.result()
        after = replica.tls.loaded
        assert after is not None
        assert after.certificate != before.certificate
        assert _answers(guarded, quotas)
        assert bundle(guarded) == after.authorities
        assert after.authorities.endswith(before.authorities), "who serves the one before is trusted still"
        follower.sync()
        assert follower.tls.loaded == after


@contextmanager
def _follower(plane: ControlPlane) -> Iterator[Replica]:
    follower = Replica(plane, leading=False)
    follower.start()
    follower.sync()
    try:
        yield follower
    finally:
        follower.stop()


def test_what_is_stored_may_be_lost_or_damaged(guarded: ControlPlane, replica: Replica, quotas: str) -> None:
    guarded.api().patch(SECRET, {"data": {"tls.key": base64.b64encode(b"rubbish").decode()}})
    replica.sync()
    eventually(lambda: _answers(guarded, quotas), "the webhook answers after the Secret was damaged")
    guarded.api().delete(SECRET)
    replica.sync()
    eventually(lambda: _answers(guarded, quotas), "the webhook answers after the Secret was lost")


# The gate for servers without MutatingAdmissionPolicy


@contextmanager
def _gated_by_webhook(plane: ControlPlane, replica: Replica) -> Iterator[None]:
    """The webhook instead of the policies, which are put back in the end. Between the two governed pods are refused."""
    enforced = Acting(plane, plane.create_namespace(labels={"bursar.dev/quota": "enforced"}))
    ordinary = Acting(plane, plane.create_namespace())

    def ungated() -> bool:
        return all("needs the scheduling gate" in _refusal(*one) for one in ((enforced, {}), (ordinary, BY_LABEL)))

    policies = "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicybindings/bursar-gate-"
    kept = [plane.api().get(policies + name) for name in ("enforced", "marked")]
    for name in ("enforced", "marked"):
        plane.api().delete(policies + name)
    eventually(ungated, "the policies are gone")
    port = int(plane.api().get(HOOKS)["webhooks"][0]["clientConfig"]["url"].split(":")[2].split("/")[0])
    for configuration in gate_hooks(AdmissionOptions()):
        apply(plane, at_port(configuration, port))
    replica.sync()
    try:
        yield
    finally:
        plane.api().delete(GATE_HOOKS)
        eventually(ungated, "the webhook is gone")
        for binding in kept:
            apply(plane, {**binding, "metadata": {"name": binding["metadata"]["name"]}})
        eventually(lambda: _quietly(lambda: enforced.gates(enforced.create_pod("x", dry_run=True))), "the gate")
        eventually(
            lambda: _quietly(lambda: ordinary.gates(ordinary.create_pod("x", labels=BY_LABEL, dry_run=True))),
            "the gate for pods that name a quota",
        )


def test_the_fallback_gates_the_same_pods(guarded: ControlPlane, replica: Replica) -> None:
    enforced = Acting(guarded, guarded.create_namespace(labels={"bursar.dev/quota": "enforced"}))
    ordinary = Acting(guarded, guarded.create_namespace())

    def gated() -> bool:
        made = enforced.create_pod("one", gates=("example.com/a",), schedulerName="volcano", dry_run=True)
        return enforced.gates(made) == ["example.com/a", GATE] and made["spec"]["schedulerName"] == "default-scheduler"

    with _gated_by_webhook(guarded, replica):
        eventually(lambda: _quietly(gated), "the fallback gates pods")
        assert ordinary.gates(ordinary.create_pod("one", dry_run=True)) == []
        marked = ordinary.create_pod("one", labels=BY_LABEL, dry_run=True)
        assert ordinary.gates(marked) == [GATE]
        assert marked["metadata"]["managedFields"]


def test_with_the_fallback_down_governed_pods_are_refused_and_others_are_not(
    guarded: ControlPlane, replica: Replica
) -> None:
    enforced = Acting(guarded, guarded.create_namespace(labels={"bursar.dev/quota": "enforced"}))
    ordinary = Acting(guarded, guarded.create_namespace())
    with _gated_by_webhook(guarded, replica):
        eventually(lambda: _quietly(lambda: enforced.gates(enforced.create_pod("one", dry_run=True))), "it answers")
        enforced.create_pod("there-before")
        hooks = guarded.api().get(GATE_HOOKS)["webhooks"]
        dead = "https://127.0.0.1:1/gate-pods"
        paths = [f"/webhooks/{number}/clientConfig/url" for number in range(len(hooks))]
        guarded.api().patch(
            GATE_HOOKS,
            [{"op": "replace", "path": path, "value": dead} for path in paths],
            "application/json-patch+json",
        )
        eventually(lambda: "failed calling webhook" in _refusal(enforced, {}), "nobody answers")
        eventually(lambda: "failed calling webhook" in _refusal(ordinary, BY_LABEL), "nor for pods that name a quota")
        assert ordinary.gates(ordinary.create_pod("one")) == []
        assert enforced.merge(ADMIN, "there-before", {"metadata": {"labels": {"example.com/a": "b"}}})
        enforced.plane.api().delete(f"{enforced.pods}/there-before")


def _refusal(acting: Acting, labels: dict[str, str]) -> str:
    try:
        acting.create_pod("one", labels=labels, dry_run=True)
    except ApiError as error:
        return error.message
    return ""


def _quietly(look: Any) -> bool:  # noqa: ANN401 a callable
    try:
        return bool(look())
    except ApiError:
        return False


# Down


def test_with_the_webhook_down_quotas_stand_still_and_pods_do_not(guarded: ControlPlane, quotas: str) -> None:
    hooks = guarded.api().get(HOOKS)["webhooks"]
    url = hooks[0]["clientConfig"]["url"]
    port = url.split(":")[2].split("/")[0]
    dead = {"op": "replace", "path": "/webhooks/0/clientConfig/url", "value": url.replace(port, "1")}
    guarded.api().patch(HOOKS, [dead], "application/json-patch+json")
    eventually(lambda: not _answers(guarded, quotas), "the webhook is down")
    with pytest.raises(ApiError, match="failed calling webhook") as error:
        create(guarded, quotas, quota("team"))
    assert error.value.status == 500
    ordinary = Acting(guarded, quotas)
    assert ordinary.gates(ordinary.create_pod("one")) == []
    assert ordinary.gates(ordinary.create_pod("two", user=ADMIN, labels={"quota.bursar.dev/lab": "x"})) == [GATE]
    back = {"op": "replace", "path": "/webhooks/0/clientConfig/url", "value": url}
    guarded.api().patch(HOOKS, [back], "application/json-patch+json")
    eventually(lambda: _answers(guarded, quotas), "the webhook is back")
