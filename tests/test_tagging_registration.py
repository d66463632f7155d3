"""Registration with Flair: plain Flair code trains, saves and loads searched layers, and Flair's own are untouched."""

from __future__ import annotations

import copy
import json
import multiprocessing
import pickle
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from flair.data import Corpus, Sentence
from flair.datasets import ColumnCorpus
from flair.embeddings import DocumentRNNEmbeddings, OneHotEmbeddings
from flair.embeddings.base import load_embeddings
from flair.models import MultitaskModel, SequenceTagger, TextClassifier
from flair.nn import Classifier, Model
from flair.nn.multitask import make_multitask_model_and_corpus
from flair.trainers import ModelTrainer
from flair.trainers.plugins import MetricHistoryPlugin, TrainerPlugin

import flair_nas
from flair_nas import FlairNasError, SearchedRNN, bundled_names, load_genotype, random_genotype
from flair_nas.library import resource_path
from flair_nas.tagging.prediction import load_tagger
from flair_nas.tagging.rnn_type import FLAIR_TYPES

WIDTH, HIDDEN = 6, 8
GATED = random_genotype(1, nodes=3, edges_per_node=2, history=2)
TEXTS = ("Hugo Brandt , managing director of Bluestack Mills , called the fine unfair .", "Ash Wednesday", "Zyx says no")


def tiny_corpus() -> Corpus:
    """Return 20 sentences of the demo corpus with spans ("ner"), a label of each token and one of each sentence."""
    files = {"train_file": "train.txt", "dev_file": "dev.txt", "test_file": "test.txt"}
    demo = ColumnCorpus(resource_path("demo"), {0: "text", 1: "ner"}, **files)
    parts = [[part[i] for i in range(size)] for part, size in ((demo.train, 20), (demo.dev, 4), (demo.test, 4))]
    for sentence in sum(parts, []):
        people = any(label.value == "PER" for label in sentence.get_labels("ner"))
        sentence.add_label("topic", "people" if people else "things")
        for token in sentence:
            token.add_label("case", "upper" if token.text[0].isupper() else "lower")
    return Corpus(*parts, sample_missing_splits=False)


def word_embeddings(corpus: Corpus) -> OneHotEmbeddings:
    return OneHotEmbeddings.from_corpus(corpus, min_freq=1, embedding_length=WIDTH)


def make_tagger(
    corpus: Corpus, tag_type: str = "ner", tagger: type[SequenceTagger] = SequenceTagger, **options: Any
) -> SequenceTagger:
    options = {"embeddings": word_embeddings(corpus), "hidden_size": HIDDEN, "rnn_type": "i-darts-ptb", **options}
    tags = corpus.make_label_dictionary(tag_type, add_unk=False)
    return tagger(tag_dictionary=tags, tag_type=tag_type, **options)


def train(model: Model, corpus: Corpus, folder: Path, **options: Any) -> Path:
    """Train with Flair's trainer, long enough for labels to be predicted, and return the saved file."""
    defaults = {"optimizer": torch.optim.Adam, "learning_rate": 0.05, "mini_batch_size": 4, "max_epochs": 3}
    defaults |= {"use_final_model_for_eval": True, "create_file_logs": False, "embeddings_storage_mode": "none"}
    ModelTrainer(model, corpus).train(folder, **{**defaults, **options})
    return folder / "final-model.pt"


def predictions(model: Classifier) -> list[list[Any]]:
    """Return each sentence's labels with scores, and its tokens' scores of all tags, as JSON data (which is exact)."""
    model.eval()
    sentences = [Sentence(text, use_tokenizer=False) for text in TEXTS]
    model.predict(sentences, return_probabilities_for_all_classes=True)
    found = []
    for sentence in sentences:
        labels = [
            [label.unlabeled_identifier, label.typename, label.value, label.score] for label in sentence.get_labels()
        ]
        tags = [label for token in sentence for tags in token.tags_proba_dist.values() for label in tags]
        found.append([labels, [[label.value, label.score] for label in tags]])
    assert any(labels for labels, _ in found), "predictions without a label would agree for no reason"
    return found


# A new process that has imported neither package. Flair takes seconds to import, nearly all of them for other packages;
# a fork server that holds those saves the time for each process, and knows nothing of Flair.
HEAVY = ("torch", "transformers", "sklearn", "scipy", "pandas", "gensim", "transformer_smaller_training_vocab")


def in_new_process(code: str, **names: Any) -> Any:
    """Run code in a new process and return what it leaves in `result`."""
    can_fork = "forkserver" in multiprocessing.get_all_start_methods()
    context = multiprocessing.get_context("forkserver" if can_fork else "spawn")
    if can_fork:
        context.set_forkserver_preload(sorted(name for name in sys.modules if name.partition(".")[0] in HEAVY))
    with ProcessPoolExecutor(1, mp_context=context) as pool:
        return pool.submit(_run, code, names).result()
