from benchmarks.work.pool_levels import applies, siblings

_EACH = ("first", "median", "longest")


def test_each_situation_of_siblings_has_its_figures() -> None:
    """The claims are admitted or refused as the situation says, or else it raises."""
    found = siblings(400)
    assert set(found) == {f"{name}-{each}" for name in ("plenty", "over", "within", "borrow") for each in _EACH}


def test_applies_are_measured_with_the_first_one() -> None:
    found = applies(720, 40)
    assert set(found) == {f"{name}-{each}" for name in ("pod", "quota", "change") for each in _EACH}
    assert all(value > 0 for value in found.values())
