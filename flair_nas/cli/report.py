"""flair-nas report: one HTML page on runs."""

from __future__ import annotations

import argparse

from flair_nas.cli.flags import Actions, add_action
from flair_nas.errors import FlairNasError, brief
from flair_nas.storage.paths import typed, user_path

EXAMPLES = """examples:
  flair-nas report runs/search
  flair-nas report runs/darts runs/i-darts --out searches.html
  flair-nas report runs/tune runs/mine --out all.html --png figures/

The page needs no network. It shows finished, running and interrupted runs. Plotly comes with:
pip install 'flair-nas[report]'"""

REPORT = b"<title>flair-nas report: "
"""Bytes near the beginning of each page."""


def add_parser(verbs: Actions) -> None:
    """Add the verb."""
    parser = add_action(verbs, "report", run, EXAMPLES)
    kinds = "search, tune, lm train, charlm train or tag train"
    parser.add_argument("runs", nargs="+", metavar="RUN", help=f"the --out folder of {kinds}")
    parser.add_argument("--out", metavar="FILE", default="report.html", help="the page (default: report.html)")
    parser.add_argument("--png", metavar="DIR", help="also write the figures as PNG to this folder; needs Kaleido")


def run(arguments: argparse.Namespace) -> int:
    """Write one HTML page with the curves and figures of runs."""
    out = user_path(arguments.out)
    if out.suffix.lower() not in (".html", ".htm"):
        raise FlairNasError(f"--out {brief(arguments.out)} must end in .html")
    if out.is_file():
        with out.open("rb") as page:
            if REPORT not in page.read(1000):
                raise FlairNasError(f"{out} exists and is no report of flair-nas; name another file with --out")
    pictures = user_path(arguments.png) if arguments.png else None

    from flair_nas.report.writing import write_report

    write_report(arguments.runs, out, pictures)
    print(f"report: {typed(out)} ({out.stat().st_size / 1e6:.1f} MB)")
    if pictures is not None:
        print(f"pictures: {typed(pictures)}")
    return 0
