"""A real Kubernetes control plane on loopback for tests and benchmarks: ``ControlPlane.start()``.

etcd, kube-apiserver, kube-scheduler, kube-controller-manager, and kwok in the part of all kubelets. The binaries are
found or built by ``binaries``; ``plane`` puts them together; docs/development/control-plane.md says how to use it.
"""

from tests.cluster.controlplane.api import Api, ApiError
from tests.cluster.controlplane.binaries import BinariesError
from tests.cluster.controlplane.identities import User
from tests.cluster.controlplane.plane import ControlPlane
from tests.cluster.controlplane.processes import ComponentError

__all__ = ["Api", "ApiError", "BinariesError", "ComponentError", "ControlPlane", "User"]
