"""The child process that sums a journal up: writes a packed snapshot with its label to stdout, and ends."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import msgspec

from bursar.store.snapshots import pack, summed
from bursar.store.store import Store
from bursar.store.verify import run_child

_NICER = 5  # deciding goes before summing up


def main(path: Path) -> None:
    os.nice(_NICER)
    with Store.open(path, read_only=True) as store:
        label, state = pack(summed(store))
    sys.stdout.buffer.write(msgspec.json.encode(label) + b"\n" + state)
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    run_child(lambda: main(Path(sys.argv[1])))
