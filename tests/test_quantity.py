import pickle

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bursar.quantity import MAX_AMOUNT, MAX_TEXT, MILLI, UNIT, QuantityError, format_amount, parse
from tests.reference_models import quantity as reference

RESOLUTIONS = st.sampled_from([UNIT, MILLI])
AMOUNTS = st.integers(-MAX_AMOUNT, MAX_AMOUNT) | st.builds(
    lambda mantissa, base, power: max(-MAX_AMOUNT, min(MAX_AMOUNT, mantissa * base**power)),
    st.integers(-2000, 2000),
    st.sampled_from([10, 1000, 1024]),
    st.integers(0, 6),
)
DIGITS = st.text("0123456789", max_size=22)
SUFFIXES = st.sampled_from(
    ["", "n", "u", "m", "k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"]
) | st.builds(
    lambda mark, exponent: mark + exponent,
    st.sampled_from("eE"),
    st.integers(-40, 40).map(str) | st.integers(0, 40).map("+{}".format) | st.integers().map(str),
)
QUANTITIES = st.builds(
    lambda sign, whole, point, fraction, suffix: f"{sign}{whole}{point}{fraction if point else ''}{suffix}",
    st.sampled_from(["", "+", "-"]),
    DIGITS,
    st.sampled_from(["", "."]),
    DIGITS,
    SUFFIXES,
)
# Text close to the grammar: the interesting refusals are one character away from something legal.
NEAR_QUANTITIES = st.text("0159.+-eEinumkKMGTP_x \n\u0661", max_size=8)


def outcome(text: str, resolution: int, negative: bool) -> int | None:
    try:
        return parse(text, resolution, negative=negative)
    except QuantityError:
        return None


@pytest.mark.parametrize(
    ("text", "units", "millis"),
    [
        ("0", 0, 0),
        ("7", 7, 7000),
        ("+5", 5, 5000),
        ("007", 7, 7000),
        ("5.", 5, 5000),
        (".5", 1, 500),
        ("1.5", 2, 1500),
        ("1.G", 10**9, 10**12),
        ("500m", 1, 500),
        ("100m", 1, 100),
        ("1500m", 2, 1500),
        ("1001m", 2, 1001),
        ("1u", 1, 1),
        ("1n", 1, 1),
        ("1000001n", 1, 2),
        ("0.1n", 1, 1),
        ("1.0000000001", 2, 1001),
        ("2k", 2000, 2_000_000),
        ("3M", 3 * 10**6, 3 * 10**9),
        ("3G", 3 * 10**9, 3 * 10**12),
        ("3T", 3 * 10**12, 3 * 10**15),
        ("3P", 3 * 10**15, 3 * 10**18),
        ("1Ki", 1024, 1_024_000),
        ("1Mi", 2**20, 2**20 * 1000),
        ("0.5Gi", 536_870_912, 536_870_912_000),
        ("2Gi", 2**31, 2**31 * 1000),
        ("1Ti", 2**40, 2**40 * 1000),
        ("1Pi", 2**50, 2**50 * 1000),
        ("1.0001Ki", 1025, 1_024_103),
        ("1e3", 1000, 1_000_000),
        ("1E3", 1000, 1_000_000),
        ("1e+3", 1000, 1_000_000),
        ("1.5e3", 1500, 1_500_000),
        ("15e-1", 2, 1500),
        ("1e-1000000", 1, 1),
        ("1e-1" + "0" * 100, 1, 1),
        ("0e1000000000", 0, 0),
        ("-0", 0, 0),
        ("-0.0Ki", 0, 0),
        ("0" * MAX_TEXT, 0, 0),
        ("1" + "0" * 70 + "e-70", 1, 1000),
    ],
)
def test_legal_text(text: str, units: int, millis: int) -> None:
    assert parse(text, UNIT) == units
    assert parse(text, MILLI) == millis


@pytest.mark.parametrize(
    ("text", "units"),
    [("1E", 10**18), ("1Ei", 2**60), ("4E", 4 * 10**18), ("3.999Ei", 4_610_533_096_922_781_058)],
)
def test_exa(text: str, units: int) -> None:
    assert parse(text, UNIT) == units


@pytest.mark.parametrize(
    "text",
    [
        *["", " ", " 5", "5 ", "5\n", "\t5", "5 Gi", "5\x00", "\ud800", "1\ud800"],
        *["\u0661", "\u0665", "1\u0665", "\uff15", "\u00b2", "1\u00b2", "1e\u0663", "\u22125"],
        *[".", "+", "-", "+.", "-.", "..5", "1..5", "1.2.3", "++5", "+-5", "5-", "5+"],
        *["e3", "m", "Ki", ".m", "1e", "1e+", "1E-", "1e.5", "1e1.5", "1ee3", "1e3m", "1e3Ki", "1e1_0"],
        *["1K", "1ki", "1KI", "1kI", "1i", "1mi", "1g", "1gi", "1t", "1B", "1GB", "1KiB", "1mm", "1x", "12x"],
        *["0x10", "0b1", "1_000", "1,000", "1/2", "50%"],
        *["nan", "NaN", "inf", "-inf", "Infinity", "None", "true"],
    ],
)
def test_rubbish_is_refused(text: str) -> None:
    for resolution in (UNIT, MILLI):
        with pytest.raises(QuantityError, match="is not a quantity"):
            parse(text, resolution, negative=True)


@pytest.mark.parametrize(
    ("value", "units", "millis"),
    [
        *[(0, 0, 0), (5, 5, 5000), (0.0, 0, 0), (-0.0, 0, 0), (2.0, 2, 2000), (1.5, 2, 1500), (0.1, 1, 100)],
        *[(1e16, 10**16, None), (1e-7, 1, 1), (5e-324, 1, 1), (1.1, 2, 1100), (0.3, 1, 300)],
    ],
)
def test_numbers(value: float, units: int, millis: int | None) -> None:
    assert parse(value, UNIT) == units
    if millis is not None:
        assert parse(value, MILLI) == millis


@pytest.mark.parametrize(
    "value", [True, False, None, b"5", [], {}, ["5"], 1j, float("nan"), float("inf"), float("-inf"), object()]
)
def test_other_values_are_refused(value: object) -> None:
    with pytest.raises(QuantityError, match="is not a quantity"):
        parse(value, UNIT, negative=True)


@pytest.mark.parametrize(
    ("value", "units", "millis"),
    [
        *[("-5", -5, -5000), (-5, -5, -5000), (-1.5, -2, -1500), ("-100m", -1, -100), ("-0.1n", -1, -1)],
        *[("-1.5Ki", -1536, -1_536_000), ("-1e-1000000", -1, -1)],
    ],
)
def test_negative_only_where_allowed(value: object, units: int, millis: int) -> None:
    assert parse(value, UNIT, negative=True) == units
    assert parse(value, MILLI, negative=True) == millis
    with pytest.raises(QuantityError, match="must not be negative"):
        parse(value, UNIT)


@pytest.mark.parametrize("negative", [False, True])
@pytest.mark.parametrize(
    ("value", "resolution"),
    [
        *[
            (str(MAX_AMOUNT + 1), UNIT),
            (MAX_AMOUNT + 1, UNIT),
            (MAX_AMOUNT // 1000 + 1, MILLI),
            ("4Ei", UNIT),
        ],
        *[
            ("4611686018427387903.1", UNIT),
            ("5E", UNIT),
            ("5P", MILLI),
            ("1e19", UNIT),
            ("1e1000000000", UNIT),
        ],
        *[
            ("1e" + "9" * 100, UNIT),
            (1e19, UNIT),
            (1e300, UNIT),
            ("9" * MAX_TEXT, UNIT),
            ("9" * 120 + "Ei", UNIT),
        ],
        *[(2**70, UNIT), pytest.param(1 << 100_000, UNIT, id="huge-integer")],
    ],
)
def test_out_of_range(value: str | float, resolution: int, negative: bool) -> None:
    if negative:
        value = f"-{value}"[:MAX_TEXT] if isinstance(value, str) else -value
    with pytest.raises(QuantityError, match="out of range"):
        parse(value, resolution, negative=negative)


def test_the_largest_amounts_are_legal() -> None:
    assert parse(str(MAX_AMOUNT), UNIT) == MAX_AMOUNT
    assert parse(-MAX_AMOUNT, UNIT, negative=True) == -MAX_AMOUNT
    assert parse(f"{MAX_AMOUNT}m", MILLI) == MAX_AMOUNT
    assert parse(f"{MAX_AMOUNT * 10**6 - 1}n", MILLI) == MAX_AMOUNT


@pytest.mark.parametrize(
    "text", ["9" * 10_000, "0" * 10_000, "0." + "0" * 10_000 + "1", "1" * 1_000_000, "x" * 1_000_000]
)
def test_overlong_text_is_refused(text: str) -> None:
    with pytest.raises(QuantityError, match="longer than 128 characters"):
        parse(text, UNIT)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1e1000000000", None),
        ("1e-1000000000", 1),
        ("1" * 1_000_000, None),
        ("9" * MAX_TEXT, None),
        ("1e" + "9" * 126, None),
        ("." * MAX_TEXT, None),
    ],
    ids=["huge", "tiny", "endless", "long", "long exponent", "dots"],
)
def test_hostile_text_is_answered_without_computing_huge_numbers(text: str, expected: int | None) -> None:
    assert outcome(text, MILLI, True) == expected


@pytest.mark.parametrize(
    ("value", "path", "message"),
    [
        ("12x", "spec.min.cpu", "spec.min.cpu: '12x' is not a quantity: unknown suffix 'x'"),
        ("12x", "", "'12x' is not a quantity: unknown suffix 'x'"),
        ("", "a.b", "a.b: '' is not a quantity: it does not start with a number"),
        ("5\n", "a.b", "a.b: '5\\n' is not a quantity: unknown suffix '\\n'"),
        (True, "a.b", "a.b: 'True' is not a quantity: it is a boolean"),
        (None, "a.b", "a.b: 'null' is not a quantity: expected a number or a string"),
        ([1], "a.b", "a.b: 'list' is not a quantity: expected a number or a string"),
        (float("nan"), "a.b", "a.b: 'nan' is not a quantity: it does not start with a number"),
        (-1.5, "a.b", "a.b: '-1.5' must not be negative"),
        (-1, "", "'-1' must not be negative"),
        ("8Ei", "a.b", "a.b: '8Ei' is out of range: more than 4611686018427387903"),
        ("9" * 200, "", f"'{'9' * 40}…' is not a quantity: longer than 128 characters"),
    ],
)
def test_errors_are_one_line_that_names_field_and_text(value: object, path: str, message: str) -> None:
    with pytest.raises(QuantityError) as caught:
        parse(value, UNIT, path)
    assert str(caught.value) == message


def test_an_integer_too_long_to_print_is_named_by_its_size() -> None:
    with pytest.raises(QuantityError, match=r"^a: 'integer of 100000 bits' is out of range"):
        parse(1 << 99_999, UNIT, "a")


def test_an_error_carries_its_parts_and_survives_pickling() -> None:
    with pytest.raises(QuantityError) as caught:
        parse("9" * 200, UNIT, "spec.max")
    for error in (caught.value, pickle.loads(pickle.dumps(caught.value))):  # noqa: S301 (our own bytes)
        assert (error.path, error.text) == ("spec.max", "9" * 200)
        assert str(error) == str(caught.value)
        assert isinstance(error, ValueError)


@pytest.mark.parametrize("resolution", [0, -1, 2, 10, 10**9])
def test_only_the_two_resolutions_are_served(resolution: int) -> None:
    with pytest.raises(ValueError, match="resolution"):
        parse("1", resolution)
    with pytest.raises(ValueError, match="resolution"):
        format_amount(1, resolution, False)


@pytest.mark.parametrize(
    ("amount", "resolution", "decimal", "binary"),
    [
        (0, UNIT, "0", "0"),
        (0, MILLI, "0", "0"),
        (1, UNIT, "1", "1"),
        (500, MILLI, "500m", "500m"),
        (1500, MILLI, "1500m", "1500m"),
        (1000, MILLI, "1", "1"),
        (2_000_000, MILLI, "2k", "2000"),
        (2000, UNIT, "2k", "2000"),
        (1200, UNIT, "1200", "1200"),
        (1000, UNIT, "1k", "1k"),  # below 1024 Kubernetes leaves the binary format
        (1023, UNIT, "1023", "1023"),
        (1024, UNIT, "1024", "1Ki"),
        (1025, UNIT, "1025", "1025"),
        (1536, UNIT, "1536", "1536"),
        (1_000_000, UNIT, "1M", "1000000"),
        (2048_000, MILLI, "2048", "2Ki"),
        (2048_500, MILLI, "2048500m", "2048500m"),
        (40 * 2**30, UNIT, "42949672960", "40Gi"),
        (1000 * 2**20, UNIT, "1048576k", "1000Mi"),
        (3 * 2**29, UNIT, "1610612736", "1536Mi"),
        (2**60, UNIT, "1152921504606846976", "1Ei"),
        (10**18, UNIT, "1E", "976562500000000Ki"),
        (-500, MILLI, "-500m", "-500m"),
        (-2048, UNIT, "-2048", "-2Ki"),
        (-1000, UNIT, "-1k", "-1k"),
        (MAX_AMOUNT, UNIT, "4611686018427387903", "4611686018427387903"),
        (MAX_AMOUNT, MILLI, "4611686018427387903m", "4611686018427387903m"),
    ],
)
def test_canonical_text(amount: int, resolution: int, decimal: str, binary: str) -> None:
    assert format_amount(amount, resolution, False) == decimal
    assert format_amount(amount, resolution, True) == binary


@settings(max_examples=300)
@given(AMOUNTS, RESOLUTIONS, st.booleans())
def test_text_and_back(amount: int, resolution: int, binary: bool) -> None:
    assert parse(format_amount(amount, resolution, binary), resolution, negative=True) == amount


@settings(max_examples=300)
@given(AMOUNTS, RESOLUTIONS, st.booleans())
def test_formats_like_the_reference_model(amount: int, resolution: int, binary: bool) -> None:
    assert format_amount(amount, resolution, binary) == reference.format_amount(amount, resolution, binary)


@settings(max_examples=600)
@given(QUANTITIES, RESOLUTIONS, st.booleans())
def test_reads_quantities_like_the_reference_model(text: str, resolution: int, negative: bool) -> None:
    assert outcome(text, resolution, negative) == reference.parse(text, resolution, negative)


@pytest.mark.parametrize("exponent", [*range(-150, -90), *range(-3, 25)])
def test_reads_numbers_of_any_size_like_the_reference_model(exponent: int) -> None:
    for number in ("1", "9" * 19, "9" * 100, "9" * 123, "." + "0" * 121 + "1"):
        text = f"{number}e{exponent}"
        for resolution in (UNIT, MILLI):
            assert outcome(text, resolution, False) == reference.parse(text, resolution, False)


@pytest.mark.parametrize("suffix", ["n", "m", "", "Ki", "Ei"])
def test_reads_long_fractions_like_the_reference_model(suffix: str) -> None:
    for zeros in (0, 50, 100, 124, 125):
        text = f".{'0' * zeros}1{suffix}"
        for resolution in (UNIT, MILLI):
            assert outcome(text, resolution, False) == reference.parse(text, resolution, False)


@settings(max_examples=600)
@given(NEAR_QUANTITIES | st.text(), RESOLUTIONS, st.booleans())
def test_reads_any_text_like_the_reference_model(text: str, resolution: int, negative: bool) -> None:
    assert outcome(text, resolution, negative) == reference.parse(text, resolution, negative)


@settings(max_examples=200)
@given(st.integers(-(10**17), 10**17) | st.integers() | st.floats(), RESOLUTIONS)
def test_reads_numbers_like_their_text(value: float, resolution: int) -> None:
    expected = reference.parse(repr(value), resolution, negative=True)
    try:
        found = parse(value, resolution, negative=True)
    except QuantityError:
        found = None
    assert found == expected
