"""F1 of a tagger of column files by how many sentences it has, and by what it knows of words before.

    python -m benchmarks.taggers.few_sentences --data-root DATASETS --embeddings NAME ... [--sentences 100 300 1000] \
        [--rnn i-darts-ptb lstm] [--seeds 1 2 3] [--out FILE]

The first so many training sentences of WNUT-2017, a third as many of dev, and all of test. Words are known by the
embeddings that are given, or by what the sentences themselves teach. Either has settings of its own, and the first is
also trained with those of the second. --out takes a JSON line for each; what it has is not trained again.
"""

import argparse
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.json_lines import lines_in, lines_so_far, put
from flair_nas.experiments.statistics import mean_and_spread

RESULTS = Path(__file__).parents[1] / "results" / "few_sentences.jsonl"
OF_SENTENCES = ["one-hot", "char"]
HASTY: dict[str, Any] = {"hidden_size": 64, "batch_size": 8, "learning_rate": 0.3, "epochs": 16}
SETTINGS = {"pretrained": HASTY | {"learning_rate": 0.1, "epochs": 40}, "hasty": HASTY, "own": HASTY}
GROUPS = {
    "pretrained": "pretrained, small",
    "hasty": "the same, with the rate and epochs of `one-hot char`",
    "own": "`one-hot char`, made from these sentences",
}


def train(
    count: int, words: str, rnn: str, embeddings: list[str], seeds: list[int], data_root: str | None
) -> dict[str, Any]:
    """Test F1 of each seed, and after which epoch it was best on dev."""
    from flair.data import Corpus

    from flair_nas.tagging.config import TaggerConfig
    from flair_nas.tagging.data.corpora import digest_of, load_corpus, sentences_of
    from flair_nas.tagging.training import train_taggers

    whole = load_corpus("wnut_17", data_root=data_root)
    parts = {part: sentences_of(getattr(whole.corpus, part)) for part in ("train", "dev", "test")}
    few = Corpus(parts["train"][:count], parts["dev"][: count // 3], parts["test"], name="wnut_17")  # type: ignore[arg-type]
    corpus = whole._replace(corpus=few, sha256=digest_of(few, whole.label_type))
    given = {"rnn": rnn, "embeddings": embeddings, "seeds": seeds, **SETTINGS[words]}
    config = TaggerConfig(corpus="wnut_17", device="cpu", **given)
    with tempfile.TemporaryDirectory() as folder:
        metrics = train_taggers(config, Path(folder) / "run", corpus=corpus, progress=False)
    return {"learning_rate": config.learning_rate,
            "test": [round(seed["test_f1"], 2) for seed in metrics["seeds"]],
            "best_epoch": [seed["best_epoch"] for seed in metrics["seeds"]]}  # fmt: skip


def table() -> str:
    """Test F1, a row for each number of sentences and kind of embeddings."""
    lines = lines_in(RESULTS)
    layers = list(dict.fromkeys(line["rnn"] for line in lines))
    rows = [f"| sentences | embeddings | {' | '.join(layers)} |", f"| --- | --- |{' --- |' * len(layers)}"]
    for group, words in GROUPS.items():
        for count in sorted({line["sentences"] for line in lines if line["words"] == group}):
            cells = [
                next((mean_and_spread(line["test"]) for line in lines
                      if (line["words"], line["sentences"], line["rnn"]) == (group, count, rnn)), "-")
                for rnn in layers
            ]  # fmt: skip
            rows.append(f"| {count:,} | {words} | {' | '.join(cells)} |")
    return "\n".join(rows)


def sentence() -> str:
    """The figures of the most sentences of which both kinds of embeddings have some, in words."""
    lines = lines_in(RESULTS)
    of = {group: {line["sentences"] for line in lines if line["words"] == group} for group in GROUPS}
    count = max(of["pretrained"] & of["own"])
    figures = {
        group: " and ".join(
            f"{mean_and_spread(line['test'])} (`{line['rnn']}`)"
            for line in lines
            if (line["words"], line["sentences"]) == (group, count)
        )
        for group in ("pretrained", "own")
    }
    return (
        f"With the first {count:,} sentences of WNUT-2017, `one-hot char` has a test F1 of {figures['own']}. Small "
        f"pretrained embeddings have {figures['pretrained']} "
        "([more, with the settings](../benchmarks/figures/taggers.md#few-sentences))."
    )


def main() -> None:
    """Trains each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-root")
    parser.add_argument("--embeddings", nargs="+", default=["glove"], help="that know words before")
    parser.add_argument("--sentences", type=int, nargs="+", default=[100, 300, 1000])
    parser.add_argument("--rnn", nargs="+", default=["i-darts-ptb", "lstm"])
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--out", type=Path, help="file to which JSON lines are added")
    arguments = parser.parse_args()
    before = lines_so_far(arguments.out)
    for count in arguments.sentences:
        for words in GROUPS:
            embeddings = OF_SENTENCES if words == "own" else arguments.embeddings
            for rnn in arguments.rnn:
                what = {"sentences": count, "words": words, "rnn": rnn, "seeds": arguments.seeds}
                if not any(what.items() <= line.items() for line in before):
                    put(
                        what | train(count, words, rnn, embeddings, arguments.seeds, arguments.data_root), arguments.out
                    )


if __name__ == "__main__":
    main()
