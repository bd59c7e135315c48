"""Write the reference pages from the code: docs/cli.md, docs/api.md, docs/reasons.md."""

from sources import ROOT

from bursar.cli.info import command_reference, reasons_page
from bursar.server.openapi import reference

PAGES = {"cli.md": command_reference, "api.md": reference, "reasons.md": reasons_page}


def main() -> None:
    for name, page in PAGES.items():
        (ROOT / "docs" / name).write_text(page())


if __name__ == "__main__":
    main()
