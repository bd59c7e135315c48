"""Rewrite the golden record and show what changed: ``make golden``; ``--check`` shows it and writes nothing.

The record is in ``tests/golden``: journals of all scenarios, the API, metrics, reasons, manifests, the command line.
What programs rely on is listed field by field, with the recorded and the new value. New wording is listed after it.
"""

from __future__ import annotations

import argparse
import sys

from tests.golden import PARTS
from tests.golden.record import WORDING, compare, load, make, save

MOST_TEXTS = 20  # shown of each part


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; exit code 1 if a field differs")
    check = parser.parse_args().check
    recorded, found = load(), make(PARTS)
    changed = compare(recorded, found)
    for one in changed:
        print(one.line())
    for part, texts in found[WORDING].items():
        show_wording(part, [text for text in texts if text not in recorded.get(WORDING, {}).get(part, [])])
    print(f"{len(changed)} fields differ from the record")
    if not check:
        save(found)
    return 1 if check and changed else 0


def show_wording(part: str, texts: list[str]) -> None:
    for text in texts[:MOST_TEXTS]:
        print(f"new wording in {part}: {text}")
    if len(texts) > MOST_TEXTS:
        print(f"new wording in {part}: {len(texts) - MOST_TEXTS} more texts")


if __name__ == "__main__":
    sys.exit(main())
