"""Test F1 of taggers of 15 African languages, with embeddings from raw text alone.

    OMP_NUM_THREADS=1 python -m benchmarks.taggers.own_language embed --data NER --out WORK [--languages hau ...]
    OMP_NUM_THREADS=1 python -m benchmarks.taggers.own_language train --data NER --out WORK [--languages hau ...]
    OMP_NUM_THREADS=1 python -m benchmarks.taggers.own_language rows --data NER --out WORK --languages hau pcm
    OMP_NUM_THREADS=1 python -m benchmarks.taggers.own_language speed --data NER --out WORK --languages hau
    python -m benchmarks.taggers.own_language table

NER holds the folders `masakhaner_hau` and so on (Adelani et al., EMNLP 2022), `europe_da` and so on, and
`raw/hau.txt`, a million characters of each African language. The raw text holds the sentences of dev and test without
labels. `--source clean` leaves these out of it, and `--source corpus` reads the training sentences in its place. Each
finished training adds a line to the results, and is not done again. `rows` compares word vectors alone, with fewer and
more rows for parts of words, and in float32. `speed` loads the embeddings of a language, and tags its test part with
exported taggers of both layers.

Kinds of embeddings: `one-hot char`, from the training sentences alone; word vectors and `char`; word vectors and
character models, through a linear map to 256 numbers. `all char` has `char` beside them and a map as wide as they are:
a first run on Hausa, equal in F1 and twice as slow. Languages with one seed leave some out, which `PLAN` tells. Danish,
German, Persian and French have no raw text here: their embeddings come from the corpus's own sentences.

Written before the runs. The claims:
- Raw text helps. It is refuted if character models and word vectors have less than 3 F1 more than `one-hot char`, on
  the mean of the languages.
- A small cell beats the LSTM beyond WNUT-2017. It is refuted if `small-relu-tanh` is not ahead of the LSTM on the mean
  of the languages, with the richest embeddings, or if it is behind in more of them than it is ahead.
- The mean test F1 is within 8 points of fine-tuned XLM-R base, whose F1 are those that its authors published.
"""

import argparse
import itertools
import math
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil
import torch

from benchmarks.json_lines import RESULTS, as_table, lines_in, lines_so_far, put
from flair_nas import (
    EmbeddingConfig,
    SubwordEmbeddings,
    TaggerConfig,
    load_corpus,
    load_tagger,
    train_embeddings,
    train_taggers,
)
from flair_nas.embedding.text import find_source, write_tokens
from flair_nas.embedding.words import train_words
from flair_nas.experiments.statistics import mean_and_spread
from flair_nas.onnx import Tagger, export_tagger, quantize_tagger
from flair_nas.tagging.data.corpora import sentences_of
from flair_nas.tagging.data.embedding_folder import ABOUT, TABLE, write_about, write_table

FILE = RESULTS / "own_language.jsonl"
XLM_R = {
    **{"bam": 78.7, "ewe": 88.4, "fon": 81.9, "hau": 84.1, "ibo": 87.6, "lug": 86.6, "luo": None, "nya": 89.9},
    **{"pcm": 88.5, "sna": 93.5, "swa": 92.2, "tsn": 86.1, "twi": 79.1, "xho": 87.0, "yor": 86.0},
}
"""Test F1 of fine-tuned XLM-R base on MasakhaNER 2.0, as published; there is none of Luo."""
EUROPE = ("da", "de", "fa", "fr")
SEVERAL = ("hau", "pcm", "swa", "yor")
"""Languages with three seeds."""
KINDS: dict[str, tuple[list[str], dict[str, Any]]] = {
    "none": (["one-hot", "char"], {}),
    "words": (["{}#words", "char"], {}),
    "all": (["{}"], {"reproject": 256}),
}
"""Embeddings by kind, with the folder in place of the braces, and settings."""
LAYERS = ("small-relu-tanh", "lstm")
PLAN = {"small-relu-tanh": ("none", "all"), "lstm": ("all",)}
"""Kinds of the languages with one seed, by layer."""
ROWS = ((2**17, True), (2**17, False), (2**21, False), (2**15, False), (2**13, False))
"""Rows for parts of words, and whether vectors are gensim's own in float32."""
SETTINGS: dict[str, Any] = {"hidden_size": 128, "batch_size": 16, "learning_rate": 0.2, "patience": 2, "epochs": 20}


def embed(language: str, data: Path, out: Path, source: str) -> dict[str, Any]:
    """Train the embeddings of a language, and return their sizes and CPU seconds."""
    raw = data / "raw" / f"{language}.txt"
    with tempfile.TemporaryDirectory() as folder:
        text: dict[str, Any] = {"text": str(raw)}
        if source == "corpus":
            text = {"corpus": str(corpus_folder(language, data))}
        elif source == "clean":
            corpus = load_corpus(corpus_folder(language, data)).corpus
            held = {_key(s.to_tokenized_string()) for part in (corpus.dev, corpus.test) for s in sentences_of(part)}
            lines = raw.read_text(encoding="utf-8").splitlines()
            kept = [line for line in lines if _key(line) not in held]
            text = {"text": str(Path(folder) / "raw.txt")}
            Path(text["text"]).write_text("\n".join(kept) + "\n", encoding="utf-8")
        start = time.process_time()
        about = train_embeddings(EmbeddingConfig(**text, device="cpu"), out, progress=False)
    size = sum((out / name).stat().st_size for name in about["files"])
    figures = {name: about["text"][name] for name in ("lines", "words", "characters")}
    return figures | {"mb": size / 1e6, "bits": about["bits_per_character"], "cpu_seconds": time.process_time() - start}


def corpus_folder(language: str, data: Path) -> Path:
    """The folder of the corpus of a language."""
    return data / f"{'europe' if language in EUROPE else 'masakhaner'}_{language}"


def _key(sentence: str) -> str:
    """A sentence without its blanks, since raw text is not split into words."""
    return "".join(sentence.split())


def train(language: str, kind: str, rnn: str, seed: int, data: Path, folder: Path) -> dict[str, Any]:
    """Train a tagger, and return its F1, epochs and CPU seconds an epoch."""
    specs, settings = KINDS[kind]
    return train_on(language, [spec.format(folder) for spec in specs], rnn, seed, data, **settings)


def train_on(language: str, embeddings: list[str], rnn: str, seed: int, data: Path, **settings: Any) -> dict[str, Any]:
    """Train a tagger with some embeddings, and return its F1, epochs and CPU seconds an epoch."""
    corpus = load_corpus(corpus_folder(language, data))
    config = TaggerConfig(rnn=rnn, embeddings=embeddings, seeds=[seed], device="cpu", **SETTINGS, **settings)
    with tempfile.TemporaryDirectory() as out:
        metrics = train_taggers(config, Path(out) / "run", corpus=corpus, progress=False)
        history = lines_in(Path(out) / "run" / f"seed-{seed}" / "history.jsonl")
        size = (Path(out) / "run" / "model.pt").stat().st_size / 1e6
    own = metrics["seeds"][0]
    seconds = statistics.median(line["cpu_seconds"] for line in history)
    return {name: own[name] for name in ("dev_f1", "test_f1", "epochs")} | {"cpu_seconds": seconds, "mb": size}


def train_rows(language: str, rows: int, is_float: bool, seed: int, data: Path, out: Path) -> dict[str, Any]:
    """Train a tagger on word vectors alone, with so many rows for parts of words."""
    folder = out / f"{language}-{rows}"
    if not (folder / ABOUT).exists():
        write_words(data / "raw" / f"{language}.txt", rows, folder)
    own = f"fasttext:{folder / 'float'}" if is_float else f"{folder}#words"
    return train_on(language, [own], "small-relu-tanh", seed, data)


def write_words(raw: Path, rows: int, folder: Path) -> None:
    """Write the same word vectors twice: as gensim has them, and as a folder of embeddings in 8 bits."""
    config = EmbeddingConfig(text=str(raw), characters=False, rows=rows)
    counts = write_tokens(config, find_source(config), folder / "text", math.inf, progress=False)
    model = train_words(config, folder / "text", counts, 30, folder / "words.model", lambda _: None)
    model.wv.save(str(folder / "float"))
    figures = write_table(folder / TABLE, model.wv.key_to_index, model.wv.vectors, model.wv.vectors_ngrams)
    write_about(folder, {"name": folder.name, **figures})


def measure_speed(language: str, rnn: str, data: Path, folder: Path) -> dict[str, Any]:
    """Measure loading of embeddings, and words a second of an exported tagger in 8 bits on one thread."""
    corpus, process = load_corpus(corpus_folder(language, data)), psutil.Process()
    sentences = [[token.text for token in sentence] for sentence in sentences_of(corpus.corpus.test)]
    count = sum(map(len, sentences))
    before, start = process.memory_info().rss, time.perf_counter()
    table = SubwordEmbeddings(folder).table
    loaded = time.perf_counter()
    figures = {"load_ms": 1e3 * (loaded - start), "load_mb": (process.memory_info().rss - before) / 1e6}
    table.embed([word for sentence in sentences for word in sentence])
    figures["us_a_word"] = 1e6 * (time.perf_counter() - loaded) / count
    with tempfile.TemporaryDirectory() as out:
        settings = SETTINGS | {"epochs": 1} | KINDS["all"][1]
        config = TaggerConfig(rnn=rnn, embeddings=[str(folder)], device="cpu", **settings)
        train_taggers(config, Path(out) / "run", corpus=corpus, progress=False)
        export_tagger(load_tagger(Path(out) / "run"), Path(out) / "exported")
        quantize_tagger(Path(out) / "exported")
        tagger = Tagger(Path(out) / "exported", threads=1)
        tagger.find_spans(sentences[:32])
        start = time.perf_counter()
        tagger.find_spans(sentences)
        figures["words_per_second"] = count / (time.perf_counter() - start)
        figures["mb"] = sum(file.stat().st_size for file in (Path(out) / "exported").iterdir()) / 1e6
    return figures


def scores(**what: Any) -> list[float]:
    """Test F1 of the trainings that have these figures, a seed each."""
    return [line["test_f1"] for line in lines_so_far(FILE) if "test_f1" in line and what.items() <= line.items()]


def main_source(language: str) -> str:
    """The text of a language's embeddings in the main table."""
    return "corpus" if language in EUROPE else "raw"


def shown(values: list[float]) -> str:
    """Mean and spread of some F1, or a dash."""
    return mean_and_spread(values) if values else "-"


def table() -> str:
    """Test F1 by language: kinds of embeddings and layers, beside fine-tuned XLM-R base."""
    columns = [(kind, rnn) for kind in KINDS for rnn in LAYERS]
    rows = [["language", *(f"{kind}, `{rnn}`" for kind, rnn in columns), "XLM-R base"]]
    for language in (*XLM_R, *EUROPE):
        what = {"language": language, "source": main_source(language)}
        cells = [scores(**what, kind=kind, rnn=rnn) for kind, rnn in columns]
        if any(cells):
            rows.append([language, *map(shown, cells), f"{XLM_R.get(language) or '-'}"])
    return as_table(rows)


def verdict() -> str:
    """How far raw text and the small cell are ahead, over the languages that have both figures."""

    def lead(kind: str, rnn: str, other_kind: str, other_rnn: str) -> list[float]:
        pairs = (
            (scores(language=of, source=main_source(of), kind=kind, rnn=rnn),
             scores(language=of, source=main_source(of), kind=other_kind, rnn=other_rnn))
            for of in (*XLM_R, *EUROPE)
        )  # fmt: skip
        return [statistics.mean(one) - statistics.mean(other) for one, other in pairs if one and other]

    def told(leads: list[float]) -> str:
        error = statistics.stdev(leads) / len(leads) ** 0.5
        return f"{statistics.mean(leads):+.1f} ± {error:.1f} F1, ahead in {sum(by > 0 for by in leads)} of {len(leads)}"

    gaps = [
        xlm_r - statistics.mean(own)
        for language, xlm_r in XLM_R.items()
        if xlm_r and (own := scores(language=language, source="raw", kind="all", rnn="small-relu-tanh"))
    ]
    return (
        f"Mean over languages ± standard error. Embeddings from text against `one-hot char`, with `small-relu-tanh`: "
        f"{told(lead('all', 'small-relu-tanh', 'none', 'small-relu-tanh'))}. `small-relu-tanh` against the LSTM, with "
        f"these embeddings: {told(lead('all', 'small-relu-tanh', 'all', 'lstm'))}. Fine-tuned XLM-R base is "
        f"{statistics.mean(gaps):.1f} F1 ahead of `small-relu-tanh`, in {len(gaps)} languages."
    )


def sources() -> str:
    """Test F1 by the text of the embeddings."""
    titles = {
        "raw": "raw text",
        "clean": "raw text without the sentences of dev and test",
        "corpus": "the corpus's training sentences alone",
    }
    languages = [of for of in XLM_R if scores(language=of, source="clean")]
    rows = [["text of the embeddings", *languages]]
    for source, title in titles.items():
        what = {"source": source, "kind": "all", "rnn": "small-relu-tanh"}
        rows.append([title, *(shown(scores(language=of, **what)) for of in languages)])
    none = {"source": "raw", "kind": "none", "rnn": "small-relu-tanh"}
    rows.append(["none: `one-hot char`", *(shown(scores(language=of, **none)) for of in languages)])
    return as_table(rows)


def losses() -> str:
    """Test F1 of word vectors alone, by rows for parts of words, in 8 bits and as gensim has them."""
    languages = [of for of in XLM_R if any(scores(language=of, rows=rows) for rows, _ in ROWS)]
    rows = [["rows", "numbers", *languages]]
    for count, is_float in sorted(ROWS, reverse=True):
        cells = [shown(scores(language=of, rows=count, float=is_float)) for of in languages]
        rows.append([f"{count:,}", "float32, gensim's own" if is_float else "8 bits", *cells])
    return as_table(rows)


def steps() -> str:
    """CPU time of each step, and the sizes, over the languages that are done."""
    lines = [line for line in lines_so_far(FILE) if line["source"] == "raw"]
    made = [line for line in lines if "bits" in line]
    trained = [line for line in lines if line.get("kind") == "all" and line["rnn"] == "small-relu-tanh"]

    def between(values: list[float]) -> str:
        return f"{min(values):,.0f} to {max(values):,.0f}"

    rows = [["step", "CPU minutes on one core", "MB"]]
    text = f"`embed train`, {between([line['characters'] / 1e3 for line in made])} thousand characters"
    rows.append([text, between([line["cpu_seconds"] / 60 for line in made]), between([line["mb"] for line in made])])
    minutes = [line["cpu_seconds"] * line["epochs"] / 60 for line in trained]
    epoch = f"`tag train`, 20 epochs of {between([line['cpu_seconds'] for line in trained])} CPU seconds"
    rows.append([epoch, between(minutes), between([line["mb"] for line in trained])])
    return as_table(rows)


def speeds() -> str:
    """Sizes and words a second of exported taggers in 8 bits, and the loading of their word vectors."""
    lines = [line for line in lines_so_far(FILE) if "speed_of" in line]
    rows = [["layer", "words a second", "MB"]]
    rows += [[f"`{line['speed_of']}`", f"{line['words_per_second']:,.0f}", f"{line['mb']:.1f}"] for line in lines]
    first = lines[0]  # the second one has the file in memory
    loading = (
        f"Their word vectors are loaded in {first['load_ms']:.0f} ms, and take {first['load_mb']:.0f} MB of memory."
    )
    return f"{as_table(rows)}\n\n{loading}"


def main() -> None:
    """Trains embeddings or taggers, or prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=("embed", "train", "rows", "speed", "table"))
    parser.add_argument("--data", type=Path, help="folder with the corpora and raw texts")
    parser.add_argument("--out", type=Path, help="folder for the embeddings")
    parser.add_argument("--languages", nargs="+", default=[*XLM_R, *EUROPE])
    parser.add_argument("--kinds", nargs="+", default=[*KINDS], choices=KINDS)
    parser.add_argument("--rnn", nargs="+", default=LAYERS)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument(
        "--source", choices=("raw", "clean", "corpus"), help="text of the embeddings (default: raw, or corpus)"
    )
    arguments = parser.parse_args()
    if arguments.command == "table":
        print(table())
        return
    torch.set_num_threads(1)
    before = lines_so_far(FILE)

    for language, seed in itertools.product(arguments.languages, arguments.seeds):
        source = arguments.source or main_source(language)
        folder = arguments.out / (language if source == "raw" else f"{language}-{source}")
        what = {"language": language, "source": source}
        if arguments.command == "embed":
            if seed == 1 and not any(what.items() <= line.items() for line in before if "bits" in line):
                put(what | embed(language, arguments.data, folder, source), FILE)
        elif arguments.command == "speed":
            for rnn in LAYERS if seed == 1 else ():
                put(what | {"speed_of": rnn} | measure_speed(language, rnn, arguments.data, folder), FILE)
        elif arguments.command == "rows":
            for rows, is_float in ROWS:
                own = what | {"rows": rows, "float": is_float, "seed": seed}
                if not any(own.items() <= line.items() for line in before):
                    put(own | train_rows(language, rows, is_float, seed, arguments.data, arguments.out), FILE)
        elif seed == 1 or language in SEVERAL:
            for kind, rnn in itertools.product(arguments.kinds, arguments.rnn):
                own = what | {"kind": kind, "rnn": rnn, "seed": seed}
                is_left_out = language not in SEVERAL and kind not in PLAN.get(rnn, ())
                if not is_left_out and not any(own.items() <= line.items() for line in before):
                    put(own | train(language, kind, rnn, seed, arguments.data, folder), FILE)


if __name__ == "__main__":
    main()
