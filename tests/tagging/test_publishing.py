"""Folders for the Hub: what is in them, and that the Hub's real client brings genotypes and taggers back."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import yaml
from flair.data import Dictionary, Sentence
from flair.models import LanguageModel, SequenceTagger
from https_server import Server, put_repository, serve
from small_tagging import settings, write_corpus, write_word_vectors

from flair_nas import FlairNasError, Genotype, TaggerConfig, load_genotype, load_tagger, random_genotype, train_taggers
from flair_nas.cli import main
from flair_nas.tagging import publishing
from flair_nas.tagging.data.character_models import save_character_model
from flair_nas.tagging.safe_file import NotDataError

CAPTURE = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serve(tmp_path_factory.mktemp("server"), tls=False) as server:
        yield server


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a training run."""
    out = tmp_path_factory.mktemp("tagger") / "run"
    config = TaggerConfig(rnn="darts-v2", embeddings=["one-hot", "char"], hidden_size=8, epochs=1, seeds=[1, 2])
    train_taggers(config, out, progress=False)
    return out


def python(code: str, server: Server, cache: Path, *arguments: str) -> str:
    """What a process prints that has our server for the Hub."""
    own = {"HF_ENDPOINT": server.url, "HF_HOME": str(cache / "hf"), "FLAIR_CACHE_ROOT": str(cache / "flair")}
    own |= {"HF_HUB_DISABLE_XET": "1", "HF_HUB_DISABLE_PROGRESS_BARS": "1", "FLAIR_NAS_CACHE": str(cache / "nas")}
    command = [sys.executable, "-c", code, *arguments]
    done = subprocess.run(command, env=os.environ | own, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip().splitlines()[-1]


def head_of(card: Path) -> dict[str, object]:
    _, head, _ = card.read_text(encoding="utf-8").split("---\n", 2)
    found: dict[str, object] = yaml.safe_load(head)
    return found


# --- genotypes ---


def test_a_genotype_goes_to_the_hub_and_comes_back(server: Server, tmp_path: Path, capsys: CAPTURE) -> None:
    out = tmp_path / "hub"
    arguments = ["genotypes", "publish", "ess-ptb", "--repository", "team/cell", "--license", "mit", "--out", str(out)]
    assert main(arguments) == 0
    assert f"hf upload team/cell {out}" in capsys.readouterr().out
    written = (out / "README.md").read_bytes()
    (out / "README.md").write_text("a better card", encoding="utf-8")
    assert main(arguments) == 2 and "holds other files (README.md, genotype.json" in capsys.readouterr().err
    assert (out / "README.md").read_text(encoding="utf-8") == "a better card"
    (out / "README.md").write_bytes(written)
    assert {path.name for path in out.iterdir()} == {"genotype.json", "genotype.svg", "README.md"}
    genotype = load_genotype("ess-ptb")
    assert Genotype.load(out / "genotype.json") == genotype
    card = (out / "README.md").read_text(encoding="utf-8")
    assert head_of(out / "README.md")["license"] == "mit"
    assert genotype.one_line() in card and 'rnn_type="hf://team/cell"' in card and "ESS's inter-cell gates" in card
    assert str(genotype.origin["method"]) in card
    put_repository(server, "team/cell", out)
    listed = [{"type": "file", "path": "genotype.json", "size": 100, "oid": "b" * 40}]
    server.put("/api/models/team/cell/paths-info/main", json.dumps(listed))
    code = "import flair_nas; print(flair_nas.load_genotype('hf://team/cell').one_line())"
    assert python(code, server, tmp_path) == genotype.one_line()


def test_what_publishing_refuses(tmp_path: Path, capsys: CAPTURE) -> None:
    random_genotype(1).save(tmp_path / "mine.json")
    out = ["--out", str(tmp_path)]
    assert main(["genotypes", "publish", "darts-v2", "--repository", "cell", *out]) == 2
    assert "--repository must be owner/name, got 'cell'" in capsys.readouterr().err
    assert main(["genotypes", "publish", "darts-v2", "--repository", "team/cell", *out]) == 2
    assert "holds other files (mine.json); name a new folder" in capsys.readouterr().err
    assert main(["tag", "publish", "--model", str(tmp_path), "--repository", "team/ner", *out]) == 2
    assert "config.yaml: cannot read this file of settings" in capsys.readouterr().err
    assert {path.name for path in tmp_path.iterdir()} == {"mine.json"}


# --- taggers ---

TAG = """
import sys
from flair.data import Sentence
{load}
sentence = Sentence("Dr Helen Marsh opened the Harvest Festival in Leeds .")
tagger.predict(sentence, return_probabilities_for_all_classes=True)
print([round(token.get_tags_proba_dist("ner")[0].score, 6) for token in sentence])
"""
BY_FLAIR = "import flair_nas; from flair.models import SequenceTagger; tagger = SequenceTagger.load('team/ner')"
BY_DATA = "from flair_nas import load_tagger; tagger = load_tagger('hf://team/ner')"


@pytest.mark.slow
def test_a_tagger_goes_to_the_hub_and_comes_back(server: Server, run: Path, tmp_path: Path, capsys: CAPTURE) -> None:
    out = tmp_path / "hub"
    arguments = ["--model", str(run), "--repository", "team/ner", "--language", "en", "--out", str(out)]
    assert main(["tag", "publish", *arguments]) == 0
    assert f"hf upload team/ner {out}" in capsys.readouterr().out
    of_data, of_flair = {"model.safetensors", "config.json"}, {"pytorch_model.bin"}
    assert {path.name for path in out.iterdir()} == of_data | of_flair | {"genotype.json", "genotype.svg", "README.md"}
    head, metrics = head_of(out / "README.md"), json.loads((run / "metrics.json").read_text())
    (model,) = head["model-index"]  # type: ignore[misc]
    of_model = next(seed for seed in metrics["seeds"] if seed["seed"] == metrics["model_seed"])
    told = {result["dataset"]["split"]: metric["value"] for result in model["results"] for metric in result["metrics"]}
    assert told == {part: round(of_model[f"{part}_f1"] / 100, 4) for part in ("dev", "test")}
    assert head["language"] == "en" and "license" not in head
    assert "- paper: Liu, Simonyan and Yang, DARTS" in (out / "README.md").read_text()

    put_repository(server, "team/ner", out)
    exec(TAG.format(load=f"from flair_nas import load_tagger; tagger = load_tagger({str(run / 'model.pt')!r})"), {})
    expected = capsys.readouterr().out.strip()
    assert python(TAG.format(load=BY_FLAIR), server, tmp_path) == expected
    server.asked.clear()
    assert python(TAG.format(load=BY_DATA), server, tmp_path / "new") == expected
    assert not any("pytorch_model.bin" in asked for asked in server.asked)

    server.asked.clear()
    offline = f"import os; os.environ['FLAIR_NAS_OFFLINE'] = '1'; {BY_DATA}"
    assert python(TAG.format(load=offline), server, tmp_path / "new") == expected  # from the Hub's own cache
    assert server.asked == []


def test_a_card_of_a_pickle_says_so_and_tells_no_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def cannot(*_: object) -> None:
        raise NotDataError("Foreign cannot be rebuilt from data")

    write_corpus(corpus := tmp_path / "my texts")
    write_word_vectors(tmp_path / "vectors.gensim")
    searched = {
        "settings": {
            "corpus": str(corpus),
            "embeddings": [f"word:{tmp_path}/v.gensim", f"flair:{tmp_path}/forward/model.pt"],
        },
        "paper": "A/B",
    }
    cell = dataclasses.replace(load_genotype("tanh0-relu1"), origin=searched)
    cell.save(tmp_path / "cell.json")
    embeddings = [f"word:{tmp_path / 'vectors.gensim'}", "char"]
    config = settings(str(corpus), embeddings=embeddings, epochs=1, rnn=str(tmp_path / "cell.json"))
    train_taggers(config, tmp_path / "run", progress=False)
    monkeypatch.setattr("flair_nas.tagging.publishing.write_safe", cannot)
    arguments = ["--model", str(tmp_path / "run"), "--repository", "team/ner", "--out", str(tmp_path / "hub")]
    assert main(["tag", "publish", *arguments]) == 0
    assert all(str(tmp_path).encode() not in file.read_bytes() for file in (tmp_path / "hub").iterdir())
    card = (tmp_path / "hub" / "README.md").read_text()
    assert "It is a pickle alone, as its embeddings cannot be written as data (Foreign cannot" in card
    assert "word:v.gensim" in card and "flair:forward/model.pt" in card and "- paper: A/B" in card
    assert "corpus: my texts" in card and "word:vectors.gensim" in card and "rnn: cell.json" in card


# Flair joins pooled ones by their paths, then those with numbers, then one-hot
LOCAL = ("flair:{}/z/forward/model.pt", "flair:{}/z/backward/model.safetensors", "word:{}/vectors.gensim", "one-hot")
POOLED = ("pooled-flair:{}/a/forward/model.pt", "pooled-flair:{}/b/backward/model.pt")


@pytest.mark.slow
def test_local_paths_of_embeddings_and_layers_stay_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: CAPTURE
) -> None:
    write_corpus(corpus := tmp_path / "corpus")
    write_word_vectors(tmp_path / "vectors.gensim")
    cell = dataclasses.replace(load_genotype("tanh0-relu1"), origin={"settings": {"text": str(tmp_path / "text")}})
    cell.save(tmp_path / "cell.json")
    dictionary = Dictionary()
    for character in "\n abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.,":
        dictionary.add_item(character)
    for folder in ("a/forward", "b/backward", "z/forward", "z/backward"):
        (tmp_path / folder).mkdir(parents=True)
        rnn = str(tmp_path / "cell.json")
        model = LanguageModel(dictionary, folder.endswith("forward"), 5, 1, embedding_size=3, recurrent_type=rnn)
        save_character_model(model, tmp_path / folder)
    for name, specs in (("plain", LOCAL), ("pooled", (*LOCAL, *POOLED))):
        run, hub = tmp_path / name, tmp_path / f"hub-{name}"
        embeddings = [spec.format(tmp_path) for spec in specs]
        train_taggers(
            settings(str(corpus), embeddings=embeddings, epochs=1, rnn=str(tmp_path / "cell.json")), run, progress=False
        )
        assert main(["tag", "publish", "--model", str(run), "--repository", "team/ner", "--out", str(hub)]) == 0
        for file in hub.iterdir():
            assert str(tmp_path).encode() not in file.read_bytes(), file.name
        expected = emissions(load_tagger(run / "model.pt"))
        for published in (SequenceTagger.load(hub / "pytorch_model.bin"), load_tagger(hub)):
            assert torch.equal(emissions(published), expected)
        names = [member.name for member in SequenceTagger.load(hub / "pytorch_model.bin").embeddings.embeddings]
        assert names[:3] == ["0-forward/model.pt", "1-backward/model.safetensors", "2-vectors.gensim"]
    monkeypatch.setattr("flair_nas.tagging.publishing._cut_paths", lambda tagger: set())
    out = tmp_path / "other"
    assert main(["tag", "publish", "--model", str(run), "--repository", "team/ner", "--out", str(out)]) == 2
    assert f"would show {tmp_path}" in capsys.readouterr().err and not out.exists()


def emissions(tagger: SequenceTagger) -> torch.Tensor:
    """The scores of all tags for the words of a sentence."""
    sentence = Sentence("Dr Ada Byron saw London .")
    tagger.predict(sentence, return_probabilities_for_all_classes=True)
    return torch.tensor([[label.score for label in token.get_tags_proba_dist("ner")] for token in sentence])


@pytest.mark.slow
def test_a_repository_without_data_is_not_read_by_load_tagger(server: Server, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "pytorch_model.bin").write_bytes(b"a pickle")
    put_repository(server, "team/pickle", tmp_path / "folder")
    code = """
import os
from flair_nas import load_tagger
for name, offline in (("pickle", "0"), ("never", "1")):
    os.environ["FLAIR_NAS_OFFLINE"] = offline
    try:
        load_tagger(f"hf://team/{name}")
    except ValueError as error:
        print(error, end=" ")
"""
    said = python(code, server, tmp_path)
    assert "has no model.safetensors with a config.json; if you trust its author" in said
    assert "hf://team/never: is not in the cache, and FLAIR_NAS_OFFLINE keeps flair-nas off the network" in said


def test_bytes_of_weights_are_no_names_of_folders(tmp_path: Path) -> None:
    torch.save({"weight": torch.zeros(3)}, tmp_path / publishing.PICKLE)  # its archive has parts such as x/data/0
    assert b"/data/" in (tmp_path / publishing.PICKLE).read_bytes()
    publishing._check_paths(tmp_path, ["/data"])
    torch.save({"name": "/data/glove.gensim"}, tmp_path / publishing.PICKLE)
    with pytest.raises(FlairNasError, match=f"{publishing.PICKLE} would show /data to everybody"):
        publishing._check_paths(tmp_path, ["/data"])
