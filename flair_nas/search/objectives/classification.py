"""Classes of texts as the objective of a search: the supernet is the layer of Flair's `DocumentRNNEmbeddings`."""

from __future__ import annotations

import math

import flair
import torch
from accelerate import Accelerator
from flair.data import Corpus, Sentence
from flair.embeddings import DocumentRNNEmbeddings
from flair.models import TextClassifier
from torch import nn

from flair_nas.errors import FlairNasError
from flair_nas.runs.metric import ACCURACY, F1, Evaluation
from flair_nas.search.flair_config import ClassificationSearchConfig
from flair_nas.search.objectives.flair_model import FlairObjective
from flair_nas.search.protocols import Data
from flair_nas.supernet import BothDirections
from flair_nas.tagging.data.classification import load_classes
from flair_nas.tagging.data.corpora import TaggingCorpus, describe_corpus, sentences_of
from flair_nas.tagging.data.embeddings import build_embeddings
from flair_nas.tagging.quiet import no_flair_bars


def read(config: ClassificationSearchConfig, data: Data = None, progress: bool = False) -> TaggingCorpus:
    """Read the corpus that the settings name, or the one passed, which `load_classes` returns or takes."""
    corpus = data if isinstance(data, TaggingCorpus) else load_classes(config.corpus if data is None else data)
    describe_corpus(corpus)
    return corpus


def build(config: ClassificationSearchConfig, data: TaggingCorpus, accelerator: Accelerator) -> ClassificationObjective:
    """Build the classifier with the supernet that the settings describe, on its device; seeds the generators."""
    flair.device = accelerator.device
    labelled = [*sentences_of(data.corpus.train), *sentences_of(data.corpus.dev)]
    several = any(len(sentence.get_labels(data.label_type)) > 1 for sentence in labelled)
    torch.manual_seed(config.seed)
    documents = DocumentRNNEmbeddings(
        build_embeddings(config.embeddings, data.corpus).embeddings,
        hidden_size=config.hidden_size,
        bidirectional=True,
        reproject_words=bool(config.reproject),
        reproject_words_dimension=None if isinstance(config.reproject, bool) else config.reproject,
        dropout=config.dropout,
        word_dropout=config.word_dropout,
        locked_dropout=config.locked_dropout,
    )
    with no_flair_bars():
        learned: Corpus[Sentence] = Corpus(train=labelled, sample_missing_splits=False)  # type: ignore[arg-type]
        dictionary = learned.make_label_dictionary(label_type=data.label_type, add_unk=False)
    if len(dictionary) < 2:
        raise FlairNasError(f"{data.name} has {len(dictionary)} class; there must be two at least")
    classifier = TextClassifier(documents, data.label_type, label_dictionary=dictionary, multi_label=several)
    metric = F1 if several else ACCURACY
    return ClassificationObjective(classifier, documents, data, metric, config, accelerator, DocumentDirections)


class DocumentDirections(BothDirections):
    """Supernet with the interface that Flair's embeddings of documents expect of their layer."""

    @property
    def all_weights(self) -> list[list[nn.Parameter]]:
        """Parameters of each direction; Flair reads their type."""
        return [list(direction.parameters()) for direction in (self.ahead, self.back)]

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Do nothing: Flair calls this at each pass, which would delete the gradients of the passes before."""


class ClassificationObjective(FlairObjective):
    """Classifier; `holder` is its embeddings of documents."""

    def labels(self, sentence: Sentence) -> list[str]:
        """Return the class."""
        return [sentence.get_label(self.corpus.label_type).value]

    def evaluate_batches(self, size: int) -> Evaluation:
        """Compute loss and accuracy, or F1 where texts have several classes."""
        with no_flair_bars():
            result = self.model.evaluate(
                self.dev, self.corpus.label_type, mini_batch_size=size, embedding_storage_mode="cpu"
            )
        self._forget(self.dev)
        loss = float(result.scores["loss"])
        value = 100 * float(result.main_score if self.metric is F1 else result.scores["accuracy"])
        return Evaluation(loss, value) if math.isfinite(loss) else Evaluation(math.inf, 0.0)
