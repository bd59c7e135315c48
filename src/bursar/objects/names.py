"""The spelling rules of Kubernetes: names of objects, namespaces, labels and resources."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache

from bursar.objects.errors import ManifestError, join

_DNS_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN = re.compile(rf"{_DNS_LABEL}(\.{_DNS_LABEL})*")
_NAMESPACE = re.compile(_DNS_LABEL)
_NAME_PART = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")


def check_name(name: str, path: str) -> None:
    if len(name) > 253 or not _SUBDOMAIN.fullmatch(name):
        raise ManifestError(
            f"{name!r:.60} is not a name: up to 253 of a-z, 0-9, '-' and '.', with a letter or digit at both ends", path
        )


def check_namespace(name: str, path: str) -> None:
    if len(name) > 63 or not _NAMESPACE.fullmatch(name):
        raise ManifestError(
            f"{name!r:.60} is not a namespace: up to 63 of a-z, 0-9 and '-', with a letter or digit at both ends", path
        )


@lru_cache(maxsize=8192)
def is_qualified(name: str) -> bool:
    """``name`` or ``prefix/name``: the keys of labels and annotations, and resources."""
    prefix, slash, last = name.rpartition("/")
    if slash and (len(prefix) > 253 or not _SUBDOMAIN.fullmatch(prefix)):
        return False
    return len(last) <= 63 and _NAME_PART.fullmatch(last) is not None


def check_labels(labels: Mapping[str, str], path: str) -> None:
    check_keys(labels, path)
    for key, value in labels.items():
        if value and (len(value) > 63 or not _NAME_PART.fullmatch(value)):
            raise ManifestError(
                f"{value!r:.80} is not a label value: up to 63 letters, digits, '-', '_' and '.', "
                "with a letter or digit at both ends",
                join(path, key),
            )


def check_keys(marks: Mapping[str, str], path: str) -> None:
    """The keys of labels or annotations."""
    for key in marks:
        if not is_qualified(key):
            raise ManifestError("is not a key of the form name or prefix/name", join(path, key))
