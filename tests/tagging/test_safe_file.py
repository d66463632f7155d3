"""Taggers as data: the same tagger, and no code of others is run."""

from __future__ import annotations

import errno
import json
import pickle
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import flair
import pytest
import torch
from flair.data import Corpus, Dictionary, Sentence
from flair.embeddings import (
    CharacterEmbeddings,
    FlairEmbeddings,
    HashEmbeddings,
    OneHotEmbeddings,
    PooledFlairEmbeddings,
    StackedEmbeddings,
    TokenEmbeddings,
    TransformerWordEmbeddings,
    WordEmbeddings,
)
from flair.models import LanguageModel, SequenceTagger
from full_disk import full_disk
from safetensors.torch import load_file, save_file
from small_transformer import write_transformer

from flair_nas import FlairNasError, TaggerConfig, load_tagger, train_taggers
from flair_nas.storage.files import hash_file
from flair_nas.tagging import training
from flair_nas.tagging.data.corpora import load_corpus
from flair_nas.tagging.data.embeddings import build_embeddings
from flair_nas.tagging.registration import Width
from flair_nas.tagging.safe_file import NotDataError, read_safe, write_safe

registered = torch.nn.Module.register_parameter
SENTENCE = "Dr Helen Marsh opened the Harvest Festival in Leeds ."
SMALL: dict[str, Any] = {"corpus": "demo", "embeddings": ["one-hot", "char"], "hidden_size": 8, "epochs": 1}


@pytest.fixture(scope="module")
def corpus() -> Corpus:
    return load_corpus("demo").corpus


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a training run."""
    out = tmp_path_factory.mktemp("tagger") / "run"
    train_taggers(TaggerConfig(rnn="darts-v2", **SMALL), out, parts=(), progress=False)
    return out


def features(tagger: SequenceTagger) -> torch.Tensor:
    with torch.no_grad():
        found: torch.Tensor = tagger.eval().forward(*tagger._prepare_tensors([Sentence(SENTENCE)]))[0]
    return found


def one_hot(corpus: Corpus) -> TokenEmbeddings:
    embeddings: TokenEmbeddings = OneHotEmbeddings.from_corpus(corpus, min_freq=2, embedding_length=8)
    return embeddings


@pytest.mark.slow
def test_a_run_that_is_cut_off_has_no_data_of_another_tagger(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(tagger: SequenceTagger, folder: Path) -> None:
        raise OSError("no space left on device")

    shutil.copytree(run, here := tmp_path / "run")
    monkeypatch.setattr(training, "write_safe", full)
    with pytest.raises(OSError, match="no space left"):
        train_taggers(TaggerConfig(rnn="darts-v2", seeds=[1, 2], **SMALL), here, parts=(), progress=False)
    best = json.loads((here / "metrics.json").read_text())["model_seed"]
    assert not (here / "config.json").exists()  # else it would be loaded in place of the best
    assert (here / "model.pt").read_bytes() == (here / f"seed-{best}" / "model.pt").read_bytes()


def test_a_run_holds_its_tagger_as_data_which_goes_first(run: Path, tmp_path: Path) -> None:
    shutil.copytree(run, here := tmp_path / "run")
    of_pickle = load_tagger(here / "model.pt")
    (here / "model.pt").write_bytes(b"no pickle")
    of_data = load_tagger(here)
    assert torch.equal(features(of_pickle), features(of_data))
    assert of_data.rnn_type == of_pickle.rnn_type and of_data.label_dictionary.idx2item


@pytest.mark.parametrize("rnn_type", ["LSTM", "darts-v2", "ess-ptb"])
@pytest.mark.parametrize("use_crf", [True, False])
def test_taggers_of_all_kinds_come_back_as_they_were(
    corpus: Corpus, tmp_path: Path, rnn_type: str, use_crf: bool
) -> None:
    flair.set_seed(1)
    letters = Dictionary()
    letters.add_item("e")
    members = [*build_embeddings(["char"], corpus).embeddings, CharacterEmbeddings(letters, 3, 2)]
    members += [one_hot(corpus), HashEmbeddings(50, 4)]
    stack = StackedEmbeddings(members, overwrite_names=False)
    dictionary = corpus.make_label_dictionary("ner", add_unk=False)
    options: dict[str, Any] = {"rnn_layers": 2, "hidden_size": 8, "use_crf": use_crf, "loss_weights": {"PER": 2.0}}
    tagger = SequenceTagger(stack, dictionary, "ner", rnn_type=rnn_type, **options)
    write_safe(tagger, tmp_path)
    loaded = read_safe(tmp_path)
    assert torch.equal(features(tagger), features(loaded))
    before, after = tagger.state_dict(), loaded.state_dict()
    assert before.keys() == after.keys() and all(torch.equal(before[name], after[name]) for name in before)
    assert loaded.weight_dict == {"PER": 2.0} and loaded.tag_type == "ner"
    assert loaded.label_dictionary.item2idx == tagger.label_dictionary.item2idx


def test_embeddings_of_words_and_of_characters_models_come_back(corpus: Corpus, tmp_path: Path) -> None:
    """Word vectors, a character language model, and pooled vectors of one."""
    flair.set_seed(1)
    words = WordEmbeddings(None, vocab={"<unk>": 0, "Dr": 1, "Leeds": 2}, embedding_length=4, name="words")
    torch.nn.init.normal_(words.embedding.weight)
    alphabet = Dictionary()
    for letter in "\n abcdefghijklmnopqrstuvwxyz":
        alphabet.add_item(letter)

    def model(forward: bool) -> FlairEmbeddings:
        made = FlairEmbeddings(LanguageModel(alphabet, forward, hidden_size=6, nlayers=1, embedding_size=5))
        made.name = "forward" if forward else "backward"
        return made

    stack = StackedEmbeddings([words, model(True), PooledFlairEmbeddings(model(False))])
    dictionary = corpus.make_label_dictionary("ner", add_unk=False)
    tagger = SequenceTagger(stack, dictionary, "ner", rnn_type="darts-v2", hidden_size=8)
    write_safe(tagger, tmp_path)
    assert torch.equal(features(tagger), features(read_safe(tmp_path)))


def test_a_single_direction(corpus: Corpus, tmp_path: Path) -> None:
    dictionary = corpus.make_label_dictionary("ner", add_unk=False)
    tagger = SequenceTagger(one_hot(corpus), dictionary, "ner", rnn_type="darts-v1", hidden_size=8, bidirectional=False)
    write_safe(tagger, tmp_path)
    assert torch.equal(features(tagger), features(read_safe(tmp_path)))


class Foreign(HashEmbeddings):
    """Embeddings of somebody's own."""

    embeddings_name = "Foreign"


class Objects(HashEmbeddings):
    """Embeddings that save more than data."""

    def to_params(self) -> dict[str, Any]:
        return {"num_embeddings": self.num_embeddings, "made_by": object()}


def transformer() -> TransformerWordEmbeddings:
    with tempfile.TemporaryDirectory() as folder:
        write_transformer(Path(folder, "bert"))
        return TransformerWordEmbeddings(f"{folder}/bert")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (transformer, "TransformerWordEmbeddings cannot be rebuilt from data, as usual for transformers"),
        (lambda: Foreign(50, 4), "Foreign cannot be rebuilt from data; known are StackedEmbeddings"),
        (lambda: Objects(50, 4), "embeddings.made_by is a object, which is no plain data"),
    ],
)
def test_what_cannot_be_data_says_so_and_leaves_nothing_stale(
    corpus: Corpus, tmp_path: Path, make: Callable[[], TokenEmbeddings], message: str
) -> None:
    dictionary = corpus.make_label_dictionary("ner", add_unk=False)
    write_safe(SequenceTagger(one_hot(corpus), dictionary, "ner", hidden_size=8), tmp_path)
    with pytest.raises(NotDataError, match=message):
        write_safe(SequenceTagger(make(), dictionary, "ner", hidden_size=8), tmp_path)
    assert not (tmp_path / "config.json").exists()


# --- files from elsewhere ---


@pytest.fixture
def folder(run: Path, tmp_path: Path) -> Path:
    """The two files alone."""
    for name in ("model.safetensors", "config.json"):
        shutil.copy(run / name, tmp_path / name)
    return tmp_path


def change(folder: Path, **changes: Any) -> None:
    config = json.loads((folder / "config.json").read_text())
    config.pop("sha256", None)  # as in files of earlier versions
    (folder / "config.json").write_text(json.dumps(config | changes))


class Bomb:
    """A pickle that leaves a trace when it is read."""

    def __init__(self, trace: Path) -> None:
        self.trace = trace

    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.touch, (self.trace,))


def test_a_pickle_in_place_of_safetensors_is_refused_and_never_read(folder: Path) -> None:
    (folder / "model.safetensors").write_bytes(pickle.dumps(Bomb(folder / "trace")))
    with pytest.raises(FlairNasError, match=r"model.safetensors: is damaged, or of another tagger than config.json"):
        load_tagger(folder)
    digest = hash_file(folder / "model.safetensors")
    change(folder, weights={"file": "model.safetensors", "sha256": digest})
    with pytest.raises(FlairNasError, match="config.json and model.safetensors are no whole tagger .SafetensorError"):
        load_tagger(folder)
    torch.save({"a": Bomb(folder / "trace")}, folder / "model.safetensors")
    change(folder, weights={"sha256": hash_file(folder / "model.safetensors")})
    with pytest.raises(FlairNasError, match="config.json and model.safetensors are no whole tagger .SafetensorError"):
        load_tagger(folder)
    assert not (folder / "trace").exists()


def test_embeddings_of_other_kinds_are_not_made(folder: Path) -> None:
    change(folder, embeddings={"__cls__": "TransformerWordEmbeddings", "model": "somebody/else"})
    with pytest.raises(FlairNasError, match="TransformerWordEmbeddings cannot be rebuilt from data"):
        load_tagger(folder)


def test_no_dictionary_is_read_from_a_path_and_none_is_fetched(folder: Path) -> None:
    """Flair would read a pickle from there, and fetch a dictionary where none is given."""
    (folder / "words").write_bytes(pickle.dumps(Bomb(folder / "trace")))
    embeddings = json.loads((folder / "config.json").read_text())["embeddings"]
    kinds = [member["__cls__"] for member in embeddings["embeddings"]]
    assert kinds == ["OneHotEmbeddings", "CharacterRNNEmbeddings"]
    kinds[1] = "CharacterEmbeddings"
    embeddings["embeddings"][1] = {
        "__cls__": kinds[1],
        "char_embedding_dim": 25,
        "hidden_size_char": 25,
        "name": "Char",
    }
    for index, name in enumerate(("vocab_dictionary", "path_to_char_dict")):
        for value in (str(folder / "words"), None):
            faulty = json.loads(json.dumps(embeddings))
            faulty["embeddings"][index][name] = value
            change(folder, embeddings=faulty)
            with pytest.raises(FlairNasError, match=rf"config.json: {kinds[index]}.{name} is of type (str|NoneType)"):
                load_tagger(folder)
    settings = json.loads((folder / "config.json").read_text())["settings"]
    change(folder, embeddings=embeddings, settings=settings | {"tag_dictionary": str(folder / "words")})
    with pytest.raises(FlairNasError, match="a tagger.tag_dictionary is of type str"):
        load_tagger(folder)
    assert not (folder / "trace").exists()


@pytest.mark.parametrize("rnn_type", ["https://localhost/cell.json", "hf://a/b", "cell.json", "darts-v2"])
def test_a_layer_that_is_elsewhere_is_not_looked_for(
    folder: Path, rnn_type: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("flair_nas.library.named.load_genotype", lambda source: pytest.fail(f"looked for {source}"))
    settings = json.loads((folder / "config.json").read_text())["settings"]
    change(folder, settings=settings | {"rnn_type": rnn_type})
    with pytest.raises(FlairNasError, match=r"config.json: rnn_type .* is a name or an address"):
        load_tagger(folder)


@pytest.mark.parametrize("name", ["no_header", "model_params"])
def test_what_embeddings_are_not_made_of_is_refused(folder: Path, name: str) -> None:
    embeddings = json.loads((folder / "config.json").read_text())["embeddings"]
    embeddings["embeddings"][0][name] = 1
    change(folder, embeddings=embeddings)
    with pytest.raises(FlairNasError, match=f"config.json: OneHotEmbeddings.{name} is not known here"):
        load_tagger(folder)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"version": 2}, "version 2 is not known here"),
        ({"format": "bert"}, "expected a format flair-nas/tagger"),
        ({"settings": {}}, "are no whole tagger"),
        ({"embeddings": {"__cls__": "WordEmbeddings"}}, "config.json: WordEmbeddings lacks vocab"),
        ({"embeddings": "glove"}, "config.json: what is no embedding cannot be rebuilt from data"),
        ({"weights": None}, "are no whole tagger"),
    ],
)
def test_a_faulty_config_is_refused(folder: Path, changes: dict[str, Any], message: str) -> None:
    change(folder, **changes)
    with pytest.raises(FlairNasError, match=message):
        load_tagger(folder)


@pytest.mark.parametrize(
    ("before", "after"), [('"bidirectional": true', '"bidirectional": false'), ("S-", "B-"), ('"<unk>"', '"<umk>"')]
)
def test_a_config_that_has_changed_is_refused(folder: Path, before: str, after: str) -> None:
    text = (folder / "config.json").read_text()
    assert before in text
    (folder / "config.json").write_text(text.replace(before, after, 1))
    with pytest.raises(FlairNasError, match=r"config.json: is damaged, its checksum does not match"):
        load_tagger(folder)


def test_one_that_is_cut_short(folder: Path) -> None:
    text = (folder / "config.json").read_text()
    (folder / "config.json").write_text(text[: len(text) // 2])
    with pytest.raises(FlairNasError, match="is damaged or cannot be read"):
        load_tagger(folder)


@pytest.mark.parametrize(
    "changes",
    [{"hidden_size": 10_000_000}, {"hidden_size": 20_000}, {"rnn_layers": 20_000}, {"rnn_layers": 10**12}],
)
@pytest.mark.parametrize("rnn_type", [None, "LSTM"])
def test_sizes_beyond_the_weights_are_refused_before_anything_is_built(
    folder: Path, changes: dict[str, int], rnn_type: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = json.loads((folder / "config.json").read_text())["settings"]
    change(folder, settings=settings | changes | ({"rnn_type": rnn_type} if rnn_type else {}))
    made = []
    monkeypatch.setattr(torch.nn.Module, "register_parameter", lambda *given: made.append(given) or registered(*given))
    with pytest.raises(FlairNasError, match=r"hidden_size \d+, rnn_layers \d+ and others want more than the \d"):
        load_tagger(folder)
    assert len(made) < 3000


def test_a_width_and_embeddings_beyond_the_weights(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    weights = load_file(folder / "model.safetensors")
    save_file(weights | {"embedding2nn.weight": torch.zeros(10_000_000_000, 0)}, folder / "model.safetensors")
    change(folder, weights={"sha256": hash_file(folder / "model.safetensors")})
    with pytest.raises(FlairNasError, match="want more than the"):
        load_tagger(folder)
    for size in ("num_embeddings", "embedding_length"):
        hashed = {"__cls__": "HashEmbeddings", "num_embeddings": 50, "embedding_length": 4, "hash_method": "md5"}
        change(folder, embeddings=hashed | {size: 10**9})
        with pytest.raises(FlairNasError, match="want more than the"):
            load_tagger(folder)
    one_hot = config["embeddings"]["embeddings"][0]
    change(folder, embeddings=one_hot | {"embedding_length": 10**9})
    with pytest.raises(FlairNasError, match="want more than the"):
        load_tagger(folder)


def test_a_narrow_map_of_wide_embeddings_comes_back(corpus: Corpus, tmp_path: Path) -> None:
    """While it is built there is more of it for a while than in the file."""
    dictionary = corpus.make_label_dictionary("ner", add_unk=False)
    tagger = SequenceTagger(
        HashEmbeddings(5, 2000), dictionary, "ner", hidden_size=4, rnn_type="darts-v1", reproject_embeddings=Width(3)
    )
    write_safe(tagger, tmp_path)
    assert torch.equal(features(tagger), features(read_safe(tmp_path)))


@pytest.mark.parametrize(
    ("there", "missing"), [("model.safetensors", "config.json"), ("config.json", "model.safetensors")]
)
def test_one_file_without_the_other_is_refused_and_no_pickle_is_read(run: Path, there: str, missing: str) -> None:
    here = run.parent / f"without-{missing}"
    shutil.copytree(run, here)
    (here / missing).unlink()
    torch.save({"a": Bomb(here / "trace")}, here / "model.pt")
    with pytest.raises(FlairNasError, match=f"{there} is there without {missing}; give it back"):
        load_tagger(here)
    assert not (here / "trace").exists()


def test_a_disk_that_is_full_for_the_weights_is_told_and_the_tagger_stays(run: Path, tmp_path: Path) -> None:
    shutil.copytree(run, here := tmp_path / "run")
    tagger, size = load_tagger(here), (here / "model.safetensors").stat().st_size
    message = "no room to write this file .the file that was there before is kept"
    with full_disk(size - 1), pytest.raises(OSError, match=message) as caught:
        write_safe(tagger, here)
    assert (caught.value.errno, caught.value.filename) == (errno.ENOSPC, str(here / "model.safetensors"))
    assert {path.name for path in here.iterdir()} == {path.name for path in run.iterdir()}
    assert torch.equal(features(load_tagger(here)), features(tagger))
