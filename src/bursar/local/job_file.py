"""A job from a manifest: a Pod, or a Job, with one container that has a command.

The command runs on this machine as the caller, so what would need another user, an image or volumes is refused, and
named. Environment and folder of the manifest are added to the caller's.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bursar.local.client import RunRequest
from bursar.objects.decode import ManifestError
from bursar.objects.manifests import load_path

_WORKER = "tensor-fusion.ai/"
_GPU_RESOURCES = ("bursar.dev/gpu", "nvidia.com/gpu", "amd.com/gpu")
_NOT_OF_POD = ("volumes", "initContainers", "serviceAccountName", "nodeName", "nodeSelector", "affinity", "hostNetwork")
_NOT_OF_CONTAINER = ("image", "volumeMounts", "volumeDevices", "envFrom", "ports", "lifecycle", "livenessProbe")
_USERS = ("runAsUser", "runAsGroup", "fsGroup", "supplementalGroups", "runAsNonRoot")
_TEXTS = {"vram-request": "vram", "tflops-request": "tflops", "gpu-model": "gpu_model"}


def read_job(path: Path, given: Mapping[str, Any]) -> RunRequest:
    """The request that the manifest makes; ``given`` are options that come before what it says."""
    documents = load_path(path)
    if len(documents) != 1:
        raise ManifestError(f"holds {len(documents)} objects: one Pod or Job is expected", source=str(path))
    try:
        return _request(documents[0].body, given)
    except ManifestError as error:
        raise error.located(source=str(path)) from None


def _request(body: Mapping[str, Any], given: Mapping[str, Any]) -> RunRequest:
    kind = body.get("kind")
    if kind == "Pod":
        meta, spec, where, members = _mapping(body, "metadata", ""), _mapping(body, "spec", ""), "spec", 0
    elif kind == "Job":
        outer = _mapping(body, "spec", "")
        meta = _mapping(body, "metadata", "")
        template = _mapping(outer, "template", "spec")
        spec, where = _mapping(template, "spec", "spec.template"), "spec.template.spec"
        members = _members(outer)
        marks = {
            **_mapping(template, "metadata", "", missing=True).get("annotations", {}),
            **meta.get("annotations", {}),
        }
        meta = {**meta, "annotations": marks}
    else:
        raise ManifestError(f"{kind!r:.60} cannot be run here: a Pod or a Job is expected", "kind")
    _refuse(spec, _NOT_OF_POD, where)
    _refuse(spec.get("securityContext") or {}, _USERS, f"{where}.securityContext")
    containers = spec.get("containers")
    if not isinstance(containers, list) or len(containers) != 1 or not isinstance(containers[0], dict):
        raise ManifestError("exactly one container is expected", f"{where}.containers")
    container, where = containers[0], f"{where}.containers[0]"
    _refuse(container, _NOT_OF_CONTAINER, where)
    _refuse(container.get("securityContext") or {}, _USERS, f"{where}.securityContext")
    command = [*_words(container, "command", where), *_words(container, "args", where)]
    if not command:
        raise ManifestError("is required: what to run", f"{where}.command")
    fields = {**_fields(meta, spec, container, where), **({"members": members} if members else {}), **given}
    environment = {**os.environ, **_environment(container, where)}
    folder = container.get("workingDir") or os.getcwd()  # noqa: PTH109 as the process has it
    return RunRequest(command, fields, environment, str(folder))


def _fields(
    meta: Mapping[str, Any], spec: Mapping[str, Any], container: Mapping[str, Any], where: str
) -> dict[str, Any]:
    resources = container.get("resources") or {}
    limits = {**(resources.get("requests") or {}), **(resources.get("limits") or {})}
    marks = meta.get("annotations") or {}
    found: dict[str, Any] = {
        "team": str(meta.get("namespace", "")),
        "name": str(meta.get("name", "")),
        "cpu": str(limits.pop("cpu", "")),
        "memory": str(limits.pop("memory", "")),
        "priority": str(spec.get("priorityClassName") or spec.get("priority") or ""),
        "labels": {str(key): str(value) for key, value in (meta.get("labels") or {}).items()},
    }
    whole = [limits.pop(name) for name in _GPU_RESOURCES if name in limits]
    count = marks.get(f"{_WORKER}gpu-count", whole[0] if whole else "0")
    if not str(count).isdigit():
        raise ManifestError(f"{count!r:.40} is not a number of GPUs", f"{where}.resources.limits")
    found["gpus"] = int(count)
    found |= {field: str(marks[f"{_WORKER}{mark}"]) for mark, field in _TEXTS.items() if f"{_WORKER}{mark}" in marks}
    percent = str(marks.get(f"{_WORKER}compute-percent-request", "0"))
    found["gpu_percent"] = int(percent) if percent.isdigit() else 0
    if limits:
        raise ManifestError("is no resource of this machine", f"{where}.resources.limits.{next(iter(limits))}")
    if spec.get("activeDeadlineSeconds"):
        found["time"] = f"{spec['activeDeadlineSeconds']}s"
    if spec.get("terminationGracePeriodSeconds"):
        found["grace"] = f"{spec['terminationGracePeriodSeconds']}s"
    return {key: value for key, value in found.items() if value}


def _members(spec: Mapping[str, Any]) -> int:
    """Of a Job that runs several pods at once: they are a gang."""
    together, wanted = spec.get("parallelism", 1), spec.get("completions", spec.get("parallelism", 1))
    if together != wanted or not isinstance(together, int) or together < 1:
        raise ManifestError("must equal completions: all run at once, as a gang", "spec.parallelism")
    return together if together > 1 else 0


def _environment(container: Mapping[str, Any], where: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for index, one in enumerate(container.get("env") or []):
        if not isinstance(one, dict) or "valueFrom" in one or not isinstance(one.get("name"), str):
            raise ManifestError("a name and a value are expected", f"{where}.env[{index}]")
        found[one["name"]] = str(one.get("value", ""))
    return found


def _refuse(part: Mapping[str, Any], names: tuple[str, ...], where: str) -> None:
    for name in names:
        if part.get(name):
            problem = "is not possible here: the command runs on this machine, as you, without containers"
            raise ManifestError(problem, f"{where}.{name}")


def _mapping(part: Mapping[str, Any], name: str, where: str, *, missing: bool = False) -> dict[str, Any]:
    found = part.get(name, {} if missing else None)
    if not isinstance(found, dict):
        raise ManifestError("a mapping is expected", f"{where}.{name}".lstrip("."))
    return found


def _words(container: Mapping[str, Any], name: str, where: str) -> list[str]:
    found = container.get(name) or []
    if not isinstance(found, list):
        raise ManifestError("a list of words is expected", f"{where}.{name}")
    return [str(one) for one in found]
