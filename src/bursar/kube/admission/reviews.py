"""AdmissionReview v1, read and answered."""

from __future__ import annotations

import base64
from typing import Any

import msgspec

from bursar.kube.admission.patching import Operation

API_VERSION = "admission.k8s.io/v1"


class ReviewError(ValueError):
    """A body that is no AdmissionReview of this version."""


class GroupVersionKind(msgspec.Struct, frozen=True):
    group: str = ""
    version: str = ""
    kind: str = ""


class AdmissionRequest(msgspec.Struct, frozen=True, rename="camel"):
    uid: str
    operation: str
    kind: GroupVersionKind = GroupVersionKind()
    namespace: str = ""
    name: str = ""
    object: dict[str, Any] | None = None
    old_object: dict[str, Any] | None = None


class AdmissionReview(msgspec.Struct, frozen=True, rename="camel"):
    api_version: str
    kind: str
    request: AdmissionRequest


_DECODER = msgspec.json.Decoder(AdmissionReview)


def read_review(body: bytes) -> AdmissionRequest:
    """The request of a review; raises ``ReviewError``."""
    try:
        review = _DECODER.decode(body)
    except (msgspec.DecodeError, RecursionError) as error:
        raise ReviewError(f"is no AdmissionReview: {error}") from None
    if review.kind != "AdmissionReview" or review.api_version != API_VERSION:
        raise ReviewError(f"{review.api_version} {review.kind} is not {API_VERSION} AdmissionReview")
    return review.request


def allowed(uid: str, patch: list[Operation] | None = None) -> bytes:
    """The answer that lets an object pass, changed by the patch if there is one."""
    response: dict[str, Any] = {"uid": uid, "allowed": True}
    if patch:
        response["patchType"] = "JSONPatch"
        response["patch"] = base64.b64encode(msgspec.json.encode(patch)).decode()
    return _review(response)


def refused(uid: str, message: str) -> bytes:
    """The answer that keeps an object out, in one line for whoever sent it."""
    status = {"code": 422, "reason": "Invalid", "message": message}
    return _review({"uid": uid, "allowed": False, "status": status})


def _review(response: dict[str, Any]) -> bytes:
    return msgspec.json.encode({"apiVersion": API_VERSION, "kind": "AdmissionReview", "response": response})
