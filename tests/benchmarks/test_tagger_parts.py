"""Speed of taggers by part: what is measured, and that the tagger is the same afterwards."""

from __future__ import annotations

import pytest
import torch
from flair.data import Dictionary
from flair.embeddings import FlairEmbeddings, OneHotEmbeddings, PooledFlairEmbeddings, StackedEmbeddings
from flair.models import LanguageModel, SequenceTagger
from torch import nn

from benchmarks.speed.tagger_parts import DECODING, LAYER, REST, lstms_in_place, measure_tagger, to_table
from flair_nas import SearchedRNN

pytestmark = pytest.mark.slow


@pytest.fixture
def tagger() -> SequenceTagger:
    alphabet, tags = Dictionary(), Dictionary(add_unk=False)
    for character in "\n abcdefghijklmnopqrstuvwxyz":
        alphabet.add_item(character)
    for tag in ("O", "S-PER"):
        tags.add_item(tag)
    models = [LanguageModel(alphabet, way, 6, 1, embedding_size=4, recurrent_type="tanh0") for way in (True, False)]
    members = [
        OneHotEmbeddings(alphabet, embedding_length=3),
        FlairEmbeddings(models[0]),
        PooledFlairEmbeddings(FlairEmbeddings(models[1])),
    ]
    return SequenceTagger(StackedEmbeddings(members), tags, "ner", rnn_type="ess-ptb", hidden_size=5)


def test_every_part_is_timed_beside_lstms_of_the_same_sizes(tagger: SequenceTagger) -> None:
    before = {name: weight.clone() for name, weight in tagger.state_dict().items()}
    speed = measure_tagger(tagger, ["ada saw london", "", "so it is"] * 20, 8)
    assert speed.sentences == 40 and speed.lstm_seconds is not None
    assert {*speed.seconds} == {*speed.lstm_seconds} >= {LAYER, DECODING, REST} and len(speed.seconds) == 6
    assert all(seconds > 0 for seconds in (*speed.seconds.values(), *speed.lstm_seconds.values()))
    assert speed.lstm_seconds[REST] == speed.seconds[REST]  # random LSTMs find other spans
    assert all(torch.equal(weight, before[name]) for name, weight in tagger.state_dict().items())
    assert not tagger.embeddings.embeddings[2].word_embeddings  # the words of these lines are not kept
    rows = to_table(speed).splitlines()
    assert len(rows) == 2 + 6 + 2 and all(row.count("|") == 5 for row in rows)


def test_searched_layers_alone_are_replaced(tagger: SequenceTagger) -> None:
    models = [tagger.embeddings.embeddings[1].lm, tagger.embeddings.embeddings[2].context_embeddings.lm]
    with lstms_in_place(tagger):
        assert all(isinstance(owner.rnn, nn.LSTM) and owner.rnn.hidden_size in (5, 6) for owner in (tagger, *models))
    assert all(isinstance(owner.rnn, SearchedRNN) for owner in (tagger, *models))
    assert all(model.state_count == 1 for model in models)
