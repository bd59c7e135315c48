"""The chart, and the pinned helm to render and install it."""

import os
import subprocess
from pathlib import Path
from typing import Any

import yaml

from tests.cluster.controlplane import binaries

CHART = Path(__file__).parent.parent.parent / "charts" / "bursar"
NAMESPACE = "bursar-system"
Manifest = dict[str, Any]


class Helm:
    """The pinned helm, for one cluster or for none."""

    def __init__(self, home: Path, kubeconfig: Path | None = None) -> None:
        self.binary = binaries.find(("helm",))["helm"].path
        folders = {f"HELM_{name}_HOME": str(home / name.lower()) for name in ("CACHE", "CONFIG", "DATA")}
        self.environment = {**os.environ, **folders, "KUBECONFIG": str(kubeconfig or home / "none")}

    def __call__(self, *arguments: str, check: bool = True) -> str:
        done = subprocess.run(
            [str(self.binary), *arguments], env=self.environment, capture_output=True, text=True, check=False
        )
        if check:
            assert done.returncode == 0, done.stderr
        else:
            assert done.returncode != 0, done.stdout
        return done.stdout if check else done.stderr

    def template(self, *arguments: str) -> list[Manifest]:
        text = self("template", "bursar", str(CHART), "-n", NAMESPACE, *arguments)
        return [document for document in yaml.safe_load_all(text) if document]
