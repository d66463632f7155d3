"""Speed of taggers by part: what is measured, and that the tagger is the same afterwards."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from flair.data import Dictionary
from flair.embeddings import FlairEmbeddings, OneHotEmbeddings, PooledFlairEmbeddings, StackedEmbeddings
from flair.models import LanguageModel, SequenceTagger
from torch import nn

from flair_nas import FlairNasError, SearchedRNN
from flair_nas.cli import main
from flair_nas.tagging.bench import DECODING, LAYER, REST, lstms_in_place, measure_tagger, name_members, to_table


def make_tagger(rnn: str, character_rnn: str = "tanh0") -> SequenceTagger:
    alphabet, tags = Dictionary(), Dictionary(add_unk=False)
    for character in "\n abcdefghijklmnopqrstuvwxyz":
        alphabet.add_item(character)
    for tag in ("O", "S-PER"):
        tags.add_item(tag)
    models = [
        LanguageModel(alphabet, way, 6, 1, embedding_size=4, recurrent_type=character_rnn) for way in (True, False)
    ]
    members = [
        OneHotEmbeddings(alphabet, embedding_length=3),
        FlairEmbeddings(models[0]),
        PooledFlairEmbeddings(FlairEmbeddings(models[1])),
    ]
    return SequenceTagger(StackedEmbeddings(members), tags, "ner", rnn_type=rnn, hidden_size=5)


def test_every_part_is_timed_beside_lstms_of_the_same_sizes() -> None:
    tagger = make_tagger("ess-ptb")
    before = {name: weight.clone() for name, weight in tagger.state_dict().items()}
    speed = measure_tagger(tagger, ["ada saw london", "", "so it is"] * 20, batch_size=8)
    assert speed.sentences == 40 and speed.lstm_seconds is not None
    assert {*speed.seconds} == {*speed.lstm_seconds} >= {LAYER, DECODING, REST} and len(speed.seconds) == 6
    assert all(seconds > 0 for seconds in (*speed.seconds.values(), *speed.lstm_seconds.values()))
    assert speed.lstm_seconds[REST] == speed.seconds[REST]  # random LSTMs find other spans
    assert tagger.state_dict().keys() == before.keys()
    assert all(torch.equal(weight, before[name]) for name, weight in tagger.state_dict().items())
    assert not tagger.embeddings.embeddings[2].word_embeddings  # the words of these lines are not kept
    rows = to_table(speed).splitlines()
    assert len(rows) == 2 + 6 + 2 and all(row.count("|") == 5 for row in rows)


def test_members_that_are_called_model_are_named_with_their_folder() -> None:
    tagger = make_tagger("tanh0")
    for member, name in zip(tagger.embeddings.embeddings, ("0-some/glove", "1-runs/forward/model.pt")):
        member.name = name
    names = [*name_members(tagger)]
    assert names[:2] == ["embeddings 1, glove", "embeddings 2, forward/model.pt"]


def test_searched_layers_alone_are_replaced() -> None:
    tagger = make_tagger("tanh0")
    with lstms_in_place(tagger):
        models = [tagger.embeddings.embeddings[1].lm, tagger.embeddings.embeddings[2].context_embeddings.lm]
        assert all(isinstance(owner.rnn, nn.LSTM) and owner.rnn.hidden_size in (5, 6) for owner in (tagger, *models))
    assert all(isinstance(owner.rnn, SearchedRNN) for owner in (tagger, *models))
    assert all(model.state_count == 1 for model in models)
    assert measure_tagger(make_tagger("LSTM", "gru"), ["ada"]).lstm_seconds is None


def test_the_command_prints_a_table_or_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_tagger("tanh0").save(tmp_path / "model.pt")
    (tmp_path / "text").write_text("ada saw london\nso it is\n")
    command = ["tag", "bench", "--model", str(tmp_path / "model.pt"), "--device", "cpu"]
    assert main([*command, "--sentences", "20"]) == 0
    assert "| sentences a second |" in capsys.readouterr().out
    assert main([*command, "--text", str(tmp_path / "text"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["sentences"] == 2
    (tmp_path / "text").write_text("\n")
    assert main([*command, "--text", str(tmp_path / "text")]) == 2
    assert "no sentence to tag" in capsys.readouterr().err
    assert main([*command, "--text", str(tmp_path / "nothing")]) == 2
    assert "nothing: no such file" in capsys.readouterr().err
    with pytest.raises(FlairNasError, match="no sentence"):
        measure_tagger(make_tagger("tanh0"), [])
