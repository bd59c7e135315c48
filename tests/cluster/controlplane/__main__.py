"""``make cluster``: a control plane in the foreground. ``build``: find or build the binaries, say where they are.

``python -m tests.cluster.controlplane [build | NODES]``
"""

import signal
import sys
import time
from contextlib import suppress

from tests.cluster.controlplane import BinariesError, ComponentError, ControlPlane, binaries
from tests.cluster.controlplane.identities import BURSAR

HELP = """
In another terminal:
  export KUBECONFIG={kubeconfig}
  alias kubectl={kubectl}
Things to try:
  kubectl get nodes
  kubectl run one --image=none && kubectl get pods -o wide   (kwok plays the kubelet: it runs at once)
  kubectl auth can-i create pods --as=alice                  (alice has the role edit everywhere)
Bursar on it:
  kubectl create namespace bursar-system
  kubectl apply --server-side -f deploy/crds -f deploy/rbac.yaml \\
    -f deploy/admission/gate.yaml -f deploy/admission/guards.yaml
  .venv/bin/bursar controller --kubeconfig {bursar} --no-webhook
Ctrl-C stops everything and removes {folder}
"""


def build() -> None:
    for binary in binaries.find().values():
        sys.stdout.write(binary.line() + "\n")


def serve(nodes: int) -> None:
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    started = time.monotonic()
    with ControlPlane.start() as plane:
        labels = {"kubernetes.io/os": "linux"}  # as a kubelet sets it: charts ask for it
        plane.add_nodes(nodes, {"nvidia.com/gpu": "8"}, labels, prefix="node")
        for binary in plane.binaries.values():
            sys.stdout.write(binary.line() + "\n")
        sys.stdout.write(f"ready after {time.monotonic() - started:.1f} s with {nodes} nodes\n")
        sys.stdout.write(
            HELP.format(
                kubeconfig=plane.kubeconfig,
                kubectl=plane.binaries["kubectl"].path,
                bursar=plane.kubeconfig_of(BURSAR),
                folder=plane.folder,
            )
        )
        sys.stdout.flush()
        with suppress(KeyboardInterrupt):
            signal.pause()


def main(arguments: list[str]) -> int:
    try:
        if arguments == ["build"]:
            build()
        elif not arguments or (len(arguments) == 1 and arguments[0].isdigit()):
            serve(int(arguments[0]) if arguments else 3)
        else:
            sys.stderr.write("usage: python -m tests.cluster.controlplane [build | NODES]\n")
            return 2
    except (BinariesError, ComponentError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
