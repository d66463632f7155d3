"""Taggers of spaCy and CRFsuite, which `transformers.py` compares with: functions that train and that load.

They need `pip install spacy python-crfsuite`.
"""

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

from flair.data import Sentence

from flair_nas.tagging.data.corpora import TaggingCorpus, sentences_of
from flair_nas.tagging.evaluation import tags_of

Predict = Callable[[Sequence[Sentence]], list[list[str]]]
"""A function from sentences to the tags of their words."""


def words_of(sentences: Sequence[Sentence]) -> list[list[str]]:
    """Return the words of sentences."""
    return [[token.text for token in sentence] for sentence in sentences]


def write_vectors(data: Path, folder: Path) -> Path:
    """Write the English vectors as an empty pipeline, unless they are there."""
    import numpy
    import spacy

    if not folder.exists():
        nlp = spacy.blank("en")
        with numpy.load(data / "flair" / "embeddings" / "en-md-300d.npz") as packed:
            words, rows = bytes(packed["words"]).decode().splitlines(), packed["rows"].tolist()
            nlp.vocab.vectors = spacy.vectors.Vectors(data=packed["vectors"].astype("float32"))
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


def features(words: list[str]) -> list[list[str]]:
    """Return the usual features of each word: its form, affixes and shape, and the forms of four neighbours."""
    own = []
    for word in words:
        shape = "".join("A" if c.isupper() else "a" if c.islower() else "0" if c.isdigit() else c for c in word)
        short = "".join(c for place, c in enumerate(shape) if not place or shape[place - 1] != c)
        affixes = [f"{size}:{part}" for size in (1, 2, 3, 4) for part in (word[:size] + "-", "-" + word[-size:])]
        own.append([f"lower={word.lower()}", f"shape={shape}", f"short={short}", f"word={word}", *affixes])
    rows = [["bias", *row] for row in own]
    for step in (-2, -1, 1, 2):
        for place, row in enumerate(rows):
            inside = 0 <= place + step < len(own)
            row += [f"{step}:{feature}" for feature in own[place + step][:3]] if inside else [f"{step}:none"]
    return rows


def train_crf(corpus: TaggingCorpus, seed: int, folder: Path, data: Path) -> None:
    """Train a CRF. It draws nothing, so all seeds give the same."""
    import pycrfsuite

    trainer = pycrfsuite.Trainer(verbose=False)
    trainer.set_params({"c1": 0.1, "c2": 0.1, "max_iterations": 100, "feature.possible_transitions": True})
    sentences = sentences_of(corpus.corpus.train)
    for sentence, words in zip(sentences, words_of(sentences)):
        trainer.append(features(words), tags_of(sentence, corpus.label_type))
    trainer.train(str(folder / "model.crf"))


def load_crf(folder: Path) -> Predict:
    """Load a CRF."""
    import pycrfsuite

    tagger = pycrfsuite.Tagger()
    tagger.open(str(folder / "model.crf"))
    return lambda sentences: [tagger.tag(features(words)) for words in words_of(sentences)]
