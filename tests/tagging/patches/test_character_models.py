"""Searched layers in Flair's character language models: training, saving, embeddings, taggers that hold them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import flair
import pytest
import torch
from flair.data import Dictionary, Sentence
from flair.embeddings import FlairEmbeddings, PooledFlairEmbeddings, StackedEmbeddings
from flair.models import LanguageModel, SequenceTagger
from flair.trainers.language_model_trainer import LanguageModelTrainer, TextCorpus
from own_process import python
from small_tagging import write_character_model

from flair_nas import FlairNasError, Genotype, ParallelRNN, RecurrentState, SearchedRNN
from flair_nas.nn.init import papers_range
from flair_nas.tagging.data.character_models import save_character_model
from flair_nas.tagging.safe_file import CONFIG, read_safe, write_safe

GATED = "tanh0-relu1/state=tanh-relu+tanh1/input=sigmoid-identity"
KINDS = {
    "LSTM": torch.nn.LSTM,
    "gru": torch.nn.GRU,
    "i-darts-ptb": SearchedRNN,
    GATED: SearchedRNN,
    "relu0-tanh1,recurrence=elementwise,recurrent_dropout=0.1": SearchedRNN,
    "sru": ParallelRNN,
}
TEXTS = ("Ada Byron saw London .", "In Oslo , Grace Hopper sang", "a")


def make_model(recurrent_type: Any, forward: bool = True, layers: int = 1) -> LanguageModel:
    alphabet = Dictionary()
    for character in "\n abcdefghijklmnopqrstuvwxyzABGHLO.,":
        alphabet.add_item(character)
    torch.manual_seed(3)
    model = LanguageModel(alphabet, forward, 7, layers, embedding_size=5, recurrent_type=recurrent_type)
    for weight in model.rnn.parameters():
        torch.nn.init.uniform_(weight, -0.7, 0.7)
    model.eval()
    return model


def vectors(embeddings: Any, texts: tuple[str, ...] = TEXTS) -> list[list[list[float]]]:
    sentences = [Sentence(text) for text in texts]
    embeddings.embed(sentences)
    return [[token.get_embedding().tolist() for token in sentence] for sentence in sentences]


def make_tagger(embeddings: Any) -> SequenceTagger:
    tags = Dictionary(add_unk=False)
    for tag in ("O", "S-PER"):
        tags.add_item(tag)
    return SequenceTagger(embeddings, tags, "ner", rnn_type="tanh0", hidden_size=4)


# --- models ---


@pytest.mark.parametrize("kind", KINDS)
def test_a_model_of_any_layer_is_saved_and_loaded(kind: str, tmp_path: Path) -> None:
    model = make_model(kind, layers=2)
    assert type(model.rnn) is KINDS[kind] and model.rnn.num_layers == 2
    model.save(tmp_path / "model.pt")
    model.save_checkpoint(tmp_path / "checkpoint.pt", torch.optim.SGD(model.parameters(), 0.1), 1, 1, 1.0)
    for other in (
        LanguageModel.load_language_model(tmp_path / "model.pt"),
        LanguageModel.load_checkpoint(tmp_path / "checkpoint.pt")["model"],
    ):
        assert type(other.rnn) is KINDS[kind]
        assert other.calculate_perplexity("Ada saw") == model.calculate_perplexity("Ada saw")
    if kind.startswith("relu0"):
        assert other.rnn.recurrent_dropout == 0.1 and other.rnn.dropout == model.dropout


def test_a_genotype_and_a_file_are_layers(tmp_path: Path) -> None:
    genotype = Genotype.parse("tanh0-relu1")
    genotype.save(tmp_path / "Mine.json")
    for kind in (genotype, str(tmp_path / "Mine.json")):
        assert make_model(kind).rnn.genotype == genotype
    assert make_model("tanh0-relu1").rnn.init_range == papers_range(7)


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("i-darts-ptv", "Did you mean i-darts-ptb"),
        ("RNN", "unknown recurrent_type 'RNN'. Known: LSTM, GRU, SRU, MINGRU, MINLSTM, darts"),
        (None, "recurrent_type must be a layer spec or a Genotype, got None"),
        ("foo", "Known: "),
        ("tanh7", "found 7"),
    ],
)
def test_an_unknown_layer_is_named_with_the_known_ones(kind: str | None, message: str) -> None:
    with pytest.raises(FlairNasError, match=message):
        make_model(kind)


@pytest.mark.parametrize("kind", ["lstm", GATED])
def test_embeddings_take_a_file_of_data(kind: str, tmp_path: Path) -> None:
    save_character_model(make_model(kind), tmp_path)
    files = [str(tmp_path / name) for name in ("model.pt", "model.safetensors")]
    torch.manual_seed(1)
    as_pickle, after = FlairEmbeddings(files[0]), torch.rand(3)
    torch.manual_seed(1)
    as_data = FlairEmbeddings(files[1])
    assert torch.equal(torch.rand(3), after)  # what is trained on top starts with the same weights
    assert vectors(as_pickle) == vectors(as_data) == vectors(FlairEmbeddings(Path(files[1])))
    assert [as_pickle.name, as_data.name] == files and as_data.lm.decoder is None
    assert FlairEmbeddings(files[1], has_decoder=True).lm.decoder is not None
    assert vectors(PooledFlairEmbeddings(files[1])) == vectors(PooledFlairEmbeddings(files[0]))


def test_options_of_a_layer_are_obeyed() -> None:
    layer, _ = flair.models.language_model.create_recurrent_layer("tanh0", 3, 4, 1, bidirectional=True)
    assert layer(torch.zeros(2, 1, 3))[0].shape == (2, 1, 8)


@pytest.mark.parametrize("size", [0, -1])
def test_a_size_that_cannot_be_is_named(size: int) -> None:
    with pytest.raises(FlairNasError, match=f"recurrent_type 'tanh0': hidden_size must be .*{size}"):
        LanguageModel(Dictionary(), True, size, 1, recurrent_type="tanh0")


def test_the_state_of_gates_goes_through_all_of_the_model() -> None:
    model = make_model(GATED)
    (whole,) = model.get_output("Ada saw")
    assert isinstance(whole, RecurrentState)
    hidden = model.init_hidden(1)
    for part in ("Ada", " saw"):
        ids = torch.tensor([[model.dictionary.get_idx_for_item(character)] for character in part])  # [T, 1]
        _, _, hidden = model.forward(ids, hidden)
    torch.testing.assert_close(hidden[0].hidden, whole.hidden)
    assert len(model.generate_text("Ad", 4)[0]) >= 6


@pytest.mark.slow
def test_flairs_trainer_trains_a_searched_model(tmp_path: Path) -> None:
    text = tmp_path / "text"
    (text / "train").mkdir(parents=True)
    for name in ("train/split_0", "train/split_1", "valid.txt", "test.txt"):
        (text / name).write_text("Ada Byron saw London .\nIn Oslo , Grace Hopper sang .\n" * 40)
    model = make_model(GATED)
    corpus = TextCorpus(text, model.dictionary, random_case_flip=False)
    before = model.calculate_perplexity("Ada Byron saw London")
    LanguageModelTrainer(model, corpus).train(
        tmp_path / "out", 10, learning_rate=5, mini_batch_size=8, max_epochs=2, num_workers=0, checkpoint=True
    )
    best = LanguageModel.load_language_model(tmp_path / "out" / "best-lm.pt")
    assert best.rnn.genotype == model.rnn.genotype and best.calculate_perplexity("Ada Byron saw London") < before / 2


# --- embeddings ---


@pytest.mark.parametrize("forward", [True, False], ids=["forward", "backward"])
@pytest.mark.parametrize("kind", ["i-darts-ptb", GATED, "sru"])
def test_vectors_are_the_states_of_the_model_at_each_word(kind: str, forward: bool) -> None:
    model = make_model(kind, forward)
    found = vectors(FlairEmbeddings(model))
    assert found == vectors(FlairEmbeddings(model, chars_per_chunk=512))
    for text, words in zip(TEXTS, found):
        torch.testing.assert_close(vectors(FlairEmbeddings(model, chars_per_chunk=16), (text,))[0], words)
        read = "\n" + (text if forward else text[::-1]) + " "
        ids = torch.tensor([[model.dictionary.get_idx_for_item(character)] for character in read])  # [T, 1]
        states = model.rnn(model.encoder(ids))[0][:, 0]  # [T, H]
        ends = [len(text[:end].rstrip()) for end in range(1, len(text) + 1) if text[end : end + 1] in ("", " ")]
        starts = [0, *(end + 1 for end in ends[:-1])]
        places = [end + 1 for end in ends] if forward else [len(text) - start + 1 for start in starts]
        torch.testing.assert_close(torch.tensor(words), states[places].detach())


def test_flair_saves_layer_and_place_of_every_model() -> None:
    for kind in KINDS:
        embeddings = FlairEmbeddings(make_model(kind), with_whitespace=False)
        other = FlairEmbeddings.from_params(embeddings.to_params())
        other.load_state_dict(embeddings.state_dict())
        assert vectors(other) == vectors(embeddings) != vectors(FlairEmbeddings(make_model(kind)))
        assert other.name == embeddings.name


def test_names_tell_a_searched_model_from_an_lstm() -> None:
    names = {kind: FlairEmbeddings(make_model(kind)).name for kind in ("LSTM", "i-darts-ptb", "sru")}
    assert names == {
        "LSTM": "Task-LSTM-7-1-True",
        "i-darts-ptb": "Task-SearchedRNN-7-1-True",
        "sru": "Task-ParallelRNN-7-1-True",
    }
    assert FlairEmbeddings(make_model("i-darts-ptb"), name="mine").name == "mine"


# --- taggers that hold them ---

LOAD = """
import flair
from flair.models import SequenceTagger
from flair.data import Sentence
assert "flair_nas" not in sys.modules
import json
result = {}
for path in sys.argv[1:]:
    tagger = SequenceTagger.load(path)
    sentences = [Sentence(text) for text in json.loads(TEXTS)]
    tagger.embeddings.embed(sentences)
    result[path] = [[token.get_embedding().tolist() for token in sentence] for sentence in sentences]
print("RESULT" + json.dumps(result))
"""


@pytest.mark.slow
def test_taggers_with_such_embeddings_load_where_only_flair_is_imported(tmp_path: Path) -> None:
    expected = {}
    for number, kind in enumerate(KINDS):
        forward, backward = (FlairEmbeddings(make_model(kind, way), with_whitespace=way) for way in (True, False))
        pooled = PooledFlairEmbeddings(make_pooled(kind))
        tagger = make_tagger(StackedEmbeddings([forward, backward, pooled]))
        path = str(tmp_path / f"{number}.pt")
        tagger.save(path)
        tagger.eval()
        pooled.word_embeddings.clear()
        pooled.word_count.clear()
        expected[path] = vectors(tagger.embeddings)
    code = f"TEXTS = {json.dumps(TEXTS)!r}\n{LOAD}"
    process = python("sys", code, *expected)
    output, errors = process.communicate()
    assert process.returncode == 0, errors
    assert json.loads(output.rpartition("RESULT")[2]) == expected


def make_pooled(kind: str) -> FlairEmbeddings:
    return FlairEmbeddings(make_model(kind, False), name="pooled")


@pytest.mark.parametrize("kind", [GATED, "gru"])
def test_a_tagger_with_a_searched_model_is_data_too(kind: str, tmp_path: Path) -> None:
    tagger = make_tagger(FlairEmbeddings(make_model(kind), with_whitespace=False))
    write_safe(tagger, tmp_path)
    assert vectors(read_safe(tmp_path).embeddings) == vectors(tagger.embeddings)
    config = json.loads((tmp_path / CONFIG).read_text())
    config.pop("sha256")  # files of before have none
    config["embeddings"]["model_params"]["recurrent_type"] = "hf://somebody/else"
    (tmp_path / CONFIG).write_text(json.dumps(config))
    with pytest.raises(FlairNasError, match="recurrent_type 'hf://somebody/else' is a name or an address"):
        read_safe(tmp_path)


def test_a_tagger_saved_as_data_before_still_loads(tmp_path: Path) -> None:
    write_character_model(tmp_path / "forward.pt")
    tagger = make_tagger(FlairEmbeddings(str(tmp_path / "forward.pt")))
    write_safe(tagger, tmp_path)
    config = json.loads((tmp_path / CONFIG).read_text())
    config.pop("sha256")
    del config["embeddings"]["with_whitespace"], config["embeddings"]["model_params"]["recurrent_type"]
    (tmp_path / CONFIG).write_text(json.dumps(config))
    assert vectors(read_safe(tmp_path).embeddings, TEXTS[-1:]) == vectors(tagger.embeddings, TEXTS[-1:])


def test_a_newer_genotype_is_refused(tmp_path: Path) -> None:
    model = make_model("tanh0")
    model.recurrent_type = model.recurrent_type.replace('"version": 2', '"version": 99')
    model.save(tmp_path / "model.pt")
    with pytest.raises(FlairNasError, match="version: found 99"):
        FlairEmbeddings(str(tmp_path / "model.pt"))


@pytest.fixture(autouse=True)
def on_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flair, "device", torch.device("cpu"))
