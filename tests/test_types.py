"""Arguments of types that a user may well try: each works, or the error says what is wrong and what to do."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flair.data import Dictionary
from flair.embeddings import HashEmbeddings
from flair.models import SequenceTagger

import flair_nas
from flair_nas import (
    CharacterModelConfig,
    ClassificationSearchConfig,
    FlairNasError,
    LanguageModelConfig,
    SearchConfig,
    SearchedRNN,
    TaggerConfig,
    TaggingSearchConfig,
    TuneConfig,
    load_corpus,
    load_genotype,
    random_genotype,
)
from flair_nas.storage.resources import resource_path

CORPUS = resource_path("demo")
GENOTYPE = resource_path("genotypes", "small-tanh.json")


def test_paths_name_corpora_texts_and_genotypes() -> None:
    for config in (TaggerConfig, TaggingSearchConfig, ClassificationSearchConfig, TuneConfig):
        assert config(corpus=CORPUS).corpus == str(CORPUS)
    for config in (LanguageModelConfig, SearchConfig, CharacterModelConfig):
        assert config(text=CORPUS).text == str(CORPUS)
    assert TaggerConfig(rnn=GENOTYPE).rnn == str(GENOTYPE)
    assert load_corpus(CORPUS).sha256 == load_corpus(str(CORPUS)).sha256
    tags = Dictionary(add_unk=False)
    tags.add_item("O")
    tagger = SequenceTagger(HashEmbeddings(5, 4), tags, "ner", rnn_type=GENOTYPE, hidden_size=4)
    for layer in (SearchedRNN(3, 4, load_genotype(GENOTYPE)), tagger.rnn):
        assert layer.genotype == load_genotype("small-tanh")


def test_numbers_of_numpy_make_the_same_layer_and_genotype() -> None:
    small = load_genotype("small-tanh")
    layer = SearchedRNN(np.int64(3), np.int64(4), small, recurrent_dropout=np.float64(0.25))  # type: ignore[arg-type]
    assert layer.config() == SearchedRNN(3, 4, small, recurrent_dropout=0.25).config()
    assert {type(value) for value in layer.config().values()} == {int, float, bool, type(None), dict}
    assert random_genotype(np.int64(3), np.int64(2)).to_json() == random_genotype(3, 2).to_json()  # type: ignore[arg-type]


SETTINGS: Any = {"corpus": "demo"}
WRONG: dict[str, tuple[Callable[[Path], Any], str]] = {
    "tagger": (lambda out: flair_nas.train_taggers(SETTINGS, out), r"be a TaggerConfig, got .*TaggerConfig\(\*\*sett"),
    "search": (lambda out: flair_nas.search_genotype(SETTINGS, out), r"SearchConfig\(\*\*settings\)"),
    "estimate": (lambda out: flair_nas.estimate_search(SETTINGS), r"SearchConfig\(\*\*settings\)"),
    "language model": (lambda out: flair_nas.train_language_model(SETTINGS, out), r"LanguageModelConfig\(\*\*settings"),
    "characters": (lambda out: flair_nas.train_character_models(SETTINGS, out), r"CharacterModelConfig\(\*\*settings"),
    "tuning": (lambda out: flair_nas.tune_tagger(SETTINGS, out), r"be a TuneConfig, got .*TuneConfig\(\*\*sett"),
    "tuning of texts": (lambda out: flair_nas.tune_language_model(SETTINGS, out), r"TextTuneConfig\(\*\*settings\)"),
    "other settings": (lambda out: flair_nas.train_taggers(SearchConfig(), out), "a TaggerConfig, got SearchConfig"),  # type: ignore[arg-type]
    "corpus of Flair": (
        lambda out: flair_nas.train_taggers(TaggerConfig(), out, corpus=load_corpus("demo").corpus),  # type: ignore[arg-type]
        "corpus must be what flair_nas.load_corpus returns, got <flair.data.Corpus",
    ),
    "such a setting": (lambda out: TaggerConfig(corpus=load_corpus("demo").corpus), "must be text, got Corpus"),  # type: ignore[arg-type]
    "corpus": (lambda out: load_corpus(None), "a corpus is a name or a folder, got None"),  # type: ignore[arg-type]
    "columns": (lambda out: load_corpus("demo", columns="text=0"), "columns must map numbers to names"),  # type: ignore[arg-type]
    "no folder": (lambda out: flair_nas.train_language_model(LanguageModelConfig(text="demo"), None), "a path must be"),  # type: ignore[arg-type]
    "no model": (lambda out: flair_nas.load_tagger(None), "a path must be text or a pathlib.Path, got None"),  # type: ignore[arg-type]
    "path of a tagger": (lambda out: list(flair_nas.tag_lines(str(out), ["a"])), "must be what load_tagger returns"),  # type: ignore[arg-type]
    "it": (lambda out: flair_nas.evaluate_tagger(str(out), []), "tagger must be what load_tagger returns, got '"),  # type: ignore[arg-type]
    "genotype": (lambda out: load_genotype({"cell": 1}), "Genotype.from_dict reads its JSON data"),  # type: ignore[arg-type]
    "no genotype": (lambda out: load_genotype(None), "there is no genotype None: expected a text, a path"),  # type: ignore[arg-type]
    "dropout": (
        lambda out: SearchedRNN(3, 4, load_genotype("small-tanh"), dropout="0.1"),
        "dropout must be a probability",
    ),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("name", WRONG)
def test_what_cannot_be_used_is_refused_in_true_words(name: str, tmp_path: Path) -> None:
    call, message = WRONG[name]
    with pytest.raises(ValueError, match=message) as raised:
        call(tmp_path / "out")
    assert isinstance(raised.value, FlairNasError) or name == "dropout"
    assert not (tmp_path / "out").exists()
