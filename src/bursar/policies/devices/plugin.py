"""The devices policy: a claim whose devices cannot be charged yet waits, and says why.

What claims of devices (dynamic resource allocation) cost stands in the spec, and the quotas charge it with the other
requests. Where a ResourceClaim, its class or the devices are not known, or nothing says what they count as, the spec
carries the reason instead: admitting the pod would let it past every quota. The section of the Configuration is read by
the control loop, which turns claims of devices into amounts (``control.device_book``).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, cast, final

from bursar.ledger.claims import Binding, Claim
from bursar.objects.decode import ManifestError
from bursar.objects.device_mapping import DevicesSection, check_devices
from bursar.objects.pods import DEVICE_DETAILS
from bursar.policies.fix_fields import FixFields, no_limit_fields
from bursar.policies.plugin import ObjectView, Plugin, Reason
from bursar.policies.policy import QuotaPolicy
from bursar.policies.results import Refusal, Setting

NAME: Final = "devices"


@final
class DevicesPolicy(QuotaPolicy):
    """Refuses claims that cannot be charged for their devices."""

    def __init__(self) -> None:
        super().__init__(NAME)

    def concerns(self, claim: Claim) -> bool:
        return DEVICE_DETAILS in claim.spec.details

    def bind(self, claim: Claim, place: str) -> Binding | Refusal | None:
        details = cast("dict[str, object]", claim.spec.details.get(DEVICE_DETAILS, {}))
        waits = cast("list[str]", details.get("waits", []))
        if not waits or claim.counts():  # one that runs is not asked for anything
            return None
        return Refusal(NAME, waits[0], waits[1], permanent=True)


def section_settings(_: str, section: DevicesSection | None) -> list[Setting]:
    """No setting of the policy; a section that is wrong is refused."""
    if section is not None:
        check_devices(section)
    return []


def admit_claim(_: ObjectView, old: Mapping[str, object] | None, new: dict[str, object]) -> dict[str, object]:
    """As in Kubernetes, what a claim asks for never changes; one with another uid is another claim."""
    if old is not None and _uid(new) in {"", _uid(old)} and old.get("spec") != new.get("spec"):
        raise ManifestError("is fixed when a claim is created: delete it and create it again", "spec")
    return new


def _uid(body: Mapping[str, object]) -> str:
    return str(cast("Mapping[str, object]", body.get("metadata") or {}).get("uid", ""))


REASONS: Final = (
    Reason(
        "devices.claim",
        "The pod names a ResourceClaim or ResourceClaimTemplate that does not exist or cannot be read.",
        "Create it, or correct `spec.resourceClaims`.",
    ),
    Reason(
        "devices.class",
        "A claim of the pod names a DeviceClass that does not exist.",
        "Create the DeviceClass, or correct `deviceClassName`.",
    ),
    Reason(
        "devices.none",
        "No ResourceSlice publishes a device that the claim could get, so nothing says what it costs.",
        "Start the DRA driver, or correct class and selectors.",
    ),
    Reason(
        "devices.unmapped",
        "Nothing says what the devices of this class are charged as.",
        "Add the class or its driver to `spec.devices.mappings` of the Configuration, or set `unmapped: ignore`.",
    ),
    Reason(
        "devices.attribute",
        "A device lacks the attribute by which it is charged.",
        "Map the device in `spec.devices.mappings` by what it has.",
    ),
    Reason(
        "devices.shared",
        "Pods that share a ResourceClaim are under different quotas, so one would use what the other is charged.",
        "Put them under one quota, or give each its own claim.",
    ),
    Reason(
        "devices.remade",
        "The pod was admitted, and its ResourceClaim was made again and asks for more.",
        "Create the pod again: it waits for quota like any other.",
    ),
    Reason(
        "devices.too-many",
        "The pod has more claims of devices than are read.",
        "Ask for several devices in one claim.",
    ),
    Reason(
        "devices.out-of-range",
        "What the pod claims is more than can be counted.",
        "Ask for less.",
    ),
)


PLUGIN = Plugin(
    NAME,
    80,
    DevicesPolicy,
    section=DevicesSection,
    translate={"Configuration": section_settings},
    admit={"ResourceClaim": admit_claim, "ResourceClaimTemplate": admit_claim},
    reasons=REASONS,
    title="Devices by claim ([guide](devices.md))",
    fixes=FixFields(limits=no_limit_fields),
)
