"""The Kubernetes rule for a pod's effective requests, written the slow and obvious way: resource by resource."""

from typing import Any


def effective(spec: dict[str, Any], field: str) -> dict[str, int]:
    """``field`` is requests or limits; quantities are whole numbers of units."""
    names = {name for container in [*spec["containers"], *spec["initContainers"]] for name in _of(container, field)}
    names |= set(spec["resources"].get(field, {})) | set(spec["overhead"])
    if field == "requests":
        names |= set(spec["resources"].get("limits", {}))
    return {name: amount for name in names if (amount := _one(spec, field, name))}


def _of(container: dict[str, Any], field: str) -> dict[str, int]:
    resources = container["resources"]
    if field == "limits":
        return dict(resources.get("limits", {}))
    return {**resources.get("limits", {}), **resources.get("requests", {})}


def _one(spec: dict[str, Any], field: str, name: str) -> int:
    inits = spec["initContainers"]
    sidecars = [c for c in inits if c.get("restartPolicy") == "Always"]
    steady = sum(_of(c, field).get(name, 0) for c in [*spec["containers"], *sidecars])
    peaks = [steady]
    for index, init in enumerate(inits):
        before = [c for c in inits[:index] if c.get("restartPolicy") == "Always"]
        if init.get("restartPolicy") != "Always":
            peaks.append(_of(init, field).get(name, 0) + sum(_of(c, field).get(name, 0) for c in before))
    total = max(peaks)
    listed = any(name in _of(c, field) for c in [*spec["containers"], *inits])
    own = spec["resources"]
    if name in own.get(field, {}):
        total = own[field][name]
        listed = True
    elif field == "requests" and not listed and name in own.get("limits", {}):
        total = own["limits"][name]
    if field == "requests" or listed:
        total += spec["overhead"].get(name, 0)
    return total
