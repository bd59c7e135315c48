import json
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest

from benchmarks import __main__ as harness
from benchmarks import parts
from benchmarks.children import ChildError, loaded_mode, measure
from benchmarks.rows import Row


@pytest.fixture
def part(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[str, str], None]:
    """Adds a part: a module of that name with that body of ``rows``."""
    monkeypatch.setattr(parts, "__path__", [str(tmp_path / "parts")])
    (tmp_path / "parts").mkdir()

    def add(name: str, body: str) -> None:
        text = f"from benchmarks.rows import Row\n\n\ndef rows():\n    {body}\n"
        (tmp_path / "parts" / f"{name}.py").write_text(text)

    return add


def test_every_part_is_found_by_its_name_and_has_rows() -> None:
    import importlib

    assert "engine" in harness.names()
    for name in harness.names():
        module: ModuleType = importlib.import_module(f"benchmarks.parts.{name}")
        assert callable(module.rows)


def test_a_missed_goal_is_shown_and_counted_but_no_failure(
    part: Callable[[str, str], None], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    part("slow_one", "yield Row('speed', 1, 'x/s', 2)")
    assert harness.main(["slow_one"], tmp_path) == 0
    shown = capsys.readouterr().out
    assert "short" in shown
    assert shown.endswith("1 goals, 1 short\n")
    assert json.loads((tmp_path / "slow_one.json").read_text())[0]["verdict"] == "short"


def test_a_part_that_crashes_fails_the_run_and_not_the_others(
    part: Callable[[str, str], None], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    part("broken_one", "raise OSError('no such thing')")
    part("sound_one", "yield Row('speed', 3, 'x/s', 2)")
    assert harness.main([], tmp_path) == 1
    shown = capsys.readouterr()
    assert shown.out.endswith("1 goals, 0 short; crashed: broken_one\n")
    assert "no such thing" in shown.err
    assert not (tmp_path / "broken_one.json").exists()


def test_an_unknown_part_is_refused_with_the_list_of_those_there_are(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert harness.main(["nonsense"], tmp_path) == 2
    assert "no part nonsense; there are: " in capsys.readouterr().err


def test_closing_counts_goals_only() -> None:
    rows: Iterator[Row] = iter([Row("a", 1, "x", 2), Row("b", 1, "x"), Row("c", 3, "x", 2)])
    assert harness.closing(list(rows), []) == "2 goals, 1 short"


def test_a_measurement_comes_back_from_a_child_of_the_wanted_kind() -> None:
    found = measure("tests.benchmarks.echo:figures", loaded_mode(), number=4)
    assert found == {"twice": 8, "compiled": float(loaded_mode() == "compiled")}


def test_a_child_that_fails_gives_no_figure(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ChildError, match=r"tests\.benchmarks\.echo:fail .* gave no result, exit 1"):
        measure("tests.benchmarks.echo:fail", loaded_mode())
    assert "on purpose" in capfd.readouterr().err
