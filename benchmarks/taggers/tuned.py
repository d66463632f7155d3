"""Test F1 of what `tune` finds on small corpora, beside the preset small-ner, Flair's defaults and random settings.

    OMP_NUM_THREADS=1 python -m benchmarks.taggers.tuned first --data NER --work WORK      # 48 random settings
    OMP_NUM_THREADS=1 python -m benchmarks.taggers.tuned tune --data NER --work WORK [--corpora crossner_ai ...]
    python -m benchmarks.taggers.tuned table

NER holds the corpora: CrossNER (Liu et al., AAAI 2021) has 100 to 200 training sentences each, the others thousands.
The baseline of each tuning is the preset small-ner. All have `english`, `one-hot` and `char` on offer. Fresh seeds
judge on test. `first` draws 48 random settings for two corpora. `tune` has a budget, by TPE and by random draws, for
all corpora, and trains Flair's defaults with an LSTM by the same seeds. Each finished tuning adds a line to the
results; an unfinished one goes on.

Written before the runs. Tuning is refuted if the best of 48 random settings by dev is less than 1 F1 ahead of small-ner
on fresh seeds on both corpora. The aim is 2 F1 above small-ner, or half its milliseconds at equal F1, with a
probability of 0.95, on four of six corpora. TPE is not worth its dependency if it is not ahead of random draws on the
mean of the corpora.
"""

import argparse
from pathlib import Path
from typing import Any

import torch

from benchmarks.json_lines import RESULTS, as_table, lines_so_far, put
from flair_nas import TaggerConfig, TuneConfig, train_taggers, tune_tagger
from flair_nas.experiments.ledger import Ledger
from flair_nas.experiments.statistics import mean_and_spread
from flair_nas.settings.resolve import load_preset
from flair_nas.tune.answer import Judged

FILE = RESULTS / "tuned.jsonl"
FIRST = ("crossner_ai", "crossner_politics")
CORPORA = ("crossner_ai", "crossner_politics", "crossner_science", "masakhaner_bam", "masakhaner_pcm", "europe_da")
EMBEDDINGS = ["english", "one-hot", "char"]
FLAIR: dict[str, Any] = {"rnn": "lstm", "hidden_size": 256, "learning_rate": 0.1, "batch_size": 32, "epochs": 40}
"""Flair's defaults, with as many epochs as a tuning may use."""


def preset(corpus: Path) -> dict[str, Any]:
    """The settings of small-ner on a corpus, with the embeddings on offer."""
    return load_preset("tagging", "small-ner", TaggerConfig) | {"corpus": str(corpus), "embeddings": EMBEDDINGS}


def tune(corpus: Path, out: Path, sampler: str, **limits: Any) -> dict[str, Any]:
    """Tune on a corpus, and return the figures of the answer."""
    config = TuneConfig(**preset(corpus) | {"epochs": 40}, sampler=sampler, workers=1, device="cpu", **limits)
    answer = tune_tagger(config, out).answer
    runs = Ledger(out / "ledger.json").runs

    def figures(judged: Judged) -> dict[str, Any]:
        own, settings = runs.get(judged.candidate.shape, {}), judged.candidate.settings
        gain = judged.gain and {"by": judged.gain.value, "probability": judged.gain.probability}
        return {"f1": judged.figure, "gain": gain, "ratio": own.get("ratio"), "ms": own.get("ms"), "settings": settings}

    tried = sum("dev" in run for run in runs.values())
    return {
        "baseline": answer.baseline and figures(answer.baseline),
        "others": [figures(judged) for judged in answer.others],
        "seeds": list(answer.judges),
        "trainings": tried,
    }


def train_default(corpus: Path, out: Path, seeds: list[int]) -> dict[str, Any]:
    """Train Flair's defaults with an LSTM, and return the test F1 of each seed."""
    config = TaggerConfig(corpus=str(corpus), embeddings=EMBEDDINGS, seeds=seeds, device="cpu", **FLAIR)
    return {"test_f1": [own["test_f1"] for own in train_taggers(config, out, progress=False)["seeds"]]}


def table() -> str:
    """Test F1 by fresh seeds: the preset, Flair's defaults, and what TPE and random draws found."""
    lines = [line for line in lines_so_far(FILE) if line["kind"] in ("tpe", "random")]
    rows = [["corpus", "small-ner", "LSTM, Flair's defaults", "draws", "best found", "lead", "P", "time, × small-ner"]]
    for line in lines:
        default = next((o for o in lines_so_far(FILE) if (o["kind"], o["corpus"]) == ("default", line["corpus"])), None)
        best, beside = line["others"][0], line["baseline"]
        rows.append([
            line["corpus"],
            f"{beside['f1']:.1f}",
            mean_and_spread(default["test_f1"]) if default else "-",
            line["kind"],
            f"{best['f1']:.1f}",
            f"{best['gain']['by']:+.1f}",
            f"{best['gain']['probability']:.2f}",
            f"{best['ratio']:.2f}" if best["ratio"] else "-",
        ])  # fmt: skip
    return as_table(rows)


def main() -> None:
    """Tunes, or prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=("first", "tune", "table"))
    parser.add_argument("--data", type=Path, help="folder of the corpora")
    parser.add_argument("--work", type=Path, help="folder of the tunings")
    parser.add_argument("--corpora", nargs="+", default=CORPORA)
    parser.add_argument("--budget", default="1h")
    arguments = parser.parse_args()
    if arguments.command == "table":
        print(table())
        return
    torch.set_num_threads(1)
    kinds: dict[str, dict[str, Any]] = {
        "first": {"sampler": "random", "trials": 48, "budget": "9h"},
        "tpe": {"sampler": "tpe", "budget": arguments.budget},
        "random": {"sampler": "random", "budget": arguments.budget},
    }
    chosen = ("first",) if arguments.command == "first" else ("tpe", "random", "default")
    for corpus in FIRST if arguments.command == "first" else arguments.corpora:
        for kind in chosen:
            if any((line["corpus"], line["kind"]) == (corpus, kind) for line in lines_so_far(FILE)):
                continue
            out = arguments.work / f"{corpus}-{kind}"
            if kind == "default":
                found = train_default(arguments.data / corpus, out, seeds=[4, 5, 6])
            else:
                found = tune(arguments.data / corpus, out, **kinds[kind])
            put({"corpus": corpus, "kind": kind, "budget": kinds.get(kind, {}).get("budget")} | found, FILE)


if __name__ == "__main__":
    main()
