"""Orders of a transformer's sublayers, beside an LSTM and a small cell for as many CPU seconds.

    OMP_NUM_THREADS=1 python -m benchmarks.search.orders text --text FOLDER [--seeds 1 2 3]
    OMP_NUM_THREADS=1 python -m benchmarks.search.orders tags --corpus hau=FOLDER conll_2000=conll_2000
    python -m benchmarks.search.orders table

`text` trains character language models of width 128 on the first 3 million characters of FOLDER's train part, once: 12
sublayers as sandwiches with k = 0, 2 and 4 and in eight random orders, three seeds each. 40 random orders have the
first seed. `tags` trains taggers of the first two sandwiches and two random orders. The LSTM and `small-relu-tanh` then
train for as many CPU seconds, in whole epochs, if need be in more than one. All learn by AdamW.

Each run adds a line to the results. A run with a line is not trained again.

Written before the runs. Expected: at this size the LSTM is ahead of all orders. The claim of Press et al. (2020), that
good orders have s early and f late, is refuted here if the rank correlation of the mean place of s with the loss over
40 orders is not positive at p < 0.05.
"""

import argparse
import math
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from scipy.stats import spearmanr

from benchmarks.json_lines import RESULTS, as_p, as_table, lines_so_far, put
from flair_nas import (
    LanguageModelConfig,
    PredictorSettings,
    SearchConfig,
    TaggerConfig,
    TransformerSettings,
    load_corpus,
    train_language_model,
    train_taggers,
)
from flair_nas.experiments.statistics import mean_and_spread
from flair_nas.genotype.order import parse_order
from flair_nas.search.space import OrderSpace

FILE = RESULTS / "orders.jsonl"
CHARACTERS, HELD_OUT = 3_000_000, 200_000
START = "transformer:sandwich-0-6"
SANDWICHES = tuple(f"transformer:sandwich-{k}-6" for k in (0, 2, 4))
REFERENCES = ("lstm", "small-relu-tanh")
ORDERS, SEVERAL = 40, 8
"""Random orders with the first seed, and with three."""
TEXT: dict[str, Any] = {
    "unit": "char", "hidden_size": 128, "batch_size": 32, "bptt": 128, "optimizer": "adamw", "learning_rate": 2e-3,
    "warmup_steps": 100, "dropout": 0.0, "embedding_dropout": 0.0, "word_dropout": 0.0, "input_dropout": 0.0,
    "recurrent_dropout": 0.0, "slowness": 0.0, "weight_decay": 0.01, "clip": 1.0, "averaging": False,
}  # fmt: skip
TAGS: dict[str, Any] = {
    "hidden_size": 64, "batch_size": 16, "optimizer": "adamw", "learning_rate": 1e-3, "warmup_steps": 100, "epochs": 10,
}  # fmt: skip
EMBEDDINGS = {"conll_2000": ["english", "char"]}
"""Embeddings of a corpus that are not `one-hot char`."""


def draw_orders(count: int) -> list[str]:
    """Return random orders of 12 sublayers."""
    alone = {"strategy": PredictorSettings(child_steps=[1]), "transformer": TransformerSettings(sublayers=START)}
    space = OrderSpace(SearchConfig(text="demo", **alone))
    return [space.draw(number).one_line() for number in range(count)]


def train_text(rnn: str, seed: int, epochs: int, text: Path) -> dict[str, Any]:
    """Train a character language model, and return its bits per character and CPU seconds."""
    config = LanguageModelConfig(text=str(text), rnn=rnn, seed=seed, epochs=epochs, device="cpu", **TEXT)
    start = time.process_time()
    with tempfile.TemporaryDirectory() as folder:
        metrics = train_language_model(config, Path(folder) / "run", progress=False)
    bits = {name: math.log2(metrics[f"{name}_perplexity"]) for name in ("dev", "test")}
    return bits | {"cpu_seconds": time.process_time() - start}


def train_tags(rnn: str, seed: int, epochs: int, name: str, source: str, data_root: str | None) -> dict[str, Any]:
    """Train a tagger, and return its F1 and CPU seconds."""
    embeddings = EMBEDDINGS.get(name, ["one-hot", "char"])
    config = TaggerConfig(rnn=rnn, embeddings=embeddings, seeds=[seed], device="cpu", **TAGS | {"epochs": epochs})
    corpus, start = load_corpus(source, data_root=data_root), time.process_time()
    with tempfile.TemporaryDirectory() as folder:
        (own,) = train_taggers(config, Path(folder) / "run", corpus=corpus, progress=False)["seeds"]
    return {"dev": own["dev_f1"], "test": own["test_f1"], "cpu_seconds": time.process_time() - start}


def run(data: str, orders: list[tuple[str, int]], seeds: list[int], epochs: int, train: Any) -> None:
    """Train orders with their seeds, then the references for as many CPU seconds as the median of the orders."""

    def once(rnn: str, seed: int, epochs: int) -> dict[str, Any]:
        what = {"data": data, "rnn": rnn, "seed": seed, "epochs": epochs}
        known = [line for line in lines_so_far(FILE) if what.items() <= line.items()]
        if not known:
            put(what | train(rnn, seed, epochs), FILE)
        return known[0] if known else lines_so_far(FILE)[-1]

    seconds = statistics.median(once(rnn, seed, epochs)["cpu_seconds"] for rnn, seed in orders)
    for rnn in REFERENCES:
        first = once(rnn, seeds[0], epochs)["cpu_seconds"] / epochs
        for seed in seeds:
            once(rnn, seed, max(1, round(seconds / first)))


def prepare(text: Path, folder: Path) -> Path:
    """Write the first characters of a text, with its valid and test parts, to a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for part, most in (("train", CHARACTERS), ("valid", HELD_OUT), ("test", HELD_OUT)):
        files = sorted((text / part).iterdir()) if (text / part).is_dir() else [text / f"{part}.txt"]
        read = "".join(file.read_text(encoding="utf-8") for file in files[:4])
        (folder / f"{part}.txt").write_text(read[:most], encoding="utf-8")
    return folder


def table() -> str:
    """Thousandths of bits per character, or F1, on test: mean ± standard deviation (runs), and CPU seconds."""
    lines = lines_so_far(FILE)
    datas = list(dict.fromkeys(line["data"] for line in lines))
    rows = [["layer", *(f"{data}, CPU s" for data in datas)]]
    several = draw_orders(SEVERAL)

    def group(line: dict[str, Any]) -> str:
        return f"{SEVERAL} random orders" if line["rnn"] in several else line["rnn"]

    for name in (*SANDWICHES, f"{SEVERAL} random orders", *REFERENCES):
        cells = []
        for data in datas:
            own = [line for line in lines if (group(line), line["data"]) == (name, data)]
            runs = [line["epochs"] for line in own]  # of the references, most have equal seconds; one is a trial
            most = max(runs, key=lambda epochs: (runs.count(epochs), epochs), default=0)
            own = [line for line in own if line["epochs"] == most]
            spent = f"{statistics.median(line['cpu_seconds'] for line in own):.0f}" if own else ""
            score = mean_and_spread([line["test"] * (1000 if data == "text" else 1) for line in own])
            cells.append(f"{score} ({len(own)}), {spent}" if own else "-")
        if any(cell != "-" for cell in cells):
            rows.append([f"`{name}`" if name[0] != str(SEVERAL) else name, *cells])
    return as_table(rows)


def sentence() -> str:
    """The rank correlation of the mean place of s with the loss, over random orders with the first seed."""
    lines = [line for line in lines_so_far(FILE) if line["data"] == "text" and line["seed"] == 1]
    drawn = draw_orders(ORDERS)
    random = {line["rnn"]: line["dev"] for line in lines if line["rnn"] in drawn}

    def place(rnn: str) -> float:
        return statistics.mean(number for number, letter in enumerate(parse_order(rnn).letters) if letter == "s")

    found = spearmanr([place(rnn) for rnn in random], list(random.values()))
    return (
        f"Over {len(random)} random orders with one seed, the rank correlation of the mean place of s with the loss is "
        f"{found.statistic:.2f} (p {as_p(found.pvalue)}): above 0, s early is good."
    )


def main() -> None:
    """Trains language models or taggers, or prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=("text", "tags", "table"))
    parser.add_argument("--text", type=Path, help="folder with the files or folders train, valid and test")
    parser.add_argument("--corpus", nargs="+", default=["conll_2000=conll_2000"], help="NAME=SOURCE")
    parser.add_argument("--data-root")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--orders", type=int, default=ORDERS, help="random orders with the first seed")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    seeds = arguments.seeds
    if arguments.command == "table":
        print(table())
        print(sentence())
    elif arguments.command == "text":
        drawn = draw_orders(arguments.orders)
        orders = [(rnn, seed) for seed in seeds for rnn in (*SANDWICHES, *drawn[:SEVERAL])]
        orders += [(rnn, seeds[0]) for rnn in drawn[SEVERAL:]]
        with tempfile.TemporaryDirectory() as folder:
            text = prepare(arguments.text, Path(folder) / "text")
            run("text", orders, seeds, 1, lambda rnn, seed, epochs: train_text(rnn, seed, epochs, text))
    else:
        for corpus in arguments.corpus:
            name, _, source = corpus.partition("=")
            orders = [(rnn, seed) for seed in seeds for rnn in (*SANDWICHES[:2], *draw_orders(2))]

            def train(rnn: str, seed: int, epochs: int, name: str = name, source: str = source) -> dict[str, Any]:
                return train_tags(rnn, seed, epochs, name, source, arguments.data_root)

            run(name, orders, seeds, TAGS["epochs"], train)


if __name__ == "__main__":
    main()
