"""Sequence tagging as the objective of a search: the supernet is the recurrent layer of a Flair tagger."""

from __future__ import annotations

import logging
import math

import flair
import torch
from accelerate import Accelerator
from flair.data import Sentence

from flair_nas.errors import FlairNasError, NotFiniteError
from flair_nas.runs.metric import ACCURACY, F1, Evaluation
from flair_nas.search.flair_config import TaggingSearchConfig
from flair_nas.search.objectives.flair_model import FlairObjective
from flair_nas.tagging.data import corpora
from flair_nas.tagging.data.corpora import TaggingCorpus
from flair_nas.tagging.evaluation import evaluate_tagger, labels_without_loss, tags_of
from flair_nas.tagging.training import build_tagger

log = logging.getLogger("flair_nas")


def read(config: TaggingSearchConfig, data: object = None, progress: bool = False) -> TaggingCorpus:
    """Read the corpus that the settings name, or check the one passed."""
    corpus = data if data is not None else corpora.load_corpus_of(config.tagger())
    if not isinstance(corpus, TaggingCorpus):
        raise FlairNasError(f"a search on tags takes what load_corpus gives, got {type(corpus).__name__}")
    corpora.check_labelled(corpus)
    corpora.describe_corpus(corpus)
    return corpus


def build(config: TaggingSearchConfig, data: TaggingCorpus, accelerator: Accelerator) -> TaggingObjective:
    """Build the tagger with the supernet that the settings describe, on its device; seeds the generators."""
    flair.device = accelerator.device
    train = corpora.sentences_of(data.corpus.train)  # draws random numbers
    spans = not corpora.is_token_level(train, data.label_type)
    torch.manual_seed(config.seed)
    tagger = build_tagger(config.tagger(), data)
    return TaggingObjective(tagger, tagger, data, F1 if spans else ACCURACY, config, accelerator)


class TaggingObjective(FlairObjective):
    """Tagger; `holder` is the tagger itself."""

    def select_learnable(self, sentences: list[Sentence]) -> list[Sentence]:
        """Return the sentences whose labels occur in train; Flair has no loss for others."""
        unknown = labels_without_loss(self.model, sentences, self.corpus.label_type)
        if left_out := sum(map(bool, unknown)):
            log.warning(
                "%s: %d sentences of dev, with %s, are left out for the architecture weights: train has no such label",
                *(self.corpus.name, left_out, ", ".join(sorted(set().union(*unknown)))),
            )
        return [sentence for sentence, labels in zip(sentences, unknown) if not labels]

    def labels(self, sentence: Sentence) -> list[str]:
        """Return the label of each token."""
        return tags_of(sentence, self.corpus.label_type)

    def evaluate_batches(self, size: int) -> Evaluation:
        """Compute loss and F1, or accuracy."""
        try:
            scores = evaluate_tagger(
                self.model, self.dev, self.corpus.label_type, batch_size=size, storage="cpu", compare=False
            )
        except NotFiniteError:
            return Evaluation(math.inf, 0.0)
        return Evaluation(scores.loss, scores.f1)
