"""How reliable the scores of taggers are: Flair's own, probabilities, and probabilities after calibration.

    OMP_NUM_THREADS=1 python -m benchmarks.taggers.scores train --data DATA
    python -m benchmarks.taggers.scores table

DATA holds `flair/datasets/wnut_17`, `flair/datasets/conll_2000` and `ner/masakhaner_hau`. A tagger with
`small-relu-tanh` is trained on each with three seeds. Its temperature is fitted on dev, and all figures are of test.
Each run adds a line to the results. A run with a line is not trained again.
"""

import argparse
import statistics
import tempfile
from pathlib import Path
from typing import Any

import torch
from flair.models import SequenceTagger

from benchmarks.json_lines import RESULTS, as_table, lines_so_far, put
from flair_nas import TaggerConfig, load_corpus, load_tagger, train_taggers
from flair_nas.settings.resolve import load_preset
from flair_nas.tagging.calibration import calibrate_tagger, list_outcomes, measure_reliability
from flair_nas.tagging.data.corpora import sentences_of

FILE = RESULTS / "scores.jsonl"
PRESET = load_preset("tagging", "few-sentences", TaggerConfig)
PRESET = {name: value for name, value in PRESET.items() if name not in ("rnn", "embeddings")} | {"batch_size": 32}
CORPORA: dict[str, tuple[str, dict[str, Any]]] = {
    "wnut_17": ("WNUT-2017", {"embeddings": ["english", "char"]}),
    "conll_2000": ("CoNLL-2000", {"embeddings": ["english", "char"], "epochs": 15}),
    "masakhaner_hau": ("Hausa", {"embeddings": ["one-hot", "char"], "epochs": 25}),
}
"""Titles, and settings that are not those of `--preset few-sentences` with batches of 32."""
LEAST = (0.0, 0.5, 0.7, 0.8, 0.9, 0.95)
"""Probabilities below which labels are left out."""


def train(name: str, seed: int, data: Path) -> dict[str, Any]:
    """Return the reliability of a tagger's scores, and precision and recall by least probability, in percent."""
    folder = data / "ner" / name
    corpus = load_corpus(folder if folder.exists() else name, data_root=data / "flair" / "datasets")
    dev, test = sentences_of(corpus.corpus.dev), sentences_of(corpus.corpus.test)
    config = TaggerConfig(name, rnn="small-relu-tanh", seeds=[seed], device="cpu", **PRESET | CORPORA[name][1])
    with tempfile.TemporaryDirectory() as out:
        metrics = train_taggers(config, Path(out) / "run", corpus=corpus, parts=("test",), progress=False)
        model = Path(out) / "run" / "model.pt"
        own, tagger = SequenceTagger.load(model), load_tagger(model)
    own.predict(test, label_name="flair")
    of_flair = measure_reliability(*list_outcomes(test, "flair", corpus.label_type))
    found = calibrate_tagger(tagger, dev, test, corpus.label_type)
    scores, right = list_outcomes(test, "found", corpus.label_type)
    gold = sum(len(sentence.get_labels(corpus.label_type)) for sentence in test)
    kept = []
    for least in LEAST:
        good = [is_right for score, is_right in zip(scores, right) if score >= least]
        kept.append([100 * sum(good) / max(1, len(good)), 100 * sum(good) / gold])
    figures = {"test_f1": metrics["seeds"][0]["test_f1"], "flair": of_flair._asdict(), **found, "kept": kept}
    return {"corpus": name, "seed": seed, **figures}


def _means(lines: list[dict], *path: str) -> float:
    values = [line[path[0]] if len(path) == 1 else line[path[0]][path[1]] for line in lines]
    return statistics.mean(values)


def table() -> str:
    """Expected calibration error in points: means over seeds."""
    rows = [["corpus", "labels found", "Flair's score", "probability", "calibrated", "by chance alone", "temperature"]]
    for name, (title, _) in CORPORA.items():
        if lines := [line for line in lines_so_far(FILE) if line["corpus"] == name]:
            errors = [_means(lines, kind, "error") for kind in ("flair", "before", "after")]
            cells = [f"{error:.1f}" for error in [*errors, _means(lines, "after", "by_chance")]]
            temperature = f"{_means(lines, 'temperature'):.2f}"
            rows.append([f"{title} ({len(lines)})", f"{_means(lines, 'after', 'labels'):,.0f}", *cells, temperature])
    return as_table(rows)


def thresholds() -> str:
    """Precision and recall of calibrated taggers by least probability: means over seeds."""
    rows = [["--at-least", *(f"{title}: precision, recall" for title, _ in CORPORA.values())]]
    for number, least in enumerate(LEAST):
        row = [f"{least:g}"]
        for name in CORPORA:
            kept = [line["kept"][number] for line in lines_so_far(FILE) if line["corpus"] == name]
            row.append(", ".join(f"{statistics.mean(values):.1f}" for values in zip(*kept)) if kept else "-")
        rows.append(row)
    return as_table(rows)


def main() -> None:
    """Trains each tagger, or prints the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=("train", "table"))
    parser.add_argument("--data", type=Path, help="folder with the corpora")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    arguments = parser.parse_args()
    if arguments.command == "table":
        print(table(), thresholds(), sep="\n\n")
        return
    torch.set_num_threads(1)
    done = {(line["corpus"], line["seed"]) for line in lines_so_far(FILE)}
    for seed in arguments.seeds:
        for name in CORPORA:
            if (name, seed) not in done:
                put(train(name, seed, arguments.data), FILE)


if __name__ == "__main__":
    main()
