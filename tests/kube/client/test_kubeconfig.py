"""Kubeconfig files and service accounts: read as kubectl reads them, refused with file and field."""

import base64
import datetime as dt
from pathlib import Path
from typing import Any

import pytest
import yaml

from bursar.kube.client import auth
from bursar.kube.client.auth import ClusterConfig, TokenFile, in_cluster
from bursar.kube.client.errors import ConfigError
from bursar.kube.client.kubeconfig import load
from tests.kube.client.certificates import Certificate, authority, issued_by

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def ca() -> Certificate:
    return authority("test authority")


@pytest.fixture(scope="module")
def person(ca: Certificate) -> Certificate:
    return issued_by(ca, "person")


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def write(path: Path, cluster: dict[str, Any], user: dict[str, Any], **context: str) -> Path:
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "c",
        "clusters": [{"name": "c", "cluster": {"server": "https://host:6443", **cluster}}],
        "users": [{"name": "u", "user": user}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u", **context}}],
    }
    path.write_text(yaml.safe_dump(content))
    return path


async def secret_of(config: ClusterConfig) -> auth.Secret:
    return await config.credentials.current()


async def test_a_token(tmp_path: Path) -> None:
    config = load(str(write(tmp_path / "k", {}, {"token": "t"}, namespace="team")))
    assert (config.server, config.namespace) == ("https://host:6443", "team")
    assert (await secret_of(config)).authorization == "Bearer t"
    assert config.source == f"{tmp_path}/k, context c"
    assert "t" not in repr(await secret_of(config)).replace("Secret", "")


async def test_a_token_file_is_relative_to_the_kubeconfig_and_read_again(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("one\n")
    config = load(str(write(tmp_path / "k", {}, {"tokenFile": "token"})))
    assert (await secret_of(config)).authorization == "Bearer one"
    (tmp_path / "token").write_text("two\n")
    assert (await secret_of(config)).authorization == "Bearer one"  # for at most a minute
    assert (await config.credentials.current(renew=True)).authorization == "Bearer two"


async def test_a_token_file_is_read_again_after_a_while(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("one")
    tokens = TokenFile(tmp_path / "token", period=0.0)
    assert (await tokens.current()).authorization == "Bearer one"
    (tmp_path / "token").write_text("two")
    assert (await tokens.current()).authorization == "Bearer two"
    assert auth.TOKEN_PERIOD <= 60


@pytest.mark.parametrize("as_data", [True, False])
async def test_certificates_from_files_and_from_data(
    tmp_path: Path, ca: Certificate, person: Certificate, as_data: bool
) -> None:
    texts = {"certificate-authority": ca.pem, "client-certificate": person.pem, "client-key": person.key}
    fields: dict[str, str] = {}
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
        fields |= {f"{name}-data": encoded(text)} if as_data else {name: name}
    authorities = {name: value for name, value in fields.items() if name.startswith("certificate")}
    user = {name: value for name, value in fields.items() if name.startswith("client")}
    config = load(str(write(tmp_path / "k", authorities, user)))
    assert (await secret_of(config)).certificate == person.pem
    context = config.trust.context(await secret_of(config))
    assert [entry["serialNumber"] for entry in context.get_ca_certs()] == [ca.serial]


async def test_several_files_the_first_of_a_name_counts(tmp_path: Path) -> None:
    first = tmp_path / "first"
    first.write_text("users: [{name: u, user: {token: mine}}]\n")
    second = write(tmp_path / "second", {}, {"token": "theirs"})
    config = load(environment={"KUBECONFIG": f"{first}:{tmp_path}/absent:{second}"})
    assert (await secret_of(config)).authorization == "Bearer mine"


async def test_a_context_can_be_named(tmp_path: Path) -> None:
    path = write(tmp_path / "k", {}, {"token": "t"})
    content = yaml.safe_load(path.read_text())
    content["contexts"].append({"name": "other", "context": {"cluster": "c", "namespace": "n"}})
    path.write_text(yaml.safe_dump(content))
    config = load(str(path), context="other")
    assert config.namespace == "n"
    assert (await secret_of(config)).authorization == ""


async def test_insecure_impersonation_proxy_and_server_name(tmp_path: Path) -> None:
    cluster = {"insecure-skip-tls-verify": True, "proxy-url": "http://proxy:1", "tls-server-name": "name"}
    config = load(str(write(tmp_path / "k", cluster, {"as": "alice", "as-groups": ["g"]})))
    assert (config.trust.insecure, config.proxy, config.trust.server_name) == (True, "http://proxy:1", "name")
    assert dict(config.headers) == {"Impersonate-User": "alice", "Impersonate-Group": ("g",)}


@pytest.mark.parametrize(
    ("cluster", "user", "problem"),
    [
        ({"server": "host:6443"}, {}, "clusters[0].cluster.server: 'host:6443' is not the address of a server"),
        ({"server": 5}, {}, "clusters[0].cluster.server: must be text, not 5"),
        (
            {"server": "https://host:x"},
            {},
            "clusters[0].cluster.server: 'https://host:x' is not the address",
        ),
        ({"server": "https://[host"}, {}, "clusters[0].cluster.server: 'https://[host' is not the address"),
        (
            {"proxy-url": "host:3128"},
            {},
            "clusters[0].cluster.proxy-url: 'host:3128' is not the address of an HTTP",
        ),
        (
            {"proxy-url": "socks5://host:1080"},
            {},
            "clusters[0].cluster.proxy-url: 'socks5://host:1080' is not the address of an HTTP proxy",
        ),
        ({"certificate-authority": "absent"}, {}, "clusters[0].cluster.certificate-authority: "),
        ({"certificate-authority-data": "%"}, {}, "clusters[0].cluster.certificate-authority-data: is not a PEM text"),
        (
            {"certificate-authority-data": encoded("x")},
            {},
            "clusters[0].cluster.certificate-authority: the certificate authority is no PEM certificate",
        ),
        ({"insecure-skip-tls-verify": "yes"}, {}, "insecure-skip-tls-verify: must be true or false, not 'yes'"),
        ({}, {"client-certificate-data": encoded("x")}, "users[0].user.client-key: is required beside"),
        (
            {},
            {"client-certificate-data": encoded("x"), "client-key-data": encoded("x")},
            "users[0].user.client-certificate: the client certificate and its key do not work",
        ),
        ({}, {"tokenFile": "absent"}, "absent: the token cannot be read: No such file or directory"),
        ({}, {"auth-provider": {"name": "gcp"}}, "users[0].user.auth-provider: is not supported"),
        ({}, {"exec": {"command": "x"}}, "users[0].user.exec.apiVersion: '' is not one of"),
        ({}, {"exec": {"apiVersion": "client.authentication.k8s.io/v1"}}, "users[0].user.exec.command: is required"),
        ({}, {"as-groups": ["g"]}, "users[0].user.as: is required"),
        ({}, {"as-groups": "g"}, "users[0].user.as-groups: must be a list of texts"),
        ({}, {"exec": []}, "users[0].user.exec: must be a mapping"),
    ],
)
def test_bad_fields_are_named(tmp_path: Path, cluster: dict[str, Any], user: dict[str, Any], problem: str) -> None:
    path = write(tmp_path / "k", cluster, user)
    with pytest.raises(ConfigError) as error:
        load(str(path))
    assert problem in str(error.value)
    assert str(tmp_path) in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{", "not YAML"),
        ("- a", "a kubeconfig is one mapping"),
        ("", "current-context: is not set"),
        ("current-context: x", "contexts: there is no context 'x'; there are: none"),
        ("clusters: 5", "clusters: must be a list of mappings"),
        ("clusters: [{cluster: {}}]", "clusters[0].name: is required"),
        (
            "current-context: c\ncontexts: [{name: c, context: {cluster: x}}]",
            "contexts[0].context.cluster: there is no entry 'x' in clusters",
        ),
    ],
)
def test_bad_files_are_named(tmp_path: Path, text: str, problem: str) -> None:
    path = tmp_path / "k"
    path.write_text(text)
    with pytest.raises(ConfigError) as error:
        load(str(path))
    assert str(error.value).startswith(f"{path}: ")
    assert problem in str(error.value)


def test_files_that_are_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="absent: the kubeconfig cannot be read: No such file"):
        load(str(tmp_path / "absent"))
    with pytest.raises(ConfigError, match="absent: no such file"):
        load(environment={"KUBECONFIG": str(tmp_path / "absent")})
    with pytest.raises(ConfigError, match="no cluster to talk to"):
        load(environment={"HOME": str(tmp_path)})


async def test_the_home_folder_comes_last(tmp_path: Path) -> None:
    (tmp_path / ".kube").mkdir()
    write(tmp_path / ".kube" / "config", {}, {"token": "home"})
    assert (await secret_of(load(environment={"HOME": str(tmp_path)}))).authorization == "Bearer home"


def service_account(folder: Path, ca: Certificate) -> Path:
    for name, text in (("token", "t\n"), ("ca.crt", ca.pem), ("namespace", "bursar-system")):
        (folder / name).write_text(text)
    return folder


IN_CLUSTER = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443"}


async def test_a_service_account(tmp_path: Path, ca: Certificate) -> None:
    config = in_cluster(IN_CLUSTER, service_account(tmp_path, ca))
    assert (config.server, config.namespace) == ("https://10.0.0.1:443", "bursar-system")
    assert (await secret_of(config)).authorization == "Bearer t"
    (tmp_path / "token").write_text("rotated")
    assert (await config.credentials.current(renew=True)).authorization == "Bearer rotated"


def test_a_service_account_over_ipv6(tmp_path: Path, ca: Certificate) -> None:
    config = in_cluster({**IN_CLUSTER, "KUBERNETES_SERVICE_HOST": "fd00::1"}, service_account(tmp_path, ca))
    assert config.server == "https://[fd00::1]:443"


@pytest.mark.parametrize("missing", ["token", "ca.crt"])
def test_a_service_account_that_lacks_something(tmp_path: Path, ca: Certificate, missing: str) -> None:
    service_account(tmp_path, ca)
    (tmp_path / missing).unlink()
    with pytest.raises(ConfigError, match=f"{missing}: .* cannot be read: No such file"):
        in_cluster(IN_CLUSTER, tmp_path)


def plugin(folder: Path, answer: object, **more: object) -> dict[str, Any]:
    """A command that prints an answer, and counts how often it ran."""
    script = folder / "plugin.sh"
    text = answer if isinstance(answer, str) else yaml.safe_dump(answer, default_flow_style=True, width=10**6)
    (folder / "answer").write_text(text.replace("'", '"'))
    script.write_text(f'#!/bin/sh\necho "$1 $WHO $KUBERNETES_EXEC_INFO" >> {folder}/runs\ncat {folder}/answer\n')
    script.chmod(0o755)
    version = "client.authentication.k8s.io/v1"
    env = [{"name": "WHO", "value": "me"}]
    return {"exec": {"apiVersion": version, "command": "./plugin.sh", "args": ["get"], "env": env, **more}}


def credential(token: str = "", **status: str) -> str:
    status |= {"token": token} if token else {}
    fields = ", ".join(f'"{name}": "{value}"' for name, value in status.items())
    kind = '"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential"'
    return f'{{{kind}, "status": {{{fields}}}}}'


async def test_a_plugin_is_run_once_while_its_answer_lasts(tmp_path: Path) -> None:
    user = plugin(tmp_path, credential("t"), provideClusterInfo=True)
    config = load(str(write(tmp_path / "k", {}, user)))
    for _ in range(3):
        assert (await secret_of(config)).authorization == "Bearer t"
    runs = (tmp_path / "runs").read_text().splitlines()
    assert len(runs) == 1
    assert runs[0].startswith("get me {")
    assert '"cluster":{"server":"https://host:6443"}' in runs[0]


async def test_a_plugin_is_run_again_when_its_answer_expired_or_was_refused(tmp_path: Path) -> None:
    past = dt.datetime.now(dt.UTC).isoformat()
    user = plugin(tmp_path, credential("t", expirationTimestamp=past))
    config = load(str(write(tmp_path / "k", {}, user)))
    await secret_of(config)
    await secret_of(config)
    (tmp_path / "answer").write_text(credential("u"))
    assert (await secret_of(config)).authorization == "Bearer u"
    await config.credentials.current(renew=True)
    assert len((tmp_path / "runs").read_text().splitlines()) == 4


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        ("oops", "printed no ExecCredential"),
        (credential("t", expirationTimestamp="2026-01-01T00:00:00"), "printed no ExecCredential: .*timezone"),
        ('{"kind": "Pod", "apiVersion": "v1"}', "printed v1 Pod, not an ExecCredential"),
        (credential(), "gave neither a token nor a certificate"),
        (credential(clientCertificateData="x"), "gave neither a token nor a certificate"),
    ],
)
async def test_a_plugin_that_prints_nonsense(tmp_path: Path, answer: str, problem: str) -> None:
    config = load(str(write(tmp_path / "k", {}, plugin(tmp_path, answer))))
    with pytest.raises(ConfigError, match=problem) as error:
        await secret_of(config)
    assert str(error.value).startswith(f"{tmp_path}/k: users[0].user.exec: ")


async def test_a_plugin_that_fails_or_is_absent(tmp_path: Path) -> None:
    config = load(str(write(tmp_path / "k", {}, plugin(tmp_path, "", installHint="install it"))))
    (tmp_path / "plugin.sh").write_text("#!/bin/sh\necho no luck >&2\nexit 3\n")
    with pytest.raises(ConfigError, match="failed with exit code 3: no luck"):
        await secret_of(config)
    (tmp_path / "plugin.sh").unlink()
    with pytest.raises(ConfigError, match=r"cannot be run: No such file or directory \(install it\)"):
        await secret_of(config)
