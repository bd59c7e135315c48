"""Which devices a CEL selector may match."""

from __future__ import annotations

import pytest

from bursar.objects.device_selectors import driver_of, matches, terms_of

DRIVER = "gpu.nvidia.com"
ATTRIBUTES: dict[tuple[str, str], str | int | bool] = {
    (DRIVER, "type"): "gpu",
    (DRIVER, "productName"): "NVIDIA H100 80GB HBM3",
    (DRIVER, "slot"): 3,
    (DRIVER, "healthy"): True,
    ("dra.example.com", "numa"): 1,
}
CAPACITY = {(DRIVER, "memory"): 80 * 2**30 * 1000}
TYPE = "device.attributes['gpu.nvidia.com'].type"
MEMORY = "device.capacity['gpu.nvidia.com'].memory"


def selects(expression: str) -> bool:
    return matches(terms_of(expression), DRIVER, ATTRIBUTES, CAPACITY)


@pytest.mark.parametrize(
    "expression",
    [
        "true",
        "device.driver == 'gpu.nvidia.com'",
        'device.driver == "gpu.nvidia.com" && device.attributes["gpu.nvidia.com"].type == "gpu"',
        f"({TYPE} == 'gpu') && ({TYPE} != 'mig' && device.driver != 'other')",
        "device.attributes['gpu.nvidia.com'].slot >= 3",
        "device.attributes['gpu.nvidia.com'].healthy",
        "device.attributes['gpu.nvidia.com'].healthy == true",
        "device.attributes['dra.example.com'].numa < 2",
        f"{MEMORY}.compareTo(quantity('80Gi')) >= 0",
        f"{MEMORY}.isGreaterThan(quantity('40Gi'))",
        f"{MEMORY} == quantity('80Gi')",
    ],
)
def test_it_matches(expression: str) -> None:
    assert selects(expression)


@pytest.mark.parametrize(
    "expression",
    [
        "device.driver == 'nic.example.com'",
        f"{TYPE} == 'mig'",
        f"true && {TYPE} == 'mig'",
        f"{TYPE} == 'gpu' && ({TYPE} == 'mig')",
        "device.attributes['gpu.nvidia.com'].slot > 3",
        "device.attributes['gpu.nvidia.com'].slot == '3'",
        "device.attributes['gpu.nvidia.com'].profile == '1g.10gb'",
        f"{MEMORY}.compareTo(quantity('81Gi')) >= 0",
        f"{MEMORY}.isLessThan(quantity('80Gi'))",
        "device.capacity['gpu.nvidia.com'].cores.isGreaterThan(quantity('1'))",
    ],
)
def test_it_does_not_match(expression: str) -> None:
    assert not selects(expression)


@pytest.mark.parametrize(
    "expression",
    [
        f"{TYPE} == 'mig' || true",
        f"true && {TYPE} == 'mig' || true",
        f"!({TYPE} == 'gpu')",
        f"{TYPE} == 'mig' ? false : true",
        f"{TYPE}.startsWith('mi')",
        f"{TYPE} in ['mig']",
        "['mig'].exists(x, x == 'a' && device.driver == 'other')",
        f"'mig' == {TYPE}",
        f"true // && {TYPE} == 'mig'",
        f'"""x" && {TYPE} == \'mig\' && "y""" != \'\'',
        f"r'\\' != '' && {TYPE} == 'mig' // '",
        f"{TYPE} == 'mi' + 'g'",
        "device.attributes['gpu.nvidia.com'].driverVersion.isGreaterThan(semver('99.0.0'))",
        "device.attributes['gpu.nvidia.com'].profile.matches('.*')",
        "&&&&((",
        "",
    ],
)
def test_what_is_not_read_counts_as_a_match(expression: str) -> None:
    assert selects(expression)


def test_texts_in_quotes_are_no_operators() -> None:
    assert [term.value for term in terms_of(f"{TYPE} == 'a && c' && {TYPE} == \"c || d\"")] == ["a && c", "c || d"]


def test_a_long_expression_is_read_in_one_pass() -> None:
    expression = " && ".join([f"{TYPE} == 'gpu'"] * 250)
    assert len(terms_of(expression)) == 250
    assert terms_of("(" * 5000 + "true" + ")" * 5000) == ()
    assert terms_of("(a && " * 1600 + "a" + ")" * 1600) == ()


def test_the_driver_that_is_asked_for() -> None:
    assert driver_of(terms_of(f"{TYPE} == 'gpu' && device.driver == 'a'")) == "a"
    assert driver_of(terms_of("device.driver != 'a'")) == ""
