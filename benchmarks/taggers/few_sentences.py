"""F1 of a tagger of column files by how many sentences it has, and by what it knows of words before.

    OMP_NUM_THREADS=1 python -m benchmarks.taggers.few_sentences train --data-root DATASETS --local NAME ... \\
        [--sentences 300 1000 3394] [--seeds 1 2 3 4 5]
    python -m benchmarks.taggers.few_sentences table

The first so many training sentences of WNUT-2017, a third as many of dev, and all of test. Words are known by the
sentences themselves, by the English vectors of flair-nas, or by local embeddings. Settings are those of `--preset
few-sentences`, but with more than 1,000 sentences batches of 32. Each run adds a line to the results. A run with a line
is not trained again.
"""

import argparse
import statistics
import tempfile
from pathlib import Path
from typing import Any

import torch
from flair.data import Corpus

from benchmarks.json_lines import RESULTS, as_table, lines_in, lines_so_far, put
from flair_nas import TaggerConfig, load_corpus, train_taggers
from flair_nas.experiments.statistics import mean_and_spread
from flair_nas.settings.resolve import load_preset
from flair_nas.tagging.data.corpora import digest_of, sentences_of

FILE = RESULTS / "few_sentences.jsonl"
WORDS = {
    "one-hot char": "`one-hot char`, made from these sentences",
    "english": "`english`",
    "english char": "`english char`",
    "local": "local word vectors and character models",
}
"""What embeddings are called in the table, by their specs; `local` are given."""
LAYERS = ("lstm", "small-relu-tanh")
COUNTS = (300, 1000, 3394)


def settings(count: int) -> dict[str, Any]:
    """Return the settings of a tagger of so many sentences."""
    preset = load_preset("tagging", "few-sentences", TaggerConfig)
    own = {name: value for name, value in preset.items() if name not in ("rnn", "embeddings")}
    return own if count <= 1000 else own | {"batch_size": 32}


def train(count: int, rnn: str, embeddings: list[str], seed: int, data_root: str | None) -> dict[str, Any]:
    """Return test F1 of a tagger, the epoch best on dev, and CPU seconds an epoch."""
    whole = load_corpus("wnut_17", data_root=data_root)
    train, dev, test = (sentences_of(getattr(whole.corpus, part)) for part in ("train", "dev", "test"))
    few = Corpus(train[:count], dev[: count // 3], test, name="wnut_17")  # type: ignore[arg-type]
    corpus = whole._replace(corpus=few, sha256=digest_of(few, whole.label_type))
    config = TaggerConfig("wnut_17", device="cpu", rnn=rnn, embeddings=embeddings, seeds=[seed], **settings(count))
    with tempfile.TemporaryDirectory() as folder:
        metrics = train_taggers(config, Path(folder) / "run", corpus=corpus, progress=False)
        history = lines_in(Path(folder) / "run" / f"seed-{seed}" / "history.jsonl")
    (own,) = metrics["seeds"]
    seconds = statistics.median(line["cpu_seconds"] for line in history)
    return {name: own[name] for name in ("dev_f1", "test_f1", "best_epoch")} | {"cpu_seconds": seconds}


def table() -> str:
    """Test F1, and CPU seconds an epoch on the first machine, a row for each number of sentences and embeddings."""
    lines = lines_so_far(FILE)
    rows = [["sentences", "embeddings", *(f"`{rnn}`" for rnn in LAYERS), "CPU s an epoch"]]
    for count in COUNTS:
        for words, title in WORDS.items():
            own = [line for line in lines if (line["sentences"], line["words"]) == (count, words)]
            cells = [[line for line in own if line["rnn"] == rnn] for rnn in LAYERS]
            if all(cells):
                scores = [mean_and_spread([line["test_f1"] for line in cell]) + f" ({len(cell)})" for cell in cells]
                same = [[line for line in cell if line["processor"] == lines[0]["processor"]] for cell in cells]
                seconds = [f"{statistics.median(line['cpu_seconds'] for line in cell):.1f}" for cell in same]
                rows.append([f"{count:,}", title, *scores, ", ".join(seconds)])
    return as_table(rows)


def sentence() -> str:
    """Test F1 with the most sentences of which all embeddings have some, in words."""
    lines = [line for line in lines_in(FILE) if line["rnn"] == "small-relu-tanh"]
    scores = {
        (count, words): [line["test_f1"] for line in lines if (line["sentences"], line["words"]) == (count, words)]
        for count in COUNTS
        for words in WORDS
    }
    count = max(count for count in COUNTS[:2] if all(scores[count, words] for words in WORDS))
    own, _, english, local = (mean_and_spread(scores[count, words]) for words in WORDS)
    return (
        f"With the first {count:,} sentences of WNUT-2017 and `small-relu-tanh`, `one-hot char` has a test F1 of "
        f"{own}, `english char` {english}. Local word vectors and character models, which have read raw text of the "
        f"corpus, have {local} ([more, with the settings](../benchmarks/figures/taggers.md#few-sentences))."
    )


def main() -> None:
    """Trains each tagger, or prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=("train", "table"))
    parser.add_argument("--data-root")
    parser.add_argument("--local", nargs="+", default=["glove"], help="embeddings that know words before")
    parser.add_argument("--sentences", type=int, nargs="+", default=COUNTS)
    parser.add_argument("--words", nargs="+", default=[*WORDS], choices=WORDS)
    parser.add_argument("--rnn", nargs="+", default=LAYERS)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3, 4, 5])
    arguments = parser.parse_args()
    if arguments.command == "table":
        print(table())
        return
    torch.set_num_threads(1)
    before = lines_so_far(FILE)
    for seed in arguments.seeds:
        for count in arguments.sentences:
            for words in arguments.words:
                embeddings = arguments.local if words == "local" else words.split()
                for rnn in arguments.rnn:
                    what = {"sentences": count, "words": words, "rnn": rnn, "seed": seed}
                    if not any(what.items() <= line.items() for line in before):
                        put(what | train(count, rnn, embeddings, seed, arguments.data_root), FILE)


if __name__ == "__main__":
    main()
