"""The tool that writes the reference pages, for tests that compare them with the code."""

import importlib
import sys
from pathlib import Path

TOOLS = Path(__file__).resolve().parents[1] / "tools"


def reference_page(name: str) -> str:
    """The text of a page of docs/ as the code has it now."""
    sys.path.insert(0, str(TOOLS))
    try:
        pages = importlib.import_module("reference").PAGES
    finally:
        sys.path.remove(str(TOOLS))
    return str(pages[name]())
