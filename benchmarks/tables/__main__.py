"""Run a table of layers by corpora, show it, or keep its runs.

    python -m benchmarks.tables run wnut-small --data-root DATASETS --embeddings word:VECTORS.gensim char --out RUNS
    python -m benchmarks.tables show wnut-small RUNS [--picture FILE.svg]
    python -m benchmarks.tables keep wnut-small RUNS    # what the figures need, to benchmarks/results/

A table is the name of one in benchmarks/tables/, or a YAML file as spec.py describes. A call with the same --out goes
on: finished runs are kept, and what has changed in the table is run anew.
"""

import argparse
import logging
from pathlib import Path

from benchmarks.tables.kept import keep
from benchmarks.tables.running import run_table
from benchmarks.tables.showing import draw_comparison, make_grid, make_panels, to_markdown
from benchmarks.tables.spec import load_table
from flair_nas.experiments.config import PoolSettings
from flair_nas.experiments.ledger import Ledger


def main() -> None:
    """Run, show or keep a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    run = actions.add_parser("run")
    run.add_argument("table")
    run.add_argument("--out", type=Path, required=True, metavar="DIR")
    run.add_argument("--rows", nargs="+", default=[], metavar="ROW", help="these rows alone")
    run.add_argument("--seeds", type=lambda text: [*map(int, text.split(","))], default=[], metavar="1,2,3")
    run.add_argument("--workers", type=int, metavar="N", help="processes that train side by side")
    run.add_argument("--data-root", metavar="DIR", help="folder of the named corpora")
    run.add_argument("--embeddings", nargs="+", default=[], metavar="NAME", help="in place of those of the table")
    run.add_argument("--text", metavar="DIR", help="text of columns that name none")
    run.add_argument("--device")
    show = actions.add_parser("show")
    show.add_argument("table")
    show.add_argument("out", type=Path, metavar="DIR")
    show.add_argument("--picture", type=Path, metavar="FILE.svg")
    kept = actions.add_parser("keep")
    kept.add_argument("table")
    kept.add_argument("out", type=Path, metavar="DIR")
    arguments = parser.parse_args()
    table = load_table(arguments.table)
    if arguments.action == "run":
        logging.basicConfig(level=logging.INFO, format="%(message)s")
        pool = PoolSettings(workers=arguments.workers, device=arguments.device)
        options = {name: getattr(arguments, name) for name in ("rows", "seeds", "data_root", "embeddings", "text")}
        ledger = run_table(table, arguments.out, pool=pool, device=arguments.device, **options)
    else:
        ledger = Ledger(arguments.out / "ledger.json")
    if arguments.action == "keep":
        keep(arguments.table, ledger)
    print(to_markdown(table, make_grid(table, ledger)), end="")
    if getattr(arguments, "picture", None):
        draw_comparison(make_panels(table, ledger), arguments.picture)


if __name__ == "__main__":
    main()
