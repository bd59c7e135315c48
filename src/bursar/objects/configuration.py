"""Our own kind ``Configuration``: one object, named ``default``, whose spec has a section for each policy.

The struct is made from the sections that exist, so that a section or a key that nobody reads is an error. A section
whose keys are not fixed is a mapping, and whoever reads it checks the keys.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from bursar.objects.core import Manifest, Part
from bursar.objects.crd_rules import Rule
from bursar.objects.errors import ManifestError
from bursar.objects.kinds import Kind

GROUP = "bursar.dev"
VERSION = "v1alpha1"
NAME = "default"


_ONLY = f"there is one Configuration, and its name is {NAME!r}"
RULES = (Rule(f"self.metadata.name == {NAME!r}", _ONLY),)

Section = type[msgspec.Struct] | type[dict[str, object]]


def configuration_kind(sections: Mapping[str, Section]) -> Kind:
    """The kind whose ``spec.<name>`` is read into the type of that name, None when it is not given."""
    spec = msgspec.defstruct(
        "ConfigurationSpec",
        [(name, section | None, None) for name, section in sorted(sections.items())],
        bases=(Part,),
        rename=None,
    )
    struct = msgspec.defstruct("Configuration", [("spec", spec, spec())], bases=(Manifest,), namespace={"rules": RULES})
    short_names = ("bursarconfig",)
    return Kind(
        GROUP, VERSION, "Configuration", "configurations", False, struct, True, short_names=short_names, check=_check
    )


def _check(configuration: Manifest) -> None:
    if configuration.metadata.name != NAME:
        raise ManifestError(_ONLY, "metadata.name")
