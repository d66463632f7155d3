"""Whether cells that are good on text are good on tags, too, and those good that were published as good.

    python -m benchmarks.taggers.zoo_order

Rank correlations (Spearman) of the cells without gates in the table `zoo-small`: of one column with the other, of the
published figures with both, and of single seeds with one another, which is how far chance lets a column agree with
itself.
"""

from itertools import combinations
from statistics import mean

from scipy.stats import spearmanr

from benchmarks.tables.kept import kept
from benchmarks.tables.showing import make_panels
from flair_nas.library.named import load_genotype

TABLE, TEXT, TAGS = "zoo-small", "PTB", "WNUT-2017"


def sentence() -> str:
    """The correlations in words; positive ones are of cells that are good in both."""
    spec, ledger = kept(TABLE)
    of_columns = dict(zip((column.name for column in spec.columns), make_panels(spec, ledger).values()))
    cells = [row for row in spec.rows if row.rnn != "lstm" and load_genotype(row.rnn).state_gate is None]
    seeds = {
        name: [[sign * figure for figure in of_columns[name][cell.name]] for cell in cells]
        for name, sign in ((TEXT, -1), (TAGS, 1))
    }
    means = {name: list(map(mean, of)) for name, of in seeds.items()}
    published = [i for i, cell in enumerate(cells) if TEXT in cell.published]
    claimed = [-cells[i].published[TEXT] for i in published]
    itself = {
        name: mean(spearmanr(*pair).statistic for pair in combinations(zip(*of, strict=True), 2))
        for name, of in seeds.items()
    }
    single = ", ".join(f"{spearmanr(means[TEXT], of).statistic:.2f}" for of in zip(*seeds[TAGS], strict=True))
    text, tags = (_said(claimed, [means[name][i] for i in published]) for name in (TEXT, TAGS))
    return (
        f"Rank correlation of {len(cells)} cells without gates: perplexity on {TEXT} with F1 on {TAGS}, "
        f"{_said(means[TEXT], means[TAGS])}; with that of single seeds of taggers {single}. Of the {len(published)} "
        f"with a published figure on {TEXT}: that with the perplexity here {text}, with F1 on {TAGS} {tags}. One seed "
        f"with another: {itself[TEXT]:.2f} on {TEXT}, {itself[TAGS]:.2f} on {TAGS}."
    )


def _said(first: list[float], second: list[float]) -> str:
    found = spearmanr(first, second)
    return f"{found.statistic:.2f} (p = {found.pvalue:.2f})"


if __name__ == "__main__":
    print(sentence())
