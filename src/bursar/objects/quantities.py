"""Quantities of manifests, with errors that a manifest's reader understands: ``ManifestError`` with the path."""

from __future__ import annotations

from collections.abc import Mapping

from bursar.dimensions import dimension
from bursar.limits import Limits
from bursar.objects.errors import ManifestError, join
from bursar.objects.names import is_qualified
from bursar.quantity import QuantityError

Amounts = dict[str, int]
"""Resource name to amount in the dimension's resolution; unlike a ``Vector`` it keeps zeros."""


def amounts_from(quantities: Mapping[str, object], path: str) -> Amounts:
    amounts: Amounts = {}
    for name, value in quantities.items():
        if not is_qualified(name):
            raise ManifestError("is not the name of a resource", join(path, name))
        try:
            amounts[name] = dimension(name).parse(value)
        except QuantityError as error:
            raise ManifestError(str(error), join(path, name)) from None
    return amounts


def limits_from(quantities: Mapping[str, object], path: str, stock: bool = False) -> Limits:
    """Zero stays listed, because it means none; ``stock``: what is not listed is none too."""
    return Limits(amounts_from(quantities, path), stock)
