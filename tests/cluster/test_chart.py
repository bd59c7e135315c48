"""The chart, rendered by helm and installed on a real API server: accepted, least privilege, restricted, removable.

It has a plane of its own, without scheduler and controllers: what a chart installs reaches all of a cluster.
"""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from bursar._version import __version__
from bursar.cli.controller import controller
from bursar.kube.admission.policies import gate
from bursar.kube.admission.predicate import AdmissionOptions
from tests.cluster.chart import CHART, NAMESPACE, Helm
from tests.cluster.controlplane import ControlPlane
from tests.cluster.controlplane.api import ApiError
from tests.cluster.controlplane.objects import may
from tests.cluster.installation import install_original
from tests.cluster.waiting import eventually

ROOT = Path(__file__).parent.parent.parent
ACCOUNT = f"system:serviceaccount:{NAMESPACE}:bursar"
Manifest = dict[str, Any]


@pytest.fixture(scope="module")
def helm(tmp_path_factory: pytest.TempPathFactory) -> Helm:
    return Helm(tmp_path_factory.mktemp("helm"))


def identified(manifests: list[Manifest]) -> dict[tuple[str, str], Manifest]:
    return {(given["kind"], given["metadata"]["name"]): given for given in manifests}


def files(*folders: str) -> list[Manifest]:
    found: list[Manifest] = []
    for folder in folders:
        path = ROOT / "deploy" / folder
        for file in sorted(path.glob("*.yaml")) if path.is_dir() else [path]:
            found.extend(yaml.safe_load_all(file.read_text()))
    return found


# Rendering


def test_it_passes_helm_lint(helm: Helm) -> None:
    assert "0 chart(s) failed" in helm("lint", "--strict", str(CHART))


def test_it_names_the_version_of_the_package() -> None:
    assert yaml.safe_load((CHART / "Chart.yaml").read_text())["appVersion"] == __version__


def test_what_it_installs_is_what_the_files_say(helm: Helm) -> None:
    rendered = identified(helm.template("--set", "answers.enabled=true"))
    for key, wanted in identified(files("admission", "rbac.yaml", "answers.yaml")).items():
        if key == ("MutatingWebhookConfiguration", "bursar-gate"):
            continue  # for servers without the policy
        assert rendered[key] == wanted
    for key, wanted in identified(files("crds")).items():
        assert rendered[key]["spec"] == wanted["spec"]
        assert rendered[key]["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep"


RUN = {"Deployment", "NetworkPolicy", "Pod", "PodDisruptionBudget", "Service", "ServiceAccount"}  # what runs it


def test_without_helm_the_same_runs(helm: Helm) -> None:
    """But for helm's own labels."""
    rendered = identified(helm.template())
    for key, wanted in identified(files("install.yaml")).items():
        if key[0] != "Namespace":
            assert _plain(rendered[key]) == wanted


def _plain(given: Any) -> Any:  # noqa: ANN401 JSON
    if isinstance(given, dict):
        helms = {"helm.sh/chart", "app.kubernetes.io/managed-by", "app.kubernetes.io/version"}
        return {name: _plain(value) for name, value in given.items() if name not in helms}
    return [_plain(one) for one in given] if isinstance(given, list) else given


def test_names_and_image_can_be_others(helm: Helm) -> None:
    digest = "sha256:" + "0" * 64
    rendered = identified(helm.template("--set", f"fullnameOverride=mine,image.digest={digest}"))
    for kind in ("Deployment", "PodDisruptionBudget", "NetworkPolicy", "Service"):
        assert (kind, "mine") in rendered
    container = rendered["Deployment", "mine"]["spec"]["template"]["spec"]["containers"][0]
    assert container["image"] == f"bursar@{digest}"
    assert ("Service", "bursar-webhook") in rendered


def test_pods_may_be_deleted_only_where_budgets_are_ignored(helm: Helm) -> None:
    key = ("ClusterRole", "bursar-ignore-budgets")
    assert key not in identified(helm.template())
    rendered = identified(helm.template("--set", "rbac.ignoreBudgets=true"))
    assert rendered[key] == identified(files("rbac-ignore-budgets.yaml"))[key]


def test_it_installs_nothing_beyond_the_files_but_what_runs_it(helm: Helm) -> None:
    """Tests that rest on the files, of roles above all, rest on all that the chart grants."""
    rendered = {key for key in identified(helm.template("--set", "answers.enabled=true")) if key[0] not in RUN}
    given = set(identified(files("admission", "rbac.yaml", "crds", "answers.yaml")))
    assert rendered == given - {("MutatingWebhookConfiguration", "bursar-gate")}


def test_services_and_budget_find_the_pods_and_the_monitor_finds_the_metrics(helm: Helm) -> None:
    rendered = identified(helm.template("--set", "serviceMonitor.enabled=true"))
    template = rendered["Deployment", "bursar"]["spec"]["template"]
    services = [given for (kind, _), given in rendered.items() if kind == "Service"]
    others = [rendered[kind, "bursar"] for kind in ("Deployment", "PodDisruptionBudget")]
    selectors = [given["spec"]["selector"] for given in services]
    selectors += [given["spec"]["selector"]["matchLabels"] for given in others]
    tester = rendered["Pod", "bursar-test-ready"]["metadata"]["labels"]
    for selector in selectors:
        assert selector.items() <= template["metadata"]["labels"].items()
        assert not selector.items() <= tester.items()
    targets = [port["targetPort"] for given in services for port in given["spec"]["ports"]]
    assert sorted(targets) == sorted(port["name"] for port in template["spec"]["containers"][0]["ports"])
    monitor = rendered["ServiceMonitor", "bursar"]["spec"]
    wanted = monitor["selector"]["matchLabels"].items()
    (found,) = [given for given in services if wanted <= given["metadata"]["labels"].items()]
    assert found["metadata"]["name"] == "bursar"
    assert [one["port"] for one in monitor["endpoints"]] == [one["name"] for one in found["spec"]["ports"]]


def test_a_replica_that_ends_serves_until_everybody_knows(helm: Helm) -> None:
    pod = identified(helm.template())["Deployment", "bursar"]["spec"]["template"]["spec"]
    asleep = pod["containers"][0]["lifecycle"]["preStop"]["sleep"]["seconds"]
    assert 2 <= asleep <= pod["terminationGracePeriodSeconds"] - 20, "what is left to say needs time, too"


def test_with_crossquota_everything_is_governed(helm: Helm) -> None:
    rendered = identified(helm.template("--set", "admission.everywhere=true"))
    for key, wanted in identified(files("admission/crossquota/gate.yaml", "admission/crossquota/guards.yaml")).items():
        assert rendered[key] == wanted


def test_older_servers_get_the_webhook(helm: Helm) -> None:
    rendered = identified(helm.template("--kube-version", "1.35.1"))
    wanted = identified(files("admission/gate-webhook.yaml"))
    assert {key: rendered[key] for key in wanted} == wanted
    assert not [key for key in rendered if key[0].startswith("MutatingAdmissionPolicy")]


def test_lists_are_filled_into_expressions(helm: Helm) -> None:
    rendered = helm.template(
        "--set", "admission.schedulers={system:kube-scheduler,other}", "--set", "admission.moreLabels={team}"
    )
    text = yaml.safe_dump(rendered, width=1_000_000)
    assert "'system:kube-scheduler', 'other'" in text.replace("''", "'")
    assert "'bursar.dev/group-size', 'team'" in text.replace("''", "'")


def test_a_namespace_may_be_called_like_a_number(helm: Helm, tmp_path: Path) -> None:
    values = tmp_path / "values.yaml"
    values.write_text(yaml.safe_dump({"admission": {"everywhere": True, "exemptNamespaces": ["123", "true"]}}))
    rendered = identified(helm.template("-f", str(values)))
    binding = rendered["MutatingAdmissionPolicyBinding", "bursar-gate-everywhere"]
    (names,) = binding["spec"]["matchResources"]["namespaceSelector"]["matchExpressions"]
    assert names["values"] == ["kube-system", NAMESPACE, "gpu-operator", "123", "true"]


@pytest.mark.parametrize(
    ("value", "options"),
    [
        ("reinvocationPolicy=null", AdmissionOptions()),
        ("forgetManagedFields=true", AdmissionOptions(forget_managed_fields=True)),
        ("reinvocationPolicy=IfNeeded", AdmissionOptions(reinvocation="IfNeeded")),
        (
            "reinvocationPolicy=IfNeeded,admission.everywhere=true",
            AdmissionOptions(reinvocation="IfNeeded", everywhere=True),
        ),
    ],
)
def test_the_gate_has_other_forms(helm: Helm, value: str, options: AdmissionOptions) -> None:
    rendered = identified(helm.template("--set", f"admission.{value}"))
    wanted = identified(gate(options))
    assert {key: rendered[key] for key in wanted} == wanted


FULL = """
replicas: 3
image: {repository: registry.example.org/bursar, tag: v1, pullPolicy: Always}
imagePullSecrets: [{name: pull}]
serviceAccount: {annotations: {example.org/role: quota}}
controller:
  lease: {duration: 3, renewDeadline: 2, retryPeriod: 0.5}
  pinAll: true
  extraArgs: [--pin-patience=30]
tolerations: [{key: control-plane, operator: Exists}]
affinity: {nodeAffinity: {preferredDuringSchedulingIgnoredDuringExecution: []}}
topologySpreadConstraints: [{maxSkew: 1, topologyKey: zone, whenUnsatisfiable: ScheduleAnyway, labelSelector: {}}]
podAnnotations: {example.org/a: b}
podLabels: {example.org/c: d}
podDisruptionBudget: {minAvailable: 50%}
serviceMonitor: {enabled: true, interval: 1m, labels: {release: prometheus}}
"""


def test_every_value_has_its_place(server: ControlPlane, helm: Helm, tmp_path: Path) -> None:
    values = tmp_path / "values.yaml"
    values.write_text(FULL)
    rendered = identified(helm.template("-f", str(values)))
    (monitor,) = [rendered.pop(key) for key in list(rendered) if key[0] == "ServiceMonitor"]
    service = rendered["Service", "bursar"]
    assert monitor["spec"]["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    assert monitor["metadata"]["labels"]["release"] == "prometheus"
    pod = rendered["Deployment", "bursar"]["spec"]["template"]
    assert pod["spec"]["containers"][0]["image"] == "registry.example.org/bursar:v1"
    assert {"--retry-period=0.5", "--pin-patience=30", "--pin-all"} <= set(pod["spec"]["containers"][0]["args"])
    assert pod["metadata"]["labels"]["example.org/c"] == "d"
    assert "podAntiAffinity" not in pod["spec"]["affinity"]
    text = yaml.safe_dump_all(rendered.values())
    server.kubectl("apply", "--server-side", "--force-conflicts", "--dry-run=server", "-f", "-", input=text)


def test_parts_can_be_left_out(helm: Helm) -> None:
    kinds = [
        given["kind"]
        for given in helm.template(
            "--set", "crds.install=false,rbac.create=false,admission.enabled=false,podDisruptionBudget.enabled=false"
        )
    ]
    assert sorted(kinds) == ["Deployment", "NetworkPolicy", "Pod", "Service", "Service", "ServiceAccount"]
    skipped = identified(helm.template("--set", "crds.skip={gpus.tensor-fusion.ai}"))
    assert ("CustomResourceDefinition", "gpus.tensor-fusion.ai") not in skipped


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ("replicas=-1", "replicas"),
        ("replicas=two", "replicas"),
        ("replica=2", "replica"),
        ("image.repository=", "repository"),
        ("admission.gate=maybe", "gate"),
        ("admission.schedulers=null,admission.schedulerNames={a b}", "schedulerNames"),
        ("admission.schedulerNames={a'b}", "schedulerNames"),
        ("admission.exemptNamespaces={Team}", "exemptNamespaces"),
        ("controller.lease.duration=15s", "duration"),
        ("controller.verbose=very", "verbose"),
        ("controller.shadow=true,controller.dryRun=true", "dryRun"),
        ("serviceMonitor.interval=30", "interval"),
        ("podDisruptionBudget.minAvailable=half", "minAvailable"),
        ("crds.skip=gpus", "skip"),
        ("crds.skip={gpu.tensor-fusion.ai}", "skip"),
        ("admission.schedulers={}", "schedulers"),
    ],
)
def test_wrong_values_are_refused(helm: Helm, value: str, problem: str) -> None:
    told = helm("template", "bursar", str(CHART), "--set", value, check=False)
    assert "values don't meet the specifications of the schema" in told
    assert problem in told


def test_any_definition_can_be_left_out(helm: Helm) -> None:
    names = ",".join(path.stem for path in (ROOT / "deploy" / "crds").glob("*.yaml"))
    kinds = {given["kind"] for given in helm.template("--set", f"crds.skip={{{names}}}")}
    assert "CustomResourceDefinition" not in kinds


@pytest.mark.parametrize("times", ["duration=10", "renewDeadline=2", "retryPeriod=11", "duration=2,renewDeadline=3"])
def test_lease_times_with_which_no_replica_starts_are_refused(helm: Helm, times: str) -> None:
    values = ",".join(f"controller.lease.{one}" for one in times.split(","))
    told = helm("template", "bursar", str(CHART), "--set", values, check=False)
    assert "duration must be more than renewDeadline, and that more than retryPeriod" in told


@pytest.mark.parametrize("mode", ["controller.shadow=true", "controller.dryRun=true"])
def test_who_only_watches_gates_nothing(helm: Helm, mode: str) -> None:
    kinds = {given["kind"] for given in helm.template("--set", mode)}
    assert not [kind for kind in kinds if "Admission" in kind or "Webhook" in kind]


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ("controller.shadow=true", "is reported from then on, and they run as before:"),
        ("controller.dryRun=true", "is reported from then on, and they run as before:"),
        ("admission.enabled=false", "the pods of its namespace count from then on:"),
        ("admission.enabled=true", "its namespace is governed from then on:"),
    ],
)
def test_notes_promise_what_the_mode_keeps(helm: Helm, tmp_path: Path, value: str, told: str) -> None:
    """Helm shows notes only of what it installs: here they are a manifest of a copy."""
    chart = shutil.copytree(CHART, tmp_path / "chart")
    notes = chart / "templates" / "NOTES.txt"
    (chart / "templates" / "_notes.tpl").write_text(f'{{{{ define "notes" }}}}{notes.read_text()}{{{{ end }}}}')
    (chart / "templates" / "notes.yaml").write_text('notes: {{ include "notes" . | toJson }}')
    shown = helm("template", "bursar", str(chart), "-n", NAMESPACE, "--set", value, "-s", "templates/notes.yaml")
    (second,) = [line for line in yaml.safe_load(shown)["notes"].splitlines() if line.startswith("2. ")]
    assert second.endswith(told)


def test_shadow_mode_may_only_look_on(helm: Helm) -> None:
    roles = [
        given
        for given in helm.template("--set", "controller.shadow=true")
        if given["kind"] in {"Role", "ClusterRole"} and given["metadata"]["name"] == "bursar-controller"
    ]
    verbs = {given["kind"]: {verb for rule in given["rules"] for verb in rule["verbs"]} for given in roles}
    assert verbs == {"ClusterRole": {"list", "watch"}}


@pytest.mark.parametrize(("mode", "flag"), [("shadow", "shadow"), ("dryRun", "dry_run")])
def test_arguments_are_known_to_the_command(helm: Helm, mode: str, flag: str) -> None:
    values = (
        f"controller.{mode}=true,controller.pinAll=true,controller.verbose=true,"
        "admission.everywhere=true,admission.exemptNamespaces={a},admission.forgetManagedFields=true"
    )
    (deployment,) = [given for given in helm.template("--set", values) if given["kind"] == "Deployment"]
    name, *arguments = deployment["spec"]["template"]["spec"]["containers"][0]["args"]
    assert name == "controller"
    context = controller.make_context("controller", list(arguments))
    assert context.params["namespace"] == NAMESPACE
    assert context.params["exempt"] == ("a",)
    assert context.params["lease_duration"] == 15
    flags = {name for name, given in context.params.items() if given is True}
    assert flags == {flag, "pin_all", "verbose", "crossquota", "forget_managed_fields"}
    ports = deployment["spec"]["template"]["spec"]["containers"][0]["ports"]
    assert [port["containerPort"] for port in ports] == [context.params["health_port"], context.params["webhook_port"]]


def test_the_webhook_knows_the_usual_names_only(helm: Helm) -> None:
    values = "admission.gate=webhook,admission.clusterScheduler=mine"
    told = helm("template", "bursar", str(CHART), "--set", values, check=False)
    assert "can be changed only where pods are gated by policy" in told
    helm("template", "bursar", str(CHART), "--set", "admission.clusterScheduler=mine")


def test_old_servers_are_refused(helm: Helm) -> None:
    told = helm("template", "bursar", str(CHART), "--kube-version", "1.33.0", check=False)
    assert "chart requires kubeVersion: >=1.34.0-0" in told


# On a real API server

QUOTA = """
apiVersion: n8s.nebuly.ai/v1alpha1
kind: ElasticQuota
metadata: {name: old, namespace: default}
spec: {min: {cpu: 2}}
"""


@pytest.fixture(scope="module")
def server() -> Iterator[ControlPlane]:
    """With the bare definition of an original and a quota of it, as one finds a cluster."""
    with ControlPlane.start(scheduler=False, controller_manager=False, kwok=False) as plane:
        restricted = {"pod-security.kubernetes.io/enforce": "restricted"}
        plane.api().create("/api/v1/namespaces", {"metadata": {"name": NAMESPACE, "labels": restricted}})
        plane.api().create(f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts", {"metadata": {"name": "default"}})
        install_original(plane, "elasticquotas.n8s.nebuly.ai")
        plane.kubectl("create", "-f", "-", input=QUOTA)
        yield plane


class Release:
    """The chart, installed under the name that the documentation uses."""

    def __init__(self, helm: Helm) -> None:
        self.helm = helm
        self.first_try = helm("install", "bursar", str(CHART), "-n", NAMESPACE, check=False)
        self.install("--take-ownership")

    def install(self, *arguments: str) -> str:
        return self.helm("install", "bursar", str(CHART), "-n", NAMESPACE, *arguments)

    def upgrade(self, values: str) -> str:
        return self.helm("upgrade", "bursar", str(CHART), "-n", NAMESPACE, "--set", values)

    def uninstall(self) -> str:
        return self.helm("uninstall", "bursar", "-n", NAMESPACE)


@pytest.fixture(scope="module")
def release(server: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Release:
    made = Release(Helm(tmp_path_factory.mktemp("helm"), server.kubeconfig))
    eventually(lambda: may(server.api(), ACCOUNT, "patch", "pods"), "the roles are known")
    lease = "leases.coordination.k8s.io=bursar-controller"
    eventually(lambda: may(server.api(), ACCOUNT, "patch", lease, NAMESPACE), "the role of its namespace is known")
    return made


@pytest.mark.parametrize(
    "values",
    [
        "replicas=2",
        "admission.everywhere=true",
        "admission.everywhere=true,admission.exemptNamespaces={a,b},admission.moreLabels={team,tier}",
        "admission.forgetManagedFields=true",
        "admission.reinvocationPolicy=IfNeeded,admission.clusterScheduler=volcano",
        "admission.schedulerNames=null",
        "admission.gate=webhook",
        "admission.gate=webhook,admission.everywhere=true,admission.exemptNamespaces={a,b}",
    ],
)
def test_the_server_accepts_all_of_it(server: ControlPlane, helm: Helm, values: str) -> None:
    rendered = helm.template("--set", values)
    arguments = ("apply", "--server-side", "--force-conflicts", "--dry-run=server", "-f", "-")
    told = server.kubectl(*arguments, input=yaml.safe_dump_all(rendered))
    assert len(told.splitlines()) == len(rendered)


def test_definitions_of_an_original_are_taken_over_with_their_objects(server: ControlPlane, release: Release) -> None:
    assert "cannot be imported into the current release" in release.first_try
    lines = eventually(
        lambda: [line.split() for line in server.kubectl("get", "eq.n8s.nebuly.ai").splitlines() if "MIN" in line],
        "our columns",
    )
    assert lines == [["NAME", "USED", "MIN", "MAX", "AGE"]]
    assert "old" in server.kubectl("get", "eq.n8s.nebuly.ai")


def test_an_upgrade_changes_how_pods_are_gated(server: ControlPlane, release: Release) -> None:
    told = release.upgrade("admission.gate=webhook,replicas=3")
    assert "STATUS: deployed" in told
    assert "kubectl bursar explain" in told
    assert server.kubectl("get", "mutatingadmissionpolicies", "-o", "name") == ""
    assert "bursar-gate" in server.kubectl("get", "mutatingwebhookconfigurations", "-o", "name")


def test_an_upgrade_keeps_the_authority_of_the_webhook(server: ControlPlane, release: Release) -> None:
    path = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/bursar-quotas"
    patch = [{"op": "add", "path": "/webhooks/0/clientConfig/caBundle", "value": "Y2E="}]
    server.api().patch(path, patch, "application/json-patch+json")
    release.upgrade("replicas=4")
    assert server.api().get(path)["webhooks"][0]["clientConfig"]["caBundle"] == "Y2E="


def test_an_upgrade_brings_new_definitions_and_the_way_back_the_old_ones(
    server: ControlPlane, release: Release, tmp_path: Path
) -> None:
    """Helm leaves alone what lies in a folder crds: here they are templates. Objects stay all along."""
    older = shutil.copytree(CHART, tmp_path / "older")
    file = older / "templates" / "crds" / "elasticquotas.n8s.nebuly.ai.yaml"
    file.write_text(file.read_text().replace("name: Used\n", "name: Before\n"))
    release.helm("upgrade", "bursar", str(older), "-n", NAMESPACE)
    assert columns(server)[0] == "Before"
    release.upgrade("replicas=2")
    assert columns(server)[0] == "Used"
    release.helm("rollback", "bursar", "-n", NAMESPACE)
    assert columns(server)[0] == "Before"
    release.upgrade("replicas=2")
    assert "old" in server.kubectl("get", "eq.n8s.nebuly.ai")


def columns(server: ControlPlane) -> list[str]:
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/elasticquotas.n8s.nebuly.ai"
    return [one["name"] for one in server.api().get(path)["spec"]["versions"][0]["additionalPrinterColumns"]]


@pytest.mark.usefixtures("release")
def test_its_pods_are_restricted(server: ControlPlane, helm: Helm) -> None:
    (deployment,) = [given for given in helm.template() if given["kind"] == "Deployment"]
    template = deployment["spec"]["template"]
    body = {"metadata": {"name": "p", **template["metadata"]}, "spec": template["spec"]}
    path = f"/api/v1/namespaces/{NAMESPACE}/pods?dryRun=All"
    assert accepted(server, path, body) == ""
    body["spec"]["containers"][0]["securityContext"]["capabilities"] = {}
    assert "violates PodSecurity" in accepted(server, path, body)


def accepted(server: ControlPlane, path: str, body: Manifest) -> str:
    """What the server has against it."""
    try:
        server.api().create(path, body)
    except ApiError as error:
        return str(error)
    return ""


@pytest.mark.parametrize(
    ("verb", "resource", "place", "expected"),
    [
        ("patch", "pods", "team-a", True),
        ("create", "pods/eviction", "team-a", True),
        ("patch", "pods/status", "team-a", True),
        ("delete", "pods", "team-a", False),
        ("create", "pods", "team-a", False),
        ("create", "pods/binding", "team-a", False),
        ("patch", "nodes", "", True),
        ("patch", "namespaces", "", True),
        ("watch", "resourceslices.resource.k8s.io", "", True),
        ("patch", "gpuresourcequotas.tensor-fusion.ai/status", "team-a", True),
        ("patch", "gpuresourcequotas.tensor-fusion.ai", "team-a", False),
        ("create", "elasticquotas.scheduling.sigs.k8s.io", "team-a", True),
        ("create", "events.events.k8s.io", "team-a", True),
        ("get", "secrets=bursar-webhook-tls", NAMESPACE, True),
        ("get", "secrets=other", NAMESPACE, False),
        ("get", "secrets=bursar-webhook-tls", "team-a", False),
        ("patch", "leases.coordination.k8s.io=bursar-controller", NAMESPACE, True),
        ("patch", "leases.coordination.k8s.io=kube-scheduler", "kube-system", False),
        ("patch", "validatingwebhookconfigurations.admissionregistration.k8s.io=bursar-quotas", "", True),
        ("patch", "validatingwebhookconfigurations.admissionregistration.k8s.io=other", "", False),
        ("update", "customresourcedefinitions.apiextensions.k8s.io", "", False),
        ("impersonate", "users", "", False),
    ],
)
@pytest.mark.usefixtures("release")
def test_what_the_account_may_do(server: ControlPlane, verb: str, resource: str, place: str, *, expected: bool) -> None:
    assert may(server.api(), ACCOUNT, verb, resource, place) == expected


@pytest.mark.parametrize(
    ("verb", "resource", "expected"),
    [
        ("list", "gpuresourcequotas.tensor-fusion.ai", True),
        ("update", "gpuresourcequotas.tensor-fusion.ai", False),
        ("create", "elasticquotas.n8s.nebuly.ai", False),
        ("patch", "gpuresourcequotas.tensor-fusion.ai/status", False),
    ],
)
@pytest.mark.usefixtures("release")
def test_what_quotas_mean_to_people(server: ControlPlane, verb: str, resource: str, *, expected: bool) -> None:
    """Kubernetes' own roles are put together by a controller, which does not run here: the role itself is bound."""
    binding = {
        "metadata": {"name": "viewers"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "bursar-viewer"},
        "subjects": [{"kind": "User", "name": "vera"}],
    }
    path = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings"
    accepted(server, path, binding)
    if expected:
        eventually(lambda: may(server.api(), "vera", verb, resource, "default"), "the binding to be in force")
    assert may(server.api(), "vera", verb, resource, "default") == expected


def test_uninstalling_keeps_definitions_and_quotas(server: ControlPlane, release: Release) -> None:
    told = release.uninstall()
    assert "elasticquotas.n8s.nebuly.ai" in told  # helm names what it leaves
    assert server.kubectl("get", "validatingadmissionpolicies", "-o", "name") == ""
    assert server.kubectl("get", "mutatingwebhookconfigurations", "-o", "name") == ""
    assert "old" in server.kubectl("get", "eq.n8s.nebuly.ai")
    assert "STATUS: deployed" in release.install()
