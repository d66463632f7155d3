"""F1 with English word vectors, by their width and by what is added to them.

    python -m benchmarks.taggers.english_vectors VECTORS.npz --data-root DATASETS --politics FOLDER \
        [--gensim VECTORS.gensim] [--out FILE]

VECTORS.npz is the source of `pack_english`. Vectors are narrowed by a singular value decomposition, and in 8 bits. An
unknown word gets zeros, the mean of all vectors, or the mean of what its parts get: its pieces of 2 to 4 characters,
hashed to 2^14 rows that are fitted to a tenth of the known words by least squares. A word has the same vector in all
its spellings. `capitals` therefore adds two numbers, 1 or 0: is the first letter a capital, and is a later one?

The model is small, so that all of it takes minutes: a layer of 32 tanh units reads a word and its two neighbours, and
Adam trains it for six epochs. It has the first 1,000 training sentences of WNUT-2017, or the 200 of CrossNER politics.

Fixed before the first run: a narrower table, or a plainer vector, is taken unless the other one is better by more than
two standard errors of the mean difference, over all pairs of corpus and seed.
"""

import argparse
import math
import multiprocessing
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from benchmarks.json_lines import as_table, lines_in, lines_so_far, put
from flair_nas.experiments.statistics import mean_and_spread
from flair_nas.tagging.data.table_embeddings import EnglishEmbeddings

RESULTS = Path(__file__).parents[1] / "results" / "english_vectors.jsonl"
LOADED = ("english", "gensim")
CORPORA = ("wnut_17", "politics")
SENTENCES, EPOCHS, UNITS, TOKENS, RATE = 1000, 6, 32, 128, 0.003
VARIANTS = (
    *((300, "zeros", False), (100, "zeros", False), (300, "zeros", True), (300, "parts", False)),
    *((200, "zeros", False), (300, "mean", False), (300, "parts", True)),
)
"""Width, vector of unknown words, and if capitals are told."""
PIECES, ROWS, RIDGE, ITERATIONS = (2, 4), 1 << 14, 0.1, 8


def narrow(vectors: np.ndarray, width: int) -> np.ndarray:
    """Vectors in the directions that hold most of them, [rows, width], as 8 bits have them."""
    if width < vectors.shape[1]:
        vectors = vectors @ np.linalg.svd(vectors, full_matrices=False)[2][:width].T
    scales = np.abs(vectors).max(axis=1, keepdims=True) / 127
    return (np.rint(vectors / scales) * scales).astype(np.float32)


def count_parts(words: list[str]) -> Any:
    """The share of each hashed piece in each word, [words, ROWS], sparse."""
    from gensim.models.fasttext import ft_ngram_hashes
    from scipy.sparse import csr_matrix

    hashes = [ft_ngram_hashes(word, *PIECES, ROWS) for word in words]
    counts = np.array([len(part) for part in hashes])
    shares = np.repeat(1 / np.maximum(counts, 1), counts).astype(np.float32)
    places = np.concatenate([[0], np.cumsum(counts)])
    return csr_matrix((shares, np.concatenate(hashes).astype(np.int32), places), shape=(len(words), ROWS))


def fit_parts(words: list[str], targets: np.ndarray) -> np.ndarray:
    """Vectors of hashed pieces, [ROWS, width], whose means are near the targets (conjugate gradients, ridge)."""
    parts = count_parts(words)
    turned = parts.T.tocsr()
    diagonal = np.asarray(parts.multiply(parts).sum(axis=0)).reshape(-1, 1) + RIDGE
    found = np.zeros((ROWS, targets.shape[1]), np.float32)
    rest = turned @ targets
    scaled = rest / diagonal
    step, size = scaled.copy(), (rest * scaled).sum(axis=0)
    for _ in range(ITERATIONS):
        product = turned @ (parts @ step) + RIDGE * step
        length = size / (step * product).sum(axis=0)
        found += length * step
        rest -= length * product
        scaled = rest / diagonal
        size, before = (rest * scaled).sum(axis=0), size
        step = scaled + size / before * step
    return found


def look_up(source: dict[str, Any], words: list[str], width: int, unknown: str, capitals: bool) -> np.ndarray:
    """Vectors of words, [words, width], or two more numbers for their capitals."""
    if ("vectors", width) not in source:
        source["vectors", width] = narrow(source["vectors"], width)
    vectors, rows = source["vectors", width], source["rows"]
    known = [next((rows[form] for form in (word, word.lower()) if form in rows), -1) for word in words]
    found = vectors[known]
    strange = [place for place, row in enumerate(known) if row < 0]
    found[strange] = vectors[[*rows.values()]].mean(axis=0) if unknown == "mean" else 0
    if unknown == "parts":
        if ("parts", width) not in source:
            source["parts", width] = fit_parts([*rows][::10], vectors[[*rows.values()][::10]])
        found[strange] = count_parts([words[place] for place in strange]) @ source["parts", width]
    if capitals:
        flags = [[float(part != part.lower()) for part in (word[:1], word[1:])] for word in words]
        found = np.concatenate([found, np.array(flags, np.float32)], axis=1)
    return found


def read(name: str, roots: dict[str, str]) -> tuple[list[str], list[list[list[int]]], list[list[list[str]]]]:
    """The different words of train and test, their numbers in each sentence, and the tags."""
    from flair_nas.tagging.data.corpora import load_corpus, sentences_of
    from flair_nas.tagging.evaluation import tags_of

    corpus = load_corpus(roots.get(name, name), data_root=roots["named"])
    parts = [sentences_of(corpus.corpus.train)[:SENTENCES], sentences_of(corpus.corpus.test)]  # type: ignore[arg-type]
    numbers: dict[str, int] = {}
    places = [[[numbers.setdefault(t.text, len(numbers)) for t in s] for s in part] for part in parts]
    return [*numbers], places, [[tags_of(s, corpus.label_type) for s in part] for part in parts]


def train(vectors: np.ndarray, places: list[list[list[int]]], tags: list[list[list[str]]], seed: int) -> float:
    """F1 on test."""
    import torch
    from seqeval.metrics import f1_score
    from torch import nn
    from torch.nn.functional import cross_entropy

    torch.manual_seed(seed)
    matrix = torch.cat([torch.from_numpy(vectors), torch.zeros(1, vectors.shape[1])])
    names = sorted({tag for sentence in tags[0] for tag in sentence})
    inputs = []
    for part in places:
        windows = [[end, *sentence, end] for sentence in part for end in (len(vectors),)]
        inputs.append(torch.tensor([w[at : at + 3] for w in windows for at in range(len(w) - 2)]))  # [words, 3]
    gold = torch.tensor([names.index(tag) for sentence in tags[0] for tag in sentence])
    size = 3 * matrix.shape[1]
    model = nn.Sequential(nn.Dropout(0.5), nn.Linear(size, UNITS), nn.Tanh(), nn.Linear(UNITS, len(names)))
    optimizer = torch.optim.Adam(model.parameters(), RATE)
    for _ in range(EPOCHS):
        for batch in torch.randperm(len(gold)).split(TOKENS):
            loss = cross_entropy(model(matrix[inputs[0][batch]].flatten(1)), gold[batch])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    model.eval()
    with torch.no_grad():
        best = torch.cat([model(matrix[part].flatten(1)).argmax(1) for part in inputs[1].split(4096)]).tolist()
    found = iter(names[number] for number in best)
    predicted = [[next(found) for _ in sentence] for sentence in tags[1]]
    return 100 * float(f1_score(tags[1], predicted))


def measure(name: str, path: str, words: list[str]) -> dict[str, float]:
    """Milliseconds and MB of loading vectors, and microseconds of looking up a word."""
    from gensim.models import KeyedVectors

    process = psutil.Process()
    before, start = process.memory_info().rss, time.perf_counter()
    if name == "gensim":
        vectors = KeyedVectors.load(path)
    else:
        table = EnglishEmbeddings().table
    loaded = time.perf_counter()
    if name == "gensim":
        [vectors[word] for word in words if word in vectors]
    else:
        table.embed(words)
    end, after = time.perf_counter(), process.memory_info().rss
    seconds = (end - loaded) / len(words)
    return {"ms": 1e3 * (loaded - start), "mb": (after - before) / 1e6, "us_a_word": 1e6 * seconds}


def loading() -> str:
    """Memory and time of the table in words, beside gensim's."""
    ours, other = (next(line for line in lines_in(RESULTS) if line.get("loaded") == name) for name in LOADED)
    return (
        f"Loading it takes {ours['ms']:.0f} ms with the checksum, and {ours['mb']:.0f} MB of memory. gensim's file of "
        f"51,924 words with 100 numbers takes {other['ms']:.0f} ms and {other['mb']:.0f} MB. The first look at a word "
        f"takes {ours['us_a_word']:.0f} µs, in gensim {other['us_a_word']:.0f} µs; words are remembered."
    )


def table() -> str:
    """F1 on test of each variant, and the mean difference from the first one with its standard error."""
    scores: dict[tuple, dict[str, list[float]]] = {}
    for line in (line for line in lines_in(RESULTS) if "corpus" in line):
        scores.setdefault((line["width"], line["unknown"], line["capitals"]), {})[line["corpus"]] = line["test_f1"]
    first = scores[VARIANTS[0]]
    rows = [["width", "unknown words", "capitals", "WNUT-2017", "CrossNER politics", "difference from the first"]]
    for variant, found in scores.items():
        gains = [f1 - other for name in CORPORA for f1, other in zip(found[name], first[name])]
        difference = f"{np.mean(gains):+.2f} ± {np.std(gains, ddof=1) / math.sqrt(len(gains)):.2f}"
        texts = [mean_and_spread(found[name]) for name in CORPORA]
        capitals = "two numbers" if variant[2] else "-"
        rows.append([str(variant[0]), variant[1], capitals, *texts, "-" if variant == VARIANTS[0] else difference])
    return as_table(rows)


def main() -> None:
    """Trains each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("vectors")
    parser.add_argument("--data-root")
    parser.add_argument("--gensim", help="vectors whose loading is compared")
    parser.add_argument("--politics", required=True)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--out", type=Path, help="file to which JSON lines are added")
    arguments = parser.parse_args()
    data = np.load(arguments.vectors)
    if arguments.gensim and not lines_so_far(arguments.out):
        sample = data["words"].tobytes().decode().split("\n")[::1000]
        for name in LOADED:  # each in a process of its own
            with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
                found = pool.submit(measure, name, arguments.gensim, sample).result()
            put({"loaded": name, **found}, arguments.out)
    words = data["words"].tobytes().decode().split("\n")
    source = {"rows": dict(zip(words, data["rows"].tolist())), "vectors": data["vectors"].astype(np.float32)}
    roots = {"named": arguments.data_root, "politics": arguments.politics}
    corpora = {name: read(name, roots) for name in CORPORA}
    for variant in VARIANTS:
        for name, (types, places, tags) in corpora.items():
            what = {"corpus": name, **dict(zip(("width", "unknown", "capitals"), variant)), "seeds": arguments.seeds}
            if not any(what.items() <= line.items() for line in lines_so_far(arguments.out)):
                vectors = look_up(source, types, *variant)
                put(what | {"test_f1": [train(vectors, places, tags, seed) for seed in arguments.seeds]}, arguments.out)


if __name__ == "__main__":
    main()
