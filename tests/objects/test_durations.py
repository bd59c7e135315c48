import pytest
from hypothesis import given
from hypothesis import strategies as st

from bursar.objects.decode import ManifestError
from bursar.objects.validation import duration_ms


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("30s", 30_000),
        ("5m", 300_000),
        ("1h30m", 5_400_000),
        ("250ms", 250),
        ("1.5s", 1500),
        ("0.001s", 1),
        ("1m0.5s", 60_500),
        ("1h2m3s4ms", 3_723_004),
        ("0s", 0),
        ("0", 0),
        (0, 0),
        ("0.1h", 360_000),
    ],
)
def test_duration(text: object, expected: int) -> None:
    assert duration_ms(text) == expected


@pytest.mark.parametrize(
    "value",
    ["", "30", "s", "-5s", "1m1h", "5s5s", "1 s", "1e3s", ".5s", "٣s", 30, 1.5, True, False, None, [], {}, "1d"],
)
def test_no_duration(value: object) -> None:
    with pytest.raises(ManifestError, match=r"steps\[2\]\.advance: .* is not a duration: write it as 30s"):
        duration_ms(value, "steps[2].advance")


def test_finer_than_a_millisecond_is_refused() -> None:
    with pytest.raises(ManifestError, match=r"'0\.0005s' is not a duration: finer than a millisecond"):
        duration_ms("0.0005s")


@given(st.integers(0, 10**6), st.integers(0, 59), st.integers(0, 59), st.integers(0, 999))
def test_parts_add_up(hours: int, minutes: int, seconds: int, milliseconds: int) -> None:
    text = f"{hours}h{minutes}m{seconds}s{milliseconds}ms"
    assert duration_ms(text) == ((hours * 60 + minutes) * 60 + seconds) * 1000 + milliseconds
