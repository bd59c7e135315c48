"""An API server in memory, with faults to order: fast tests of whatever talks to Kubernetes.

It keeps to what the real one does in the points that clients rest on; ``tests/kube/client/conformance.py`` is run
against both.
"""

from tests.kube.fakeapi.faults import Fault
from tests.kube.fakeapi.server import FakeApi

__all__ = ["FakeApi", "Fault"]
