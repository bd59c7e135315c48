"""The command line of each component.

Everything listens on loopback only. etcd does not wait for the disk. Client-side rate limits of scheduler and
controller manager are raised: by default the scheduler binds 50 pods a second, and everyone would wait for that alone.
Who asks for it gets the scheduler as it is shipped. Else its configuration is the default one. Nodes send no
heartbeats, and the controller manager is told not to miss them: a node is ready until something says otherwise.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from tests.cluster.controlplane.identities import CONTROLLER_MANAGER, KWOK, SCHEDULER, Identities

FAST = ("--kube-api-qps=5000", "--kube-api-burst=10000")
AS_SHIPPED = ()  # 50 requests a second, and 100 at once
STAGES = Path(__file__).resolve().parent / "stages.yaml"


class Etcd(NamedTuple):
    """Where etcd listens and keeps its data."""

    client_port: int
    peer_port: int
    data: Path

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.client_port}"

    def command(self, binary: Path) -> list[str]:
        peer = f"http://127.0.0.1:{self.peer_port}"
        return [
            str(binary),
            "--name=default",
            f"--data-dir={self.data}",
            f"--listen-client-urls={self.url}",
            f"--advertise-client-urls={self.url}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=default={peer}",
            "--unsafe-no-fsync",
            "--log-level=warn",
        ]


def apiserver(binary: Path, etcd: Etcd, port: int, certificates: Path, who: Identities) -> list[str]:
    return [
        str(binary),
        f"--etcd-servers={etcd.url}",
        "--bind-address=127.0.0.1",
        "--advertise-address=127.0.0.1",
        f"--secure-port={port}",
        f"--cert-dir={certificates}",
        f"--token-auth-file={who.token_file}",
        "--authorization-mode=RBAC",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-key-file={who.service_account_key}",
        f"--service-account-signing-key-file={who.service_account_key}",
        "--service-cluster-ip-range=10.96.0.0/16",
        "--endpoint-reconciler-type=none",
        "--shutdown-watch-termination-grace-period=100ms",  # else it waits a minute for watches that do not end
    ]


def scheduler(binary: Path, who: Identities, limits: Sequence[str] = FAST) -> list[str]:
    file = who.kubeconfig(SCHEDULER)
    return [
        str(binary),
        f"--kubeconfig={file}",
        f"--authentication-kubeconfig={file}",
        f"--authorization-kubeconfig={file}",
        "--leader-elect=false",
        "--secure-port=0",
        *limits,
    ]


def controller_manager(binary: Path, who: Identities) -> list[str]:
    return [
        str(binary),
        f"--kubeconfig={who.kubeconfig(CONTROLLER_MANAGER)}",
        "--leader-elect=false",
        "--secure-port=0",
        "--controllers=*",
        "--use-service-account-credentials=true",
        f"--service-account-private-key-file={who.service_account_key}",
        "--node-monitor-grace-period=24h",
        *FAST,
    ]


def kwok(binary: Path, who: Identities) -> list[str]:
    return [
        str(binary),
        f"--kubeconfig={who.kubeconfig(KWOK)}",
        f"--config={STAGES}",
        "--manage-all-nodes=true",
        "--node-ip=127.0.0.1",
        "--node-lease-duration-seconds=0",
    ]
