"""Taggers of spaCy and CRFsuite, which `transformers.py` compares with: functions that train and that load.

They need `pip install spacy python-crfsuite`.
"""

import gzip
import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from flair.data import Sentence

from flair_nas.tagging.data.corpora import TaggingCorpus, sentences_of
from flair_nas.tagging.evaluation import tags_of

Predict = Callable[[Sequence[Sentence]], list[list[str]]]
"""A function from sentences to the tags of their words."""


def words_of(sentences: Sequence[Sentence]) -> list[list[str]]:
    """Return the words of sentences."""
    return [[token.text for token in sentence] for sentence in sentences]


def read_vectors(data: Path) -> tuple[list[str], list[int], Any]:
    """Return the words of the English vectors, the row of each word, and the rows."""
    import numpy

    with numpy.load(data / "flair" / "embeddings" / "en-md-300d.npz") as packed:
        words, rows = bytes(packed["words"]).decode().splitlines(), packed["rows"].tolist()
        return words, rows, packed["vectors"].astype("float32")


def write_vectors(data: Path, folder: Path) -> Path:
    """Write the English vectors as an empty pipeline, unless they are there."""
    import spacy

    if not folder.exists():
        nlp = spacy.blank("en")
        words, rows, vectors = read_vectors(data)
        nlp.vocab.vectors = spacy.vectors.Vectors(data=vectors)
        for word, row in zip(words, rows, strict=True):
            nlp.vocab.vectors.add(spacy.strings.hash_string(word), row=row)
        nlp.to_disk(folder)
    return folder


def train_spacy(corpus: TaggingCorpus, seed: int, folder: Path, data: Path, vectors: bool) -> None:
    """Train the pipeline `ner`, for efficiency, as `spacy init config` and `spacy train` do."""
    import spacy
    from spacy.cli.init_config import init_config
    from spacy.training.initialize import init_nlp
    from spacy.training.loop import train

    config = init_config(lang="en", pipeline=["ner"], optimize="efficiency")
    config["training"]["seed"] = config["system"]["seed"] = seed
    for part in ("train", "dev"):
        sentences, vocab = sentences_of(getattr(corpus.corpus, part)), spacy.blank("en").vocab
        tags = [tags_of(sentence, corpus.label_type) for sentence in sentences]
        docs = [spacy.tokens.Doc(vocab, words, ents=row) for words, row in zip(words_of(sentences), tags)]
        spacy.tokens.DocBin(docs=docs).to_disk(folder / "run" / f"{part}.spacy")
        config["paths"][part] = str(folder / "run" / f"{part}.spacy")
    if vectors:
        config["paths"]["vectors"] = str(write_vectors(data, folder.parents[2] / "vectors"))
        config["components"]["tok2vec"]["model"]["embed"]["include_static_vectors"] = True
    train(init_nlp(config), folder / "run")
    shutil.move(folder / "run" / "model-best", folder / "model")


def load_spacy(folder: Path) -> Predict:
    """Load a pipeline."""
    import spacy

    nlp = spacy.load(folder / "model")

    def predict(sentences: Sequence[Sentence]) -> list[list[str]]:
        docs = nlp.pipe([spacy.tokens.Doc(nlp.vocab, words) for words in words_of(sentences)])
        return [[f"{t.ent_iob_}-{t.ent_type_}" if t.ent_type_ else "O" for t in doc] for doc in docs]

    return predict


Clusters = dict[str, list[int]]
"""Numbers of a word's clusters, one for each of `SIZES`."""
SIZES = (64, 256, 1024)


def cluster_words(data: Path) -> Clusters:
    """Return the clusters of the English vectors' words, by k-means over directions."""
    from sklearn.cluster import MiniBatchKMeans
    from sklearn.preprocessing import normalize

    words, rows, vectors = read_vectors(data)
    columns = [
        MiniBatchKMeans(size, random_state=1, n_init=3, batch_size=4096).fit_predict(normalize(vectors)).tolist()
        for size in SIZES
    ]
    return {word: [column[row] for column in columns] for word, row in zip(words, rows)}


def features(words: list[str], clusters: Clusters) -> list[list[str]]:
    """Return the usual features of each word: form, affixes, shape, clusters, and some of those of four neighbours."""
    own = []
    for word in words:
        shape = "".join("A" if c.isupper() else "a" if c.islower() else "0" if c.isdigit() else c for c in word)
        short = "".join(c for place, c in enumerate(shape) if not place or shape[place - 1] != c)
        numbers = clusters.get(word) or clusters.get(word.lower()) or []
        groups = [f"of{size}={number}" for size, number in zip(SIZES, numbers)]
        affixes = [f"{size}:{part}" for size in (1, 2, 3, 4) for part in (word[:size] + "-", "-" + word[-size:])]
        own.append(([f"lower={word.lower()}", f"shape={shape}", f"short={short}", *groups], [f"word={word}", *affixes]))
    rows = [["bias", *shared, *alone] for shared, alone in own]
    for step in (-2, -1, 1, 2):
        for place, row in enumerate(rows):
            inside = 0 <= place + step < len(own)
            row += [f"{step}:{feature}" for feature in own[place + step][0]] if inside else [f"{step}:none"]
    return rows


def train_crf(corpus: TaggingCorpus, seed: int, folder: Path, data: Path, clustered: bool) -> None:
    """Train a CRF. It draws nothing, so all seeds give the same."""
    import pycrfsuite

    clusters = cluster_words(data) if clustered else {}
    trainer = pycrfsuite.Trainer(verbose=False)
    trainer.set_params({"c1": 0.1, "c2": 0.1, "max_iterations": 100, "feature.possible_transitions": True})
    sentences = sentences_of(corpus.corpus.train)
    for sentence, words in zip(sentences, words_of(sentences)):
        trainer.append(features(words, clusters), tags_of(sentence, corpus.label_type))
    trainer.train(str(folder / "model.crf"))
    with gzip.open(folder / "clusters.json.gz", "wt", encoding="utf-8") as stream:
        json.dump(clusters, stream, ensure_ascii=False)


def load_crf(folder: Path) -> Predict:
    """Load a CRF."""
    import pycrfsuite

    tagger = pycrfsuite.Tagger()
    tagger.open(str(folder / "model.crf"))
    with gzip.open(folder / "clusters.json.gz", "rt", encoding="utf-8") as stream:
        clusters = json.load(stream)
    return lambda sentences: [tagger.tag(features(words, clusters)) for words in words_of(sentences)]
