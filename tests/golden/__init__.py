"""A record of everything that users and programs rely on, made by ``make golden`` and compared field by field."""

from tests.golden import kubernetes, scenarios, servers, surfaces

PARTS = {
    "scenarios": scenarios.scenarios,
    "kubernetes": kubernetes.kubernetes,
    "demo": servers.demo_run,
    "metrics": servers.metrics,
    "openapi": surfaces.openapi,
    "reasons": surfaces.reasons,
    "commands": surfaces.commands,
    "manifests": surfaces.manifests,
    "store": surfaces.store,
}
