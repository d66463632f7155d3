"""Puts figures into README, docs/, figures/ and the bundled genotypes, and draws README's; none is typed by hand.

    python -m benchmarks.fill [--check]

Between `<!-- made by MODULE.FUNCTION() -->` and `<!-- end -->` stands what a function of a module here gives, from the
figures in benchmarks/results/. --check changes nothing; the exit code is 1 if there is anything to be changed.
"""

import argparse
import dataclasses
import importlib
import re
import sys
import textwrap
from pathlib import Path

from benchmarks.search import arena
from benchmarks.tables.kept import kept
from benchmarks.tables.showing import draw_comparison, make_panels
from benchmarks.taggers import small_cells
from flair_nas import bundled_names, load_genotype, resource_path
from flair_nas.cli.genotypes import MEASURED
from flair_nas.experiments.statistics import mean_and_spread

HERE = Path(__file__).parent
DOCS = HERE.parent / "docs"
PART = re.compile(r"(<!-- made by ([\w.]+)\.(\w+)\((?:\"([\w-]+)\")?\) -->\n).*?(<!-- end -->)", re.S)
PICTURES = {"wnut-small": "wnut.svg"}
_SEEDS = 3  # fewer tell too little to go into a genotype's file


def draw() -> None:
    """Draws the tables that have a picture."""
    for name, picture in PICTURES.items():
        draw_comparison(make_panels(*kept(name)), DOCS / picture)
    small_cells.draw(DOCS / "small_cells.svg")
    arena.draw(DOCS / "arena.svg")


def bundled() -> dict[Path, str]:
    """The files of the bundled genotypes, with what the table of the field's cells has for each."""
    found = {}
    panels = make_panels(*kept(MEASURED))
    for name in bundled_names():
        genotype = load_genotype(name)
        own = {
            f"{MEASURED}: {title}": f"{mean_and_spread(values)} ({len(values)} seeds)"
            for title, rows in panels.items()
            if len(values := rows.get(name) or rows.get(f"{name} of equal size") or []) >= _SEEDS
        }
        others = {
            key: value
            for key, value in genotype.origin.get("figures", {}).items()
            if not key.startswith(f"{MEASURED}: ")
        }
        origin = {**genotype.origin, "figures": {**others, **own}}
        found[resource_path("genotypes", f"{name}.json")] = dataclasses.replace(genotype, origin=origin).to_json()
    return found


def wrapped(line: str) -> str:
    """A line of prose in lines of 120 characters, or a row of a table as it is."""
    if line.startswith("|"):
        return line
    return textwrap.fill(line, 120, break_long_words=False, break_on_hyphens=False)


def filled(text: str) -> str:
    """A page with its tables as they are now."""

    def made(match: re.Match[str]) -> str:
        begin, module, function, argument, end = match.groups()
        given = [argument] if argument else []
        part = getattr(importlib.import_module(f"benchmarks.{module}"), function)(*given).strip()
        return "\n".join([begin, *map(wrapped, part.splitlines()), "", end])

    return PART.sub(made, text)


def main() -> int:
    """Fills the pages, or checks them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    arguments = parser.parse_args()
    pages = [*sorted(DOCS.rglob("*.md")), *sorted((HERE / "figures").glob("*.md")), HERE.parent / "README.md"]
    files = {**{page: filled(page.read_text(encoding="utf-8")) for page in pages}, **bundled()}
    changed = [path for path, text in files.items() if path.read_text(encoding="utf-8") != text]
    if arguments.check:
        print("".join(f"{path} is not what the figures give\n" for path in changed), end="")
        return int(bool(changed))
    for path in changed:
        path.write_text(files[path], encoding="utf-8")
    draw()
    return 0


if __name__ == "__main__":
    sys.exit(main())
