"""The Containerfile fits what it is built from and the chart that runs it. (Building it needs a container engine.)"""

import re
from pathlib import Path

import yaml

ROOT = Path(__file__).parent.parent.parent
TEXT = (ROOT / "Containerfile").read_text()


def copied() -> list[str]:
    lines = [line.split()[1:] for line in TEXT.splitlines() if line.startswith("COPY") and "--from" not in line]
    return [source for *sources, _ in lines for source in sources]


def deployment() -> str:
    return (ROOT / "charts" / "bursar" / "templates" / "deployment.yaml").read_text()


def test_everything_that_is_copied_exists_and_is_let_through() -> None:
    let_through = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    assert set(copied()) == let_through
    for source in copied():
        assert (ROOT / source).exists()


def test_the_build_has_what_the_wheel_needs() -> None:
    project = (ROOT / "pyproject.toml").read_text()
    for named in re.findall(r'^(?:readme = |license-files = \[)"([^"]+)"', project, re.MULTILINE):
        assert named in copied()
    assert "BURSAR_COMPILE=1" in TEXT
    assert '\nbursar = "bursar.cli.main:main"' in project  # the entry point


def test_the_user_is_the_one_that_the_chart_asks_for() -> None:
    found = re.search(r"^USER ([0-9]+):([0-9]+)$", TEXT, re.MULTILINE)
    assert found is not None
    assert f"runAsUser: {found[1]}\n" in deployment()
    assert f"runAsGroup: {found[2]}\n" in deployment()


def test_the_ports_are_those_of_the_chart() -> None:
    found = re.search(r"^EXPOSE (.*)$", TEXT, re.MULTILINE)
    assert found is not None
    assert found[1].split() == re.findall(r"containerPort: ([0-9]+)", deployment())


def test_the_tag_in_its_first_lines_is_that_of_the_chart() -> None:
    version = yaml.safe_load((ROOT / "charts" / "bursar" / "Chart.yaml").read_text())["appVersion"]
    assert TEXT.count(f"bursar:{version}") == 2
