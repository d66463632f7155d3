"""Searched recurrent cells for Flair.

Importing this package loads neither torch nor Flair. Flair's `SequenceTagger` then accepts genotypes as `rnn_type`,
and its `LanguageModel` as `recurrent_type`, whichever of the two packages is imported first. `FlairEmbeddings` saves
what it needs to be loaded again. Nothing else of Flair changes.
"""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

from wrapt import register_post_import_hook

from flair_nas.version import __version__ as __version__

if TYPE_CHECKING:
    from flair_nas.character_model.config import CharacterModelConfig as CharacterModelConfig
    from flair_nas.character_model.evaluation import evaluate_character_model as evaluate_character_model
    from flair_nas.character_model.training import train_character_models as train_character_models
    from flair_nas.errors import FlairNasError as FlairNasError
    from flair_nas.genotype import Edge as Edge
    from flair_nas.genotype import Gate as Gate
    from flair_nas.genotype import GateNode as GateNode
    from flair_nas.genotype import Genotype as Genotype
    from flair_nas.genotype import GenotypeError as GenotypeError
    from flair_nas.genotype import random_genotype as random_genotype
    from flair_nas.language_model.config import LanguageModelConfig as LanguageModelConfig
    from flair_nas.language_model.evaluation import compare_language_models as compare_language_models
    from flair_nas.language_model.evaluation import evaluate_language_model as evaluate_language_model
    from flair_nas.language_model.model import LanguageModel as LanguageModel
    from flair_nas.language_model.saved import load_language_model as load_language_model
    from flair_nas.language_model.training import train_language_model as train_language_model
    from flair_nas.library.named import bundled_names as bundled_names
    from flair_nas.library.named import load_genotype as load_genotype
    from flair_nas.nn.parallel import ParallelRNN as ParallelRNN
    from flair_nas.nn.searched_rnn import SearchedRNN as SearchedRNN
    from flair_nas.nn.state import RecurrentState as RecurrentState
    from flair_nas.search.config import SearchConfig as SearchConfig
    from flair_nas.search.estimate import estimate_search as estimate_search
    from flair_nas.search.flair_config import ClassificationSearchConfig as ClassificationSearchConfig
    from flair_nas.search.flair_config import TaggingSearchConfig as TaggingSearchConfig
    from flair_nas.search.settings import ContinualSettings as ContinualSettings
    from flair_nas.search.strategies.enas import EnasSettings as EnasSettings
    from flair_nas.search.strategies.evolution import EvolutionSettings as EvolutionSettings
    from flair_nas.search.strategies.gradient import GradientSettings as GradientSettings
    from flair_nas.search.strategies.local_search import LocalSearchSettings as LocalSearchSettings
    from flair_nas.search.strategies.random_cells import RandomIndependentSettings as RandomIndependentSettings
    from flair_nas.search.strategies.random_cells import RandomSharedSettings as RandomSharedSettings
    from flair_nas.search.trainer import SearchResult as SearchResult
    from flair_nas.search.trainer import search_genotype as search_genotype
    from flair_nas.select.config import SelectConfig as SelectConfig
    from flair_nas.select.config import TextSelectConfig as TextSelectConfig
    from flair_nas.select.selection import select_layer as select_layer
    from flair_nas.storage.resources import resource_path as resource_path
    from flair_nas.tagging.config import TaggerConfig as TaggerConfig
    from flair_nas.tagging.data.character_models import load_character_model as load_character_model
    from flair_nas.tagging.data.conversion import convert_corpus as convert_corpus
    from flair_nas.tagging.data.corpora import load_corpus as load_corpus
    from flair_nas.tagging.document_embeddings import DocumentRNNEmbeddings as DocumentRNNEmbeddings
    from flair_nas.tagging.evaluation import evaluate_tagger as evaluate_tagger
    from flair_nas.tagging.patches.viterbi_loss import use_fast_crf as use_fast_crf
    from flair_nas.tagging.prediction import load_tagger as load_tagger
    from flair_nas.tagging.prediction import tag_lines as tag_lines
    from flair_nas.tagging.training import train_taggers as train_taggers

_HOMES = {
    "CharacterModelConfig": "character_model.config",
    "evaluate_character_model": "character_model.evaluation",
    "load_character_model": "tagging.data.character_models",
    "train_character_models": "character_model.training",
    "FlairNasError": "errors",
    "Edge": "genotype",
    "Gate": "genotype",
    "GateNode": "genotype",
    "Genotype": "genotype",
    "GenotypeError": "genotype",
    "random_genotype": "genotype",
    "compare_language_models": "language_model.evaluation",
    "LanguageModelConfig": "language_model.config",
    "evaluate_language_model": "language_model.evaluation",
    "LanguageModel": "language_model.model",
    "load_language_model": "language_model.saved",
    "train_language_model": "language_model.training",
    "bundled_names": "library.named",
    "load_genotype": "library.named",
    "RecurrentState": "nn.state",
    "SearchedRNN": "nn.searched_rnn",
    "ParallelRNN": "nn.parallel",
    "SearchConfig": "search.config",
    "ClassificationSearchConfig": "search.flair_config",
    "TaggingSearchConfig": "search.flair_config",
    "ContinualSettings": "search.settings",
    "EnasSettings": "search.strategies.enas",
    "EvolutionSettings": "search.strategies.evolution",
    "GradientSettings": "search.strategies.gradient",
    "LocalSearchSettings": "search.strategies.local_search",
    "RandomIndependentSettings": "search.strategies.random_cells",
    "RandomSharedSettings": "search.strategies.random_cells",
    "SearchResult": "search.trainer",
    "estimate_search": "search.estimate",
    "search_genotype": "search.trainer",
    "SelectConfig": "select.config",
    "TextSelectConfig": "select.config",
    "select_layer": "select.selection",
    "resource_path": "storage.resources",
    "TaggerConfig": "tagging.config",
    "convert_corpus": "tagging.data.conversion",
    "load_corpus": "tagging.data.corpora",
    "DocumentRNNEmbeddings": "tagging.document_embeddings",
    "evaluate_tagger": "tagging.evaluation",
    "use_fast_crf": "tagging.patches.viterbi_loss",
    "load_tagger": "tagging.prediction",
    "tag_lines": "tagging.prediction",
    "train_taggers": "tagging.training",
}
__all__ = [*_HOMES]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'flair_nas' has no attribute {name!r}")
    return getattr(import_module(f"flair_nas.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*__all__, *(name for name in globals() if name.startswith("__"))])


def _register(module: ModuleType) -> None:
    import_module("flair_nas.tagging.document_embeddings")  # registers its class with Flair
    import_module("flair_nas.tagging.registration").register(module)


def _register_models(module: ModuleType) -> None:
    import_module("flair_nas.tagging.patches.character_models").register(module)


def _register_embeddings(module: ModuleType) -> None:
    import_module("flair_nas.tagging.patches.character_models").register_embeddings(module)


register_post_import_hook(_register, "flair.models.sequence_tagger_model")
register_post_import_hook(_register_models, "flair.models.language_model")
register_post_import_hook(_register_embeddings, "flair.embeddings.token")
