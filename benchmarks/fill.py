"""Puts tables into docs/figures.md, so that no figure in them is typed by hand, and draws README's.

    python benchmarks/fill.py [--check]

Between `<!-- made by MODULE.FUNCTION() -->` and `<!-- end -->` stands what a function of a module here gives, from the
figures in benchmarks/results/. --check changes nothing; the exit code is 1 if there is anything to be changed.
"""

import argparse
import importlib
import re
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
PAGE = HERE.parent / "docs" / "figures.md"
PART = re.compile(r"(<!-- made by (\w+)\.(\w+)\((?:\"([\w-]+)\")?\) -->\n).*?(<!-- end -->)", re.S)


PICTURES = {"wnut-small": "wnut.svg"}


def table(name: str) -> str:
    """A table of `flair-nas tables`, from a copy of its folder's ledger.json and table.yaml."""
    from flair_nas.tables.showing import grid_of, to_markdown

    spec, ledger = kept(name)
    grid = grid_of(spec, ledger)
    run = [row for row in grid.rows if row[1] != "-"]  # --rows may have left some out
    return to_markdown(spec, grid._replace(rows=run)).partition("\n\n")[2]  # the page has headings of its own


def kept(name: str) -> Any:
    """A table and its ledger."""
    from flair_nas.select.ledger import Ledger
    from flair_nas.tables.spec import load_table

    folder = HERE / "results" / "tables" / name
    return load_table(str(folder / "table.yaml")), Ledger(folder / "ledger.json")


def draw() -> None:
    """Draws the tables that have a picture."""
    from flair_nas.drawing.comparison import draw_comparison
    from flair_nas.tables.showing import panels_of

    for name, picture in PICTURES.items():
        draw_comparison(panels_of(*kept(name)), PAGE.parent / picture)


def filled(text: str) -> str:
    """A page with its tables as they are now."""

    def made(match: re.Match[str]) -> str:
        begin, module, function, argument, end = match.groups()
        given = [argument] if argument else []
        return f"{begin}\n{getattr(importlib.import_module(module), function)(*given).strip()}\n\n{end}"

    return PART.sub(made, text)


def main() -> int:
    """Fills the page, or checks it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    arguments = parser.parse_args()
    sys.path.insert(0, str(HERE))
    before = PAGE.read_text(encoding="utf-8")
    after = filled(before)
    if not arguments.check:
        PAGE.write_text(after, encoding="utf-8")
        draw()
    return int(arguments.check and after != before)


if __name__ == "__main__":
    sys.exit(main())
