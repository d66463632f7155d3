"""What searches find, against random cells: searches at one small budget, then language models of one size with each.

    python -m benchmarks.search.found_cells search NAME ... --seeds 1 2 3 --text PTB --out RUNS
    python -m benchmarks.search.found_cells retrain NAME ... --seeds 1 2 --text PTB --out RUNS

NAME is a key of SEARCHES; for `retrain` also one of KNOWN, or `random-K` for the K-th random cell. `all` stands for all
of them. A model is trained with the genotype of every search seed that is there. Each run has a folder of its own below
RUNS, goes on where it was stopped, and leaves a line in benchmarks/results/found_cells.jsonl; what has one is not run
again. Processes with different names, or seeds, may run side by side. The tables come from those figures alone.
"""

import argparse
import dataclasses
import json
import math
import statistics
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from benchmarks.json_lines import RESULTS, append, holm, lines_in, lines_so_far
from flair_nas import Genotype, load_genotype, random_genotype
from flair_nas.experiments.statistics import combine_errors, mean_and_spread

FILE = RESULTS / "found_cells.jsonl"
HAND_MADE = "benchmarks/genotypes/ess-hand-made.json"  # gates drawn up by hand around i-darts-ptb
TEXT = {"vocabulary_size": 2000, "device": "cpu"}  # a softmax over all 10,000 types takes most of the time

SEARCH: dict[str, Any] = {
    "hidden_size": 64,
    "batch_size": 32,
    "epochs": 2,
    "vary_length": False,
    "learning_rate": 10.0,
    "dropout": 0.1,
    "input_dropout": 0.1,
    "recurrent_dropout": 0.05,
    "embedding_dropout": 0.05,
    "frequency_bias": False,  # as in the searches that docs/results.md has
}
SIGNAL = {"arch_clip": 0.03, "arch_beta2": 0.99, "arch_learning_rate": 1e-2}
ESS = {"relaxation": "darts", "history": 3}
SEARCHES: dict[str, dict[str, Any]] = {
    "i-darts": {},
    "i-darts-signal": SIGNAL,
    "darts-first": {"relaxation": "darts"},
    "darts-first-signal": {"relaxation": "darts", **SIGNAL},
    "halving": {"strategy": "random-independent", "samples": 32, "rungs": 4, "epochs": 9, "init_range": 0.25},
    "ess-joint": {"learn": "joint", "phase_steps": 115, **ESS},
    "gdas": {"sampling": "straight-through", **SIGNAL},
    "i-darts-perturbation": {"selection": "perturbation", **SIGNAL},
    "ess-inter": {"learn": "inter", "fixed": "i-darts-ptb", "init_range": 0.25, **ESS},
    "ess-intra": {"fixed": HAND_MADE, "relaxation": "darts"},
    "ess-joint-unlinked": {"learn": "joint", "phase_steps": 115, "gate_links": False, **ESS},
    "random-shared": {"strategy": "random-shared", "samples": 1000, "epochs": 9, "init_range": 0.25},
    "darts-second": {"relaxation": "darts", "order": 2},
    "darts-second-signal": {"relaxation": "darts", "order": 2, **SIGNAL},
    "halving-joint": {
        **{"strategy": "random-independent", "samples": 32, "rungs": 4, "epochs": 9, "init_range": 0.25},
        **{"learn": "joint", "history": 3},
    },
}
# read off the architecture weights of a search once more; or its cell without its gates
DERIVED = {
    "i-darts-n2": "i-darts",
    "i-darts-n2-signal": "i-darts-signal",
    "i-darts-one-identity": "i-darts-signal",
    "ess-joint-cell": "ess-joint",
}

RETRAIN: dict[str, Any] = {
    "batch_size": 64,
    "epochs": 6,
    "average_after": 4,
    "learning_rate": 10.0,
    "dropout": 0.2,
    "input_dropout": 0.1,
    "recurrent_dropout": 0.1,
    "embedding_dropout": 0.1,
    "word_dropout": 0.05,
    "eval_batch_size": 10,
}
HIDDEN_SIZE = 64  # of a cell without gates
KNOWN = {
    "lstm": "lstm",
    "darts-v2": "darts-v2",
    "i-darts-ptb": "i-darts-ptb",
    "ess-hand-made": HAND_MADE,
    "ess-hand-made-gated": f"{HAND_MADE},carry=gated",  # the carry of genotypes of version 1
    "ess-ptb": "ess-ptb",
    "ess-ptb-gated": "ess-ptb,carry=gated",
}
BEFORE = sorted(
    (Path(__file__).parents[1] / "genotypes" / "before").glob("*.json")
)  # found before searches were mended
KNOWN |= {f"before-{path.stem}": str(path) for path in BEFORE}
WITHIN = "random-within-gates"  # random cells within the gates that ess-intra searches within
GATED = "random-gated"  # random cells with random gates, the space of ess-joint
IDENTITY = "random-identity"  # random tails, all operations identity: what a drift to identity alone would give
IDENTITY_WITHIN = "identity-within-gates"  # and those within the gates drawn up by hand
LIKE = [
    ("ess-intra", WITHIN),
    ("ess-intra", IDENTITY_WITHIN),
    ("halving-joint", GATED),
    ("ess-joint", GATED),
    ("i-darts-perturbation", IDENTITY),
    (IDENTITY_WITHIN, WITHIN),
]
RANDOM = [f"random-{number}" for number in range(1, 21)]


def name_of(what: str, name: str, seed: int) -> str:
    """The name of a run, of its folder and of its figures."""
    return f"{what}-{name}-seed{seed}"


# --- runs ---


def run_search(name: str, seed: int, text: str, out: Path) -> None:
    """One search; its figures and layers are written when it is done."""
    from flair_nas import SearchConfig, search_genotype
    from flair_nas.settings.fields import make_settings

    config = make_settings(SearchConfig, {"text": text, "seed": seed, **TEXT, **SEARCH, **SEARCHES[name]})
    result = search_genotype(config, out / name_of("search", name, seed), progress=False)
    seconds = sum(line["seconds"] + line["evaluation_seconds"] for line in result.history)
    last = {key: result.history[-1].get(key) for key in ("mad", "health", "dev_perplexity")}
    line = {"genotype": result.genotype.one_line(), "layer": result.genotype.spec(), "seconds": seconds}
    write("search", name, seed, line | last | {"selection": config.selection})
    for derived in (derived for derived, source in DERIVED.items() if source == name):
        write("derived", derived, seed, {"layer": genotype_of(result.out, derived).spec()})


def genotype_of(run: Path, derived: str) -> Genotype:
    """Another genotype of a finished search."""
    from flair_nas.supernet import derive

    if derived == "ess-joint-cell":
        return dataclasses.replace(load_genotype(run), state_gate=None, input_gate=None)
    arch = torch.load(run / "checkpoint.pt", weights_only=True)["model"]["layer.arch"]
    return Genotype(derive(arch, "i-darts", 2) if "-n2" in derived else derive(arch, "i-darts", most_identity=1))


def run_retraining(name: str, rnn: str, seed: int, text: str, out: Path) -> None:
    """One language model; its figures are written when it is trained."""
    from flair_nas import LanguageModelConfig, train_language_model
    from flair_nas.errors import FlairNasError

    size = size_of(None if rnn == "lstm" else genotype_from(rnn))
    start = {} if rnn == "lstm" else {"init_range": 2 / math.sqrt(size)}  # of layers when these runs began
    config = LanguageModelConfig(text=text, rnn=rnn, hidden_size=size, seed=seed, **start, **TEXT, **RETRAIN)
    figures: dict[str, Any] = {"hidden_size": size, "settings": settings_of(config)}
    figures["genotype"] = "" if rnn == "lstm" else genotype_from(rnn).one_line()
    folder = out / name_of("retrain", name, seed)
    try:
        metrics = train_language_model(config, folder, progress=False)
    except FlairNasError as error:
        if "not finite" not in str(error) and "the loss on valid" not in str(error):
            raise
        write("retrain", name, seed, {**figures, "error": str(error).partition(":")[0]})  # a figure, too
        return
    kept = ("dev_perplexity", "test_perplexity", "parameters", "cpu_seconds_per_epoch", "best_epoch")
    lines = [json.loads(line) for line in (folder / "history.jsonl").read_text().splitlines()]
    figures |= {key: metrics[key] for key in kept} | {"history": [line["dev_perplexity"] for line in lines]}
    write("retrain", name, seed, figures)


def settings_of(config: Any) -> dict[str, Any]:
    """What a run was made with, wherever its text lies."""
    return {key: value for key, value in dataclasses.asdict(config).items() if key not in ("text", "device", "rnn")}


def genotype_from(rnn: str) -> Genotype:
    """The genotype that a text for ``--rnn`` stands for."""
    return load_genotype(rnn.partition(",")[0])


def size_of(genotype: Genotype | None, types: int = 2000) -> int:
    """The hidden size with which a model has as many parameters as one with an ungated cell, D = H, tied embeddings."""
    wanted = types * HIDDEN_SIZE + 20 * HIDDEN_SIZE**2

    def parameters(size: int) -> int:
        if genotype is None:
            return types * size + 8 * size**2 + 8 * size
        gates = [gate for gate in (genotype.state_gate, genotype.input_gate) if gate is not None]
        squares = 4 + 2 * len(genotype.nodes) + sum(2 * gate.history for gate in gates)
        return types * size + squares * size**2

    return min(range(8, 2 * HIDDEN_SIZE), key=lambda size: abs(parameters(size) - wanted))


def models_of(name: str) -> dict[str, str]:
    """The language models that a name stands for, and what ``--rnn`` is for each."""
    if name in KNOWN:
        return {name: KNOWN[name]}
    if name in RANDOM:
        return {name: random_genotype(int(name.removeprefix("random-"))).one_line()}
    if name in DRAWN:
        count, draw = DRAWN[name]
        return {f"{name}-of{number}": draw(number).one_line() for number in range(1, count + 1)}
    layers = {line["seed"]: line["layer"] for line in lines_in(FILE) if line["name"] == name and "layer" in line}
    return {f"{name}-of{seed}": layers[seed] for seed in sorted(layers)}


def within_gates(cell: Genotype) -> Genotype:
    """A cell with the gates drawn up by hand."""
    gates = load_genotype(HAND_MADE)
    return dataclasses.replace(cell, state_gate=gates.state_gate, input_gate=gates.input_gate)


def identity_alone(cell: Genotype) -> Genotype:
    """A cell with the same tails, and identity for each operation."""
    return Genotype([[dataclasses.replace(edge, op="identity") for edge in node] for node in cell.nodes])


DRAWN: dict[str, tuple[int, Callable[[int], Genotype]]] = {  # how many, and each by its number
    WITHIN: (6, lambda number: within_gates(random_genotype(number))),
    GATED: (6, lambda number: random_genotype(number, history=3)),
    IDENTITY: (6, lambda number: identity_alone(random_genotype(number))),
    IDENTITY_WITHIN: (4, lambda number: within_gates(identity_alone(random_genotype(number)))),
}


def write(what: str, name: str, seed: int, figures: dict[str, Any]) -> None:
    """Adds the line of a run."""
    append({"what": what, "name": name, "seed": seed, **figures}, FILE)
    print("written:", name_of(what, name, seed), flush=True)


# --- tables ---


def read(what: str) -> dict[str, list[dict[str, Any]]]:
    """All figures of a kind, by the name of search or layer, in the order of their names here."""
    found: dict[str, list[dict[str, Any]]] = {}
    lines = [line for line in lines_in(FILE) if line["what"] == what]
    for line in sorted(lines, key=lambda line: name_of(what, line["name"], line["seed"])):
        found.setdefault(line["name"].partition("-of")[0], []).append(line)
    return found


def table_of_searches() -> str:
    """What each search came to."""
    lines = [
        "| search | seed | seconds | supernet's perplexity | MAD | entropy | clear | identity | changed | genotype |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for name, runs in read("search").items():
        for run in runs:
            health = run["health"]
            mad = ", ".join(f"{value:.3f}" for value in (run["mad"] or {}).values()) or "-"
            cells = ["-"] * 4
            if health:
                entropies = [part["entropy"] for part in health["parts"].values() if "entropy" in part]
                entropy = ", ".join(f"{value:.3f}" for value in entropies) or "-"  # newer searches have none
                changed, clear = f"{health['changed']} of {health['nodes']}", f"{health['clear']:.0%}"
                if run["selection"] != "argmax":  # health is of the cell that was not taken
                    changed = clear = "-"
                cells = [entropy, clear, identity_of([run]), changed]
            perplexity = run["dev_perplexity"] or math.inf
            lines.append(
                f"| {name} | {run['seed']} | {run['seconds']:,.0f} | {perplexity:.1f} | {mad} | {' | '.join(cells)} | "
                f"`{run['genotype']}` |"
            )
    return "\n".join(lines)


def table_of_models() -> str:
    """Perplexities of cells that train, and how each name stands against random ones; by rank, others come last."""
    models = read("retrain")
    fit = fitted([run for runs in models.values() for run in runs])
    rows = {name: cells_of(runs) for name, runs in models.items()}
    random = [name for name in RANDOM if name in models]
    standing = {
        name: against(fit, cells, random, name not in KNOWN) for name, cells in rows.items() if name not in RANDOM
    }
    family = [name for name in SEARCHES if len(rows.get(name, [])) > 1]
    corrected = holm({name: standing[name][2] for name in family})
    everyone = f"{len(random)} random cells"
    rows = {name: cells for name, cells in rows.items() if name not in RANDOM} | {everyone: random}
    models[everyone] = [run for name in random for run in models[name]]
    lines = [
        f"| model | cells, models | not finite | valid perplexity | rank of each among {len(random)} random | "
        "better than random by | P(better) | p | p, Holm | identity | parameters |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for name, cells in sorted(rows.items(), key=lambda row: mean_of(fit, row[1])):
        runs, good = models[name], [run for run in models[name] if "error" not in run]
        values = [fit.cells[cell] for cell in cells]
        ranks = ", ".join(str(1 + sum(fit.cells[other] < value for other in random)) for value in values)
        compared = "- | - | - | -"
        if name in standing:
            gain, chance, p = standing[name]
            of_gain, of_chance = ("-" if math.isnan(value) else f"{value:.2f}" for value in (gain, chance))
            of_p = f"{p:.3f}" if name not in KNOWN else "-"
            of_p += f" | {corrected[name]:.2f}" if name in corrected else " | -"
            compared = f"{of_gain} | {of_chance} | {of_p}"
        lines.append(
            f"| {name} | {len(cells)}, {len(runs)} | {len(runs) - len(good)} | "
            f"{mean_and_spread(trained_of(fit, cells))} | "
            f"{ranks if len(cells) <= 5 else '-'} | {compared} | {identity_of(runs)} | "
            f"{max(run.get('parameters', 0) for run in runs):,} |"
        )
    return "\n".join(lines)


def table_of_spaces() -> str:
    """Searches against random cells that share more with them: gates, or that all operations are identity."""
    models = read("retrain")
    fit = fitted([run for runs in models.values() for run in runs])
    lines = ["| cells | other random cells | better than these by | P(better) | p |", "| --- | --- | --- | --- | --- |"]
    for name, random in (pair for pair in LIKE if models.keys() >= set(pair)):
        gain, chance, p = against(fit, cells_of(models[name]), cells_of(models[random]), True)
        lines.append(f"| {name} | {random} | {gain:.2f} | {chance:.2f} | {p:.3f} |")
    return "\n".join(lines)


def cells_of(runs: list[dict[str, Any]]) -> list[str]:
    """The names of the cells that models are of, each once."""
    return list(dict.fromkeys(run["name"] for run in runs))


def identity_of(runs: list[dict[str, Any]]) -> str:
    """The share of identity edges in the cells of models, the mean over all."""
    shares = [share_of_identity(run["genotype"]) for run in runs if run["genotype"]]
    return f"{statistics.mean(shares):.0%}" if shares else "-"


def share_of_identity(genotype: str) -> float:
    """The share of identity edges in a cell."""
    edges = [edge.op for node in load_genotype(genotype).nodes for edge in node]
    return edges.count("identity") / len(edges)


class Fitted(NamedTuple):
    """Perplexities as a sum of cell and seed: models of one seed share their first weights and the order of text."""

    cells: dict[str, float]  # perplexity with seed 1; inf where a model of the cell was not finite
    models: dict[str, int]  # how many there are of each cell
    noise: float  # the variance that is left, between the models of a cell; nan where no cell has two
    freedom: int  # degrees of freedom of that
    seeds: dict[int, float]  # by how much the models of a seed lie above those of seed 1


def fitted(runs: list[dict[str, Any]]) -> Fitted:
    """Fits that sum to all models by least squares."""
    good = [run for run in runs if "error" not in run]
    failed = {run["name"] for run in runs if "error" in run}
    names, seeds = sorted({run["name"] for run in good}), sorted({run["seed"] for run in good} | {1})
    rows = np.zeros((len(good), len(names) + len(seeds) - 1))
    for row, run in zip(rows, good):
        row[names.index(run["name"])] = 1
        if place := seeds.index(run["seed"]):
            row[len(names) + place - 1] = 1
    values = np.array([run["dev_perplexity"] for run in good])
    found, _, rank, _ = np.linalg.lstsq(rows, values, rcond=None)
    left = len(good) - rank
    noise = float(((values - rows @ found) ** 2).sum() / left) if left else math.nan
    cells = {name: math.inf if name in failed else float(value) for name, value in zip(names, found)}
    models = Counter(run["name"] for run in runs)
    return Fitted(
        {**dict.fromkeys(failed, math.inf), **cells}, models, noise, left, dict(zip(seeds[1:], found[len(names) :]))
    )


def trained_of(fit: Fitted, cells: list[str]) -> list[float]:
    """The perplexities of those cells that train."""
    return [fit.cells[cell] for cell in cells if math.isfinite(fit.cells[cell])]


def mean_of(fit: Fitted, cells: list[str]) -> float:
    """The mean perplexity of those cells that train; inf where none does."""
    trained = trained_of(fit, cells)
    return statistics.mean(trained) if trained else math.inf


def against(fit: Fitted, cells: list[str], random: list[str], sampled: bool) -> tuple[float, float, float]:
    """How cells stand against random ones; if they are sampled, another search would have found others.

    Among those that train, by how much the mean cell is better, and how probable it is that such cells are better than
    random ones (Student's t over cells, or over the noise between models); the one-sided p of a rank sum test (Mann and
    Whitney), in which cells that do not train come last.
    """
    from scipy.stats import mannwhitneyu

    everyone = [[fit.cells[name] for name in names] for names in (cells, random)]
    p = float(mannwhitneyu(*everyone, alternative="less").pvalue)
    means, of_random = (np.array(trained_of(fit, names)) for names in (cells, random))
    gain = float(of_random.mean() - means.mean()) if len(means) else math.nan
    if len(means) < (2 if sampled else 1) or (not sampled and math.isnan(fit.noise)):
        chance = math.nan  # one search does not tell how searches differ, nor one model how models do
    else:
        over_cells, over_random = (
            (float(values.var(ddof=1)) / len(values), len(values) - 1.0) if len(values) > 1 else (0.0, 1.0)
            for values in (means, of_random)
        )
        over_models = sum(fit.noise / fit.models[name] for name in cells) / len(cells) ** 2, float(fit.freedom)
        chance = combine_errors(gain, [over_cells if sampled else over_models, over_random]).probability
    return gain, chance, p


def order() -> str:
    """How far the order of all models is settled: rank correlation between half of the epochs and the end."""
    from scipy.stats import spearmanr

    runs = [run for runs in read("retrain").values() for run in runs if "error" not in run]
    half = RETRAIN["epochs"] // 2

    def correlation(of: list[dict[str, Any]]) -> str:
        found = spearmanr([run["history"][half - 1] for run in of], [run["history"][-1] for run in of])
        return f"{found.statistic:.2f} of {len(of)}"

    alike = [run for run in runs if run["genotype"] and load_genotype(run["genotype"]).state_gate is None]
    shares = {run["name"]: share_of_identity(run["genotype"]) for run in alike}
    fit = fitted(runs)
    of_identity = spearmanr(list(shares.values()), [fit.cells[name] for name in shares])
    gained = statistics.mean(run["history"][-2] - run["history"][-1] for run in runs)
    seeds = "; ".join(
        f"models of seed {seed} are {value:+.2f} from those of seed 1" for seed, value in fit.seeds.items()
    )
    return (
        f"Rank correlation (Spearman) between epoch {half} and the last: {correlation(runs)} models, "
        f"{correlation(alike)} with cells without gates. The last epoch lowers perplexity by {gained:.2f} on average. "
        f"In the fit, {seeds}. Besides, two models of one cell have a standard deviation of "
        f"{math.sqrt(fit.noise):.2f}. The share of identity edges and perplexity: {of_identity.statistic:.2f} over "
        f"{len(shares)} cells without gates."
    )


def main() -> None:
    """Runs what the command line names."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("search", "retrain"))
    parser.add_argument("names", nargs="*")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1])
    parser.add_argument("--text", help="folder with the Penn Treebank as train.txt, valid.txt, test.txt")
    parser.add_argument("--out", type=Path, default=Path("runs/found_cells"), help="folder of the runs")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    searches = arguments.what == "search"
    known = list(SEARCHES) if searches else [*KNOWN, *RANDOM, *DRAWN, *SEARCHES, *DERIVED]
    names = known if arguments.names == ["all"] else arguments.names
    if unknown := sorted(set(names) - set(known)):
        parser.error(f"unknown names {', '.join(unknown)}; there are {', '.join(known)}")
    for seed in arguments.seeds:
        for name in names:
            for model, rnn in ({name: ""} if searches else models_of(name)).items():
                done = {(line["what"], line["name"], line["seed"]) for line in lines_so_far(FILE)}
                if (arguments.what, model, seed) in done:
                    continue
                if searches:
                    run_search(name, seed, arguments.text, arguments.out)
                else:
                    run_retraining(model, rnn, seed, arguments.text, arguments.out)


if __name__ == "__main__":
    import logging

    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    main()
