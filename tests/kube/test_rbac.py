"""The roles: what the table says, and that nothing in them is wider than it must be."""

from typing import Any

import pytest

from bursar.answers.resources import GROUP, RESOURCES
from bursar.kube import rbac
from bursar.policies.plugin import default_registry

REGISTRY = default_registry()
MANIFESTS = rbac.manifests(REGISTRY, "bursar-system")


def role(kind: str, name: str) -> dict[str, Any]:
    (found,) = [given for given in MANIFESTS if (given["kind"], given["metadata"]["name"]) == (kind, name)]
    return found


def allowed(given: dict[str, Any], group: str, resource: str) -> set[str]:
    rules = [rule for rule in given["rules"] if group in rule["apiGroups"] and resource in rule["resources"]]
    return {verb for rule in rules for verb in rule["verbs"]}


CONTROLLER = role("ClusterRole", "bursar-controller")
OWN = role("Role", "bursar-controller")


def test_nothing_is_a_wildcard() -> None:
    for given in MANIFESTS:
        for rule in given.get("rules", []):
            assert not any("*" in value for values in rule.values() for value in values)


def test_every_kind_is_read_and_its_status_written_if_it_has_one() -> None:
    for kind in rbac.own_kinds(REGISTRY):
        assert {"list", "watch"} <= allowed(CONTROLLER, kind.group, kind.plural)
        written = allowed(CONTROLLER, kind.group, f"{kind.plural}/status")
        assert written == ({"patch"} if kind.has_status else set())


@pytest.mark.parametrize(
    ("group", "resource", "verbs"),
    [
        ("", "pods", {"list", "watch", "patch"}),
        ("", "nodes", {"list", "watch", "patch"}),
        ("", "namespaces", {"get", "list", "watch", "patch"}),
        ("policy", "poddisruptionbudgets", {"list", "watch"}),
        ("", "pods/eviction", {"create"}),
        ("events.k8s.io", "events", {"create", "list", "patch"}),
        ("", "secrets", set()),
        ("", "pods/binding", set()),
        ("", "configmaps", set()),
        ("apps", "deployments", set()),
        ("coordination.k8s.io", "leases", set()),
        ("tensor-fusion.ai", "gpuresourcequotas", {"list", "watch"}),
        ("n8s.nebuly.ai", "elasticquotas", {"list", "watch", "delete"}),
        ("scheduling.sigs.k8s.io", "elasticquotas", {"list", "watch", "create", "delete", "patch"}),
        ("bursar.dev", "configurations", {"list", "watch"}),
    ],
)
def test_what_the_controller_may_do_everywhere(group: str, resource: str, verbs: set[str]) -> None:
    assert allowed(CONTROLLER, group, resource) == verbs


def test_who_only_looks_on_reads_no_events_and_writes_nothing() -> None:
    everywhere, _binding = rbac.controller_roles(REGISTRY, "bursar-system", shadow=True)
    assert {verb for rule in everywhere["rules"] for verb in rule["verbs"]} == {"list", "watch"}
    assert allowed(everywhere, "events.k8s.io", "events") == set()


def test_secrets_and_leases_are_named_except_to_create_them() -> None:
    for rule in OWN["rules"]:
        assert ("resourceNames" in rule) == (rule["verbs"] != ["create"])
    assert allowed(OWN, "", "secrets") == {"create", "get", "patch"}
    assert allowed(OWN, "coordination.k8s.io", "leases") == {"create", "get", "patch"}


def test_webhook_configurations_are_named() -> None:
    (rule,) = [rule for rule in CONTROLLER["rules"] if rule["apiGroups"] == ["admissionregistration.k8s.io"]]
    assert rule["resourceNames"] == ["bursar-quotas", "bursar-gate"]


def test_only_the_service_accounts_are_bound() -> None:
    bindings = [given for given in MANIFESTS if given["kind"].endswith("Binding")]
    bound = [(given["roleRef"]["name"], given["subjects"]) for given in bindings]
    controller, answers = (
        [{"kind": "ServiceAccount", "name": name, "namespace": "bursar-system"}]
        for name in ("bursar", "bursar-answers")
    )
    reader = "extension-apiserver-authentication-reader"
    assert bound == [
        *[("bursar-controller", controller)] * 2,
        *[("bursar-answers", answers)] * 2,
        (reader, answers),
    ]


def test_replicas_that_answer_only_read_and_review() -> None:
    given = role("ClusterRole", "bursar-answers")
    for rule in given["rules"]:
        review = rule["apiGroups"] == ["authorization.k8s.io"]
        assert rule["verbs"] == (["create"] if review else ["list", "watch"]), rule
    own = role("Role", "bursar-answers")
    assert [(rule["verbs"], rule["resourceNames"]) for rule in own["rules"]] == [(["get"], ["bursar-webhook-tls"])]


def test_whoever_may_view_a_namespace_may_ask_about_it() -> None:
    asker = role("ClusterRole", "bursar-asker")
    assert asker["metadata"]["labels"]["rbac.authorization.k8s.io/aggregate-to-view"] == "true"
    for resource in RESOURCES:
        assert set(resource.verbs) <= allowed(asker, GROUP, resource.name), resource


def test_who_edits_a_namespace_does_not_edit_its_quotas() -> None:
    joined = {
        label.rpartition("-")[2]: given
        for given in rbac.people_roles(REGISTRY)
        for label in given["metadata"]["labels"]
        if "aggregate-to-" in label
    }
    assert set(joined) == {"view", "edit"}
    writes = {"create", "update", "patch", "delete"}
    assert not writes & allowed(joined["view"], "tensor-fusion.ai", "gpuresourcequotas")
    assert writes <= allowed(joined["edit"], "tensor-fusion.ai", "tensorfusionworkloads")
    assert not allowed(joined["edit"], "tensor-fusion.ai", "gpuresourcequotas")
    assert writes <= allowed(role("ClusterRole", "bursar-quota-editor"), "tensor-fusion.ai", "gpuresourcequotas")
