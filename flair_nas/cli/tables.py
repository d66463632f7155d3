"""flair-nas tables: run a table of layers by corpora, and show it."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from flair_nas.cli.flags import Actions, add_action, add_list_flag, add_setting_flags, settings_of_run
from flair_nas.cli.log import quiet_flair
from flair_nas.errors import FlairNasError, brief
from flair_nas.runs.signals import exit_on_signal
from flair_nas.storage.paths import typed, user_path
from flair_nas.tables.config import TableConfig

EXAMPLES = """examples:
  flair-nas tables run wnut-small --data-root DATASETS --embeddings word:vectors.gensim char --out runs/wnut
  flair-nas tables run mine.yaml --text my_text/ --budget 8h --out runs/mine
  flair-nas tables run --resume runs/mine
  flair-nas tables show runs/mine --format latex
  flair-nas tables show runs/mine --picture mine.svg

A table is a YAML file, which docs/tables.md describes. A finished run is never repeated."""


def add_parser(verbs: Actions) -> None:
    """Add the verb and its actions."""
    tables = verbs.add_parser("tables", help="run and show tables of layers by corpora", description=__doc__)
    actions = tables.add_subparsers(title="actions", metavar="ACTION", required=True)
    parser = add_action(actions, "run", run, "Run what a table needs.", EXAMPLES)
    # TABLE comes first: a flag with several words would take it
    parser.usage = "%(prog)s [TABLE] --out DIR [settings]\n       %(prog)s --resume DIR [settings]"
    parser.add_argument("given", nargs="?", metavar="TABLE", help="the same as --table: a YAML file or a bundled name")
    parser.add_argument("--out", metavar="DIR", help="folder for the ledger, the table and all runs")
    parser.add_argument("--resume", metavar="DIR", help="resume the table in this folder")
    parser.add_argument("--config", metavar="FILE", help="YAML file of settings, such as OUT/config.yaml")
    add_list_flag(parser, "tables")
    parser.set_defaults(preset=None)
    add_setting_flags(parser, TableConfig)
    parser = add_action(actions, "show", show, "Show the finished part of a table.", EXAMPLES)
    parser.add_argument("folder", metavar="DIR", help="the --out folder of `tables run`")
    parser.add_argument("--format", choices=("markdown", "csv", "latex"), default="markdown", help="default: markdown")
    parser.add_argument(
        "--picture", metavar="FILE", help="also draw it: seeds as points, mean and deviation as bars (.svg, .png, .pdf)"
    )


def run(arguments: argparse.Namespace) -> int:
    """Run ``flair-nas tables run``."""
    if arguments.given is not None:
        if arguments.table is not None:
            raise FlairNasError(f"give the table once, as {brief(arguments.given)} or by --table")
        arguments.table = arguments.given
    config, out = settings_of_run(arguments, TableConfig, "tables", quantity="table")
    with exit_on_signal():
        quiet_flair(arguments)
        from flair_nas.tables.running import run_table

    _, _, remaining = run_table(config, out)
    print((out / "table.md").read_text(encoding="utf-8"), end="")
    print(f"table: {out / 'table.md'}; each run: {out / 'runs'}")
    if remaining:
        print(f"{remaining}; go on with: flair-nas tables run --resume {typed(out)}")
    return 0


def show(arguments: argparse.Namespace) -> int:
    """Run ``flair-nas tables show``."""
    from flair_nas.experiments.ledger import Ledger
    from flair_nas.tables.running import COPY
    from flair_nas.tables.showing import FORMATS, make_grid, make_panels
    from flair_nas.tables.spec import load_table

    folder = _find_folder(arguments.folder)
    table = load_table(str(folder / COPY))
    ledger = Ledger(folder / "ledger.json")
    if arguments.picture is not None:
        from flair_nas.drawing.charts import draw_comparison

        picture = user_path(arguments.picture)
        if picture.suffix.lower() not in (".svg", ".png", ".pdf"):
            raise FlairNasError(f"--picture {picture} must end in .svg, .png or .pdf")
        draw_comparison(make_panels(table, ledger), picture)
        print(f"picture: {picture}", file=sys.stderr)  # standard output is the table alone
    print(FORMATS[arguments.format](table, make_grid(table, ledger)), end="")
    return 0


def _find_folder(path_text: str) -> Path:
    """Return the folder of a table's runs, which may be given by a file in it."""
    from flair_nas.tables.running import COPY
    from flair_nas.tables.spec import bundled_tables

    path = user_path(path_text)
    folder = path.parent if path.is_file() else path
    if (folder / COPY).exists() and (folder / "ledger.json").exists():
        return folder
    is_table = path.is_file() and path.suffix.lower() in (".yaml", ".yml")
    if is_table or (path_text in bundled_tables() and not path.exists()):
        raise FlairNasError(
            f"{brief(path_text)} is a table, and its runs are in another folder: run it by flair-nas tables run "
            f"{typed(Path(path_text))} --out DIR, and show it by flair-nas tables show DIR"
        )
    raise FlairNasError(f"{brief(path_text)} holds no table (no {COPY} and ledger.json in it)")
