"""Settings of searches with a model of Flair: a sequence tagger, or a classifier of texts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from flair_nas.search.config import SearchSettings
from flair_nas.search.strategies.gradient import GradientSettings
from flair_nas.settings.fields import COUNT, PROBABILITY, get_kinds, setting, takes_flair_names
from flair_nas.tagging.config import CorpusSettings, TaggerConfig


@dataclass
class FlairSearchConfig(SearchSettings):
    """Settings of a search with a model of Flair."""

    corpus: str = setting("demo", "corpus to learn")
    embeddings: list[str] = setting(
        ["glove", "flair:news-forward", "flair:news-backward"],
        "glove, english, the folder of embed train, word:PATH, fasttext:PATH, flair:NAME_OR_PATH, "
        "transformer:NAME_OR_PATH (its last layer alone: ,layers=last behind it), char, one-hot",
    )
    held_out: float | None = setting(
        None, "share of train for the architecture weights alone (half, or none if candidates are trained alone); 0: "
        "they learn on dev", low=0, high=0.9
    )  # fmt: skip
    directions: str = setting(
        "shared", "architecture weights of the two directions: shared, or own, with the genotype of their mean",
        choices=("shared", "own"),
    )  # fmt: skip
    reproject: bool | int = setting(
        True, "a linear map on top of the embeddings: as wide as they are, or to a width of N", low=2, high=1_000_000
    )
    dropout: float = setting(0.0, "dropout before and after the recurrent layer", **PROBABILITY)
    word_dropout: float = setting(0.05, "probability of dropping a word's whole embedding", **PROBABILITY)
    locked_dropout: float = setting(0.5, "variational dropout of the recurrent layer's input and output", **PROBABILITY)
    hidden_size: int = setting(256, "hidden size H of each direction", **COUNT)
    batch_size: int = setting(32, "sentences in a batch, over all processes", low=2, high=1_000_000)
    learning_rate: float = setting(0.1, "learning rate of SGD for the model weights", low=1e-12, high=1e6)
    weight_decay: float = setting(0.0, "weight decay of the model weights", low=0, high=1)
    clip: float = setting(5.0, "largest norm of the model's gradient; a larger one is clipped", low=1e-12, high=1e12)
    recurrent_dropout: float = setting(0.0, "variational dropout of h and the nodes' states", **PROBABILITY)
    input_dropout: float = setting(0.0, "variational dropout of the layer's input x, inside it", **PROBABILITY)

    storage: str | None = setting(
        None,
        "place of the vectors of embeddings that do not learn: cpu (memory) or disk (a file in the cache, shared by "
        "all runs on this corpus) (cpu, or disk if they are large or there are several processes)",
        choices=("cpu", "disk"),
    )

    def contradictions(self) -> list[str]:
        """Return a sentence for each contradiction; settings out of range may have any type."""
        problems = super().contradictions()
        if self.directions == "own" and isinstance(self.own, GradientSettings) and self.own.selection == "perturbation":
            problems.append("selection perturbation decides one set of architecture weights: directions must be shared")
        if changing := [name for name in self.embeddings if name.startswith("pooled-")]:
            problems.append(
                f"embeddings {', '.join(changing)} change while they are used, which a search could not resume; give "
                "them without pooled-"
            )
        return problems


@takes_flair_names
@dataclass
class TaggingSearchConfig(CorpusSettings, FlairSearchConfig):
    """Settings of `search_genotype` on tags; each is also a flag of ``flair-nas search --objective tagging``.

    The defaults are those of I-DARTS on CoNLL-2003, as far as they are published, with smaller batches.

    Raises:
        FlairNasError: settings that cannot be used or contradict each other; it names all of them.

    Example:
        >>> from flair_nas import TaggingSearchConfig
        >>> TaggingSearchConfig(corpus="demo", embeddings=["one-hot"]).objective
        'tagging'
    """

    objective: str = setting("tagging", "task of the model: tagging", choices=("tagging",))
    crf: bool = setting(True, "decode with a CRF; otherwise a softmax per token")

    def tagger(self) -> TaggerConfig:
        """Return the settings of the tagger, with an LSTM in place of the supernet."""
        same = ("embeddings", "hidden_size", "crf", "reproject", "dropout", "word_dropout", "locked_dropout")
        options: dict[str, Any] = {name: getattr(self, name) for name in (*get_kinds(CorpusSettings), *same)}
        return TaggerConfig(**options, rnn="lstm")


@dataclass
class ClassificationSearchConfig(FlairSearchConfig):
    """Settings of `search_genotype` on classes of texts; each is also a flag of ``flair-nas search``.

    The model is Flair's `TextClassifier` with `DocumentRNNEmbeddings`, and so are the defaults.

    Raises:
        FlairNasError: settings that cannot be used or contradict each other; it names all of them.

    Example:
        >>> from flair_nas import ClassificationSearchConfig
        >>> ClassificationSearchConfig(corpus="demo", embeddings=["one-hot"]).objective
        'classification'
    """

    objective: str = setting("classification", "task of the model: classification", choices=("classification",))
    corpus: str = setting(
        "", "folder of train.txt, dev.txt and, if there is one, test.txt, a line each: __label__NAME and the text"
    )
    dropout: float = setting(0.5, "dropout before and after the recurrent layer", **PROBABILITY)
    word_dropout: float = setting(0.0, "probability of dropping a word's whole embedding", **PROBABILITY)
    locked_dropout: float = setting(0.0, "variational dropout of the recurrent layer's input and output", **PROBABILITY)
    hidden_size: int = setting(128, "hidden size H of each direction", **COUNT)
