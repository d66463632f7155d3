"""Searches at one small budget, then language models with what they found, next to known cells, all at one setting.

    python benchmarks/search_quality.py search NAME ... --text PTB --out RUNS
    python benchmarks/search_quality.py retrain NAME ... --text PTB --out RUNS
    python benchmarks/search_quality.py table | picture

NAME is a key of SEARCHES or RETRAININGS below; `all` stands for all of them, in that order. Each run has a folder of
its own below RUNS, goes on where it was stopped, and leaves its figures in benchmarks/results/search_quality/ and its
genotype in genotypes/ there; what has figures there is not run again. Several processes with different names may run
side by side. Tables, and docs/search-progress.svg, come from those figures alone.
"""

import argparse
import dataclasses
import json
import math
from pathlib import Path

import torch

from flair_nas import load_genotype, random_genotype

RESULTS = Path(__file__).parent / "results" / "search_quality"
GENOTYPES = RESULTS / "genotypes"
M = 3  # history length of the gates

SEARCH = {
    "hidden_size": 64,
    "batch_size": 32,
    "epochs": 2,
    "learning_rate": 10.0,
    "dropout": 0.1,
    "input_dropout": 0.1,
    "recurrent_dropout": 0.05,
    "embedding_dropout": 0.05,
    "device": "cpu",
}
SEARCHES: dict[str, dict] = {
    "darts-first": {"relaxation": "darts"},
    "i-darts": {},
    "ess-joint": {"learn": "joint", "history": M},
    "ess-inter": {"learn": "inter", "history": M, "fixed": "i-darts-ptb"},
    "ess-intra": {"fixed": "benchmarks/genotypes/ess-hand-made.json"},
    "darts-second": {"relaxation": "darts", "order": 2},
    # its steps are cheap: as many epochs as cost what the first-order search costs
    "random-shared": {"strategy": "random-shared", "epochs": 9},
}
RETRAIN = {
    "hidden_size": 128,
    "batch_size": 32,
    "epochs": 3,
    "average_after": 2,
    "learning_rate": 10.0,  # with 20 a cell without bounds (relu, identity) grew beyond all numbers
    "dropout": 0.3,
    "input_dropout": 0.2,
    "recurrent_dropout": 0.1,
    "embedding_dropout": 0.1,
    "word_dropout": 0.05,
    "precision": "bfloat16",
    "device": "cpu",
}
FOUND = ("darts-first", "darts-second", "i-darts", "i-darts-n2", "ess-intra", "ess-inter", "ess-joint", "random-shared")
RANDOM_CELL = random_genotype(1).one_line()
RETRAININGS: dict[str, str] = {
    "lstm": "lstm",
    **{name: name for name in FOUND},
    "published-i-darts-ptb": "i-darts-ptb",
    "published-darts-v2": "darts-v2",
    "random-cell": RANDOM_CELL,
    "ess-hand-made": "benchmarks/genotypes/ess-hand-made.json",  # whose gates ess-intra kept
}


def run_search(name: str, text: str, out: Path) -> None:
    """One search; its figures and genotype are written when it is done."""
    from flair_nas import SearchConfig, search_genotype

    config = SearchConfig(text=text, **{**SEARCH, **SEARCHES[name]})
    result = search_genotype(config, out / "search" / name, progress=False)
    GENOTYPES.mkdir(parents=True, exist_ok=True)
    save_genotype(name, result.genotype)
    if name == "i-darts":  # the search does not depend on n, so one gives both genotypes
        save_genotype("i-darts-n2", genotype_of(result.out, edges_per_node=2, origin=result.genotype.origin))
    settings = {key: value for key, value in dataclasses.asdict(config).items() if key not in ("text", "device")}
    figures = {"name": name, "genotype": result.genotype.one_line(), "settings": settings, "history": result.history}
    write(f"search-{name}", figures)


def save_genotype(name: str, genotype) -> None:
    """Writes a genotype with an origin that says by which command it was made."""
    command = "python benchmarks/search_quality.py search " + name.removesuffix("-n2")
    dataclasses.replace(genotype, origin={**genotype.origin, "command": command}).save(GENOTYPES / f"{name}.json")


def genotype_of(run: Path, edges_per_node: int, origin: dict):
    """The genotype of a finished I-DARTS search with another n."""
    from flair_nas import Genotype
    from flair_nas.supernet import derive

    arch = torch.load(run / "checkpoint.pt", weights_only=True)["model"]["layer.arch"]
    method = origin["method"].replace("n = 1", f"n = {edges_per_node}")
    return Genotype(derive(arch, "i-darts", edges_per_node), origin={**origin, "method": method})


def run_retraining(name: str, text: str, out: Path) -> None:
    """One language model; its figures are written when it is trained."""
    from flair_nas import LanguageModelConfig, train_language_model
    from flair_nas.errors import FlairNasError

    rnn = str(GENOTYPES / f"{name}.json") if name in FOUND else RETRAININGS[name]
    settings = dict(RETRAIN)
    if rnn == "lstm":
        settings["hidden_size"] = size_of_lstm(settings["hidden_size"])
    config = LanguageModelConfig(text=text, rnn=rnn, **settings)
    figures = {"name": name, "genotype": "" if rnn == "lstm" else load_genotype(rnn).one_line(), "settings": settings}
    try:
        metrics = train_language_model(config, out / "retrain" / name, progress=False)
        del metrics["rnn"]  # a path
    except FlairNasError as error:
        if not str(error).startswith("not finite"):
            raise
        write(f"retrain-{name}", {**figures, "error": str(error).partition(":")[0]})  # a figure, too
    else:
        write(f"retrain-{name}", {**figures, "metrics": metrics})


def size_of_lstm(hidden_size: int, vocabulary: int = 10_000, nodes: int = 8) -> int:
    """The hidden size with which an LSTM model has as many parameters as one with a searched cell, D = H, tied."""
    wanted = vocabulary * hidden_size + (4 + 2 * nodes) * hidden_size**2
    linear = vocabulary + 8  # embedding, and the LSTM's biases
    return round((math.sqrt(linear**2 + 32 * wanted) - linear) / 16)


def write(name: str, figures: dict) -> None:
    """Writes one file of figures."""
    from flair_nas.files import write_text

    RESULTS.mkdir(parents=True, exist_ok=True)
    write_text(RESULTS / f"{name}.json", json.dumps(figures, indent=1) + "\n")


def tables() -> None:
    """Prints what there is."""
    print("| search | epochs | seconds | of CPU time | supernet's valid perplexity | MAD | genotype |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for name in SEARCHES:
        path = RESULTS / f"search-{name}.json"
        if path.exists():
            figures = json.loads(path.read_text())
            lines = figures["history"]
            seconds, cpu_seconds = (sum(line[name] for line in lines) for name in ("seconds", "cpu_seconds"))
            mad = ", ".join(f"{part} {value:.3f}" for part, value in lines[-1].get("mad", {}).items()) or "-"
            perplexity = lines[-1]["valid_perplexity"]
            print(f"| {name} | {len(lines)} | {seconds:,.0f} | {cpu_seconds:,.0f} | {perplexity or math.inf:.1f} | "
                  f"{mad} | `{figures['genotype']}` |")  # fmt: skip
    print("\n| model | valid perplexity | test perplexity | parameters | CPU s / epoch |")
    print("| --- | --- | --- | --- | --- |")
    rows = [json.loads(path.read_text()) for path in RESULTS.glob("retrain-*.json")]
    for figures in rows:
        if "error" in figures:
            print(f"| {figures['name']} | {figures['error']} | - | - | - |")
    trained = [figures for figures in rows if "error" not in figures]
    for figures in sorted(trained, key=lambda row: row["metrics"]["valid_perplexity"]):
        metrics = figures["metrics"]
        print(f"| {figures['name']} | {metrics['valid_perplexity']:.2f} | {metrics['test_perplexity']:.2f} | "
              f"{metrics['parameters']:,} | {metrics['cpu_seconds_per_epoch']:.0f} |")  # fmt: skip


def picture(path: Path) -> None:
    """Draws perplexity and MAD of the searches that are done."""
    from flair_nas.drawing.progress import draw_progress
    from flair_nas.language_model.perplexity import PERPLEXITY

    figures = {name: RESULTS / f"search-{name}.json" for name in SEARCHES}
    histories = {name: json.loads(file.read_text())["history"] for name, file in figures.items() if file.exists()}
    draw_progress(histories, path, PERPLEXITY)


def main() -> None:
    """Runs what the command line names."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("search", "retrain", "table", "picture"))
    parser.add_argument("names", nargs="*")
    parser.add_argument("--text", help="folder with the Penn Treebank as train.txt, valid.txt, test.txt")
    parser.add_argument("--out", type=Path, default=Path("runs/search_quality"), help="folder of the runs")
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    if arguments.what in ("table", "picture"):
        tables() if arguments.what == "table" else picture(Path("docs/search-progress.svg"))
        return
    torch.set_num_threads(arguments.threads)
    known = list(SEARCHES if arguments.what == "search" else RETRAININGS)
    names = known if arguments.names == ["all"] else arguments.names
    if unknown := sorted(set(names) - set(known)):
        parser.error(f"unknown names {', '.join(unknown)}; there are {', '.join(known)}")
    for name in names:
        if not (RESULTS / f"{arguments.what}-{name}.json").exists():
            (run_search if arguments.what == "search" else run_retraining)(name, arguments.text, arguments.out)


if __name__ == "__main__":
    import logging

    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    main()
