"""The figures of the layers that most users choose among, of the tables of small cells, for README and docs/results.md.

python -m benchmarks.taggers.summary
"""

import statistics

from benchmarks.json_lines import as_table
from benchmarks.tables.kept import kept
from benchmarks.taggers.small_cells import epoch_seconds
from flair_nas.experiments.statistics import mean_and_spread

TABLES = {
    "WNUT-2017, F1": "small_cells",
    "CoNLL-2000, F1": "small_cells_conll2000",
    "CoNLL-2003 (a quarter), F1": "small_cells_conll03",
    "Penn Treebank, perplexity": "small_cells_ptb",
}
LAYERS = {
    "lstm": "LSTM",
    "gru": "GRU",
    "small-tanh": "tanh0",
    "small-relu-tanh": "relu0-tanh1",
    "small-relu-tanh,recurrence=elementwise": "relu0-tanh1, elementwise",
    "darts-v1": "darts-v1",
}
"""Names for ``--rnn``, and those of the tables' rows."""


def figures(table: str, row: str) -> str:
    """Return mean and deviation of a row, with the number of seeds; "-" if nothing was trained."""
    _, ledger = kept(table)
    runs = [name for cell, names in ledger.plan["cells"].items() if cell.startswith(f"{row} / ") for name in names]
    values = [ledger.runs[name]["test"] for name in runs if "test" in ledger.runs.get(name, {})]
    return f"{mean_and_spread(values)} ({len(values)})" if values else "-"


def time_ratio(row: str) -> str:
    """Return the CPU time of a tagger's epoch on WNUT-2017, in times of the LSTM's."""
    seconds = epoch_seconds()
    return f"{statistics.mean(seconds[row]) / statistics.mean(seconds['LSTM']):.2f}"


def weights(row: str) -> str:
    """Return the weights of a tagger's layer, in times of the LSTM's."""
    _, ledger = kept("small_cells")
    count = {}
    for layer in (row, "LSTM"):
        name = ledger.plan["cells"][f"{layer} / WNUT-2017"][0]
        count[layer] = ledger.runs[name]["parameters"]
    return f"{count[row] / count['LSTM']:.2f}"


def table() -> str:
    """Return the figures by layer, as Markdown."""
    rows = [["`--rnn`", *TABLES, "weights, × LSTM", "CPU time an epoch, × LSTM"]]
    for name, row in LAYERS.items():
        rows.append([f"`{name}`", *(figures(kept, row) for kept in TABLES.values()), weights(row), time_ratio(row)])
    return as_table(rows)


def first_table() -> str:
    """Return the LSTM and the recommended cell by corpus, as Markdown."""
    rows = [["corpus", "LSTM", "`small-relu-tanh`"]]
    pair = [LAYERS[name] for name in ("lstm", "small-relu-tanh")]
    rows += [[title, *(figures(kept, row) for row in pair)] for title, kept in TABLES.items()]
    return as_table(rows)


if __name__ == "__main__":
    print(table(), first_table(), sep="\n\n")
