"""Embeddings of one's own text: the same bytes however often a training is stopped, and vectors that are gensim's."""

from __future__ import annotations

import errno
import json
import shutil
from pathlib import Path
from typing import Any
from unittest import mock

import killing
import numpy as np
import pytest
from flair.data import Sentence
from full_disk import full_disk
from gensim.models import FastText
from small_embedding import run_training, settings, write_raw

from flair_nas import EmbeddingConfig, FlairNasError, SubwordEmbeddings, build_embeddings, load_corpus, train_embeddings
from flair_nas.embedding import plan, training
from flair_nas.embedding.character_model import training as character_training
from flair_nas.embedding.text import LONG_LINE, TextCounts, find_source, write_tokens
from flair_nas.language_model.text.corpus import END, load_text
from flair_nas.language_model.text.sources import Text
from flair_nas.runs.run import RunStopped
from flair_nas.tagging.data.embedding_folder import ABOUT, CHARACTERS, TABLE

ALL = {ABOUT, TABLE, *CHARACTERS, "config.yaml"}


@pytest.fixture
def raw(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("FLAIR_NAS_CACHE", str(tmp_path / "cache"))
    return write_raw(tmp_path / "raw.txt")


def train(raw: str, out: Path, **changes: Any) -> dict[str, Any]:
    return train_embeddings(EmbeddingConfig(**settings(raw, **changes)), out, progress=False)


def read(text: Path | str, folder: Path, max_characters: float = np.inf, **changes: Any) -> TextCounts:
    config = EmbeddingConfig(text=str(text), **changes)
    return write_tokens(config, find_source(config), folder, max_characters, False)


def files(folder: Path) -> dict[str, bytes]:
    """The files of a finished folder, except the name of the folder in one of them."""
    data = {path.name: path.read_bytes() for path in folder.iterdir() if path.name != ".lock"}
    return data | {ABOUT: data[ABOUT].replace(f'"{folder.name}"'.encode(), b"")}


def test_the_vectors_are_those_of_gensim(raw: str, tmp_path: Path) -> None:
    """The table differs from the model by its 8 bits alone, for words with and without a vector of their own."""
    models: list[FastText] = []
    keep = training.train_words

    def keep_model(*given: Any) -> FastText:
        models.append(keep(*given))
        return models[-1]

    with mock.patch.object(training, "train_words", keep_model):
        about = train(raw, tmp_path / "out", characters=False, rows=1000)
    (model,) = models
    assert {path.name for path in (tmp_path / "out").iterdir()} - {".lock"} == {ABOUT, TABLE, "config.yaml"}
    assert about["words"] == len(model.wv) and about["part_vectors"] == 1000
    known, new = ["oslo", "ƙasata", "."], ["Oslo", "osloberen", "日本", "x"]
    assert all(word in model.wv.key_to_index for word in known) and not {*new} & model.wv.key_to_index.keys()
    embeddings, sentence = SubwordEmbeddings(tmp_path / "out"), Sentence([*known, *new])
    embeddings.embed(sentence)
    for token in sentence:
        expected = model.wv[token.text]
        tolerance = np.abs(model.wv.vectors_ngrams).max() / 127
        np.testing.assert_allclose(token.embedding.numpy(), expected, atol=tolerance)
    assert np.abs(model.wv["oslo"]).max() > 0.05


@pytest.mark.parametrize("stops", [(1, 2), (3, 5, 9), (10, 30)])
def test_a_stopped_training_ends_with_the_same_bytes(raw: str, tmp_path: Path, stops: tuple[int, ...]) -> None:
    """Stopped between pieces of the text, and between steps of both character models."""
    train_piece, step = FastText.train, character_training._Training.step
    calls = iter(range(10**6))

    def stopping(method: Any) -> Any:
        def run(*arguments: Any, **options: Any) -> Any:
            if next(calls) in stops:
                raise KeyboardInterrupt
            return method(*arguments, **options)

        return run

    def both(out: Path) -> None:
        run_training(settings(raw), str(out))

    def make_plan(config: EmbeddingConfig, source: Text) -> plan.Plan:
        return plan.Plan(source.parts["train"].digest, 1.0, np.inf, 3, 2, 0.0, 0.0)

    both(tmp_path / "whole")
    with (
        mock.patch.object(training, "make_plan", make_plan),
        mock.patch.object(FastText, "train", stopping(train_piece)),
        mock.patch.object(character_training._Training, "step", stopping(step)),
    ):
        for _ in stops:
            with pytest.raises(RunStopped, match=r"^(?!.*charlm).*go on with: flair-nas embed train --resume"):
                both(tmp_path / "run")
            assert not (tmp_path / "run" / ABOUT).exists()
        both(tmp_path / "run")
    assert files(tmp_path / "run") == files(tmp_path / "whole") and files(tmp_path / "run").keys() == ALL


@pytest.mark.slow
def test_kills_change_nothing(raw: str, tmp_path: Path) -> None:
    context = killing.processes("flair_nas.embedding.training", "small_embedding")
    process = context.Process(target=run_training, args=(settings(raw), str(tmp_path / "whole")))
    process.start()
    process.join()
    out, random = tmp_path / "run", np.random.default_rng(4)
    for _ in range(8):
        process = context.Process(target=run_training, args=(settings(raw), str(out)))
        process.start()
        process.join(random.uniform(0.1, 2.5))
        process.kill()
        process.join()
    run_training(settings(raw), str(out))
    assert files(out) == files(tmp_path / "whole")


@pytest.mark.parametrize("room", [5_000, 20_000, 100_000])
def test_a_full_disk_loses_nothing(raw: str, tmp_path: Path, room: int) -> None:
    """It fills up while the tokens, the word vectors or a character model are written."""
    with full_disk(room), pytest.raises(OSError, match="no room") as caught:
        train(raw, tmp_path / "run", rows=4000)
    assert caught.value.errno == errno.ENOSPC and not (tmp_path / "run" / ABOUT).exists()
    train(raw, tmp_path / "run", rows=4000)
    train(raw, tmp_path / "whole", rows=4000)
    assert files(tmp_path / "run") == files(tmp_path / "whole")


def test_a_finished_folder_is_not_trained_again(raw: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    about = train(raw, tmp_path / "out", characters=False)
    before = files(tmp_path / "out")
    assert train(raw, tmp_path / "out", characters=False) == about and files(tmp_path / "out") == before
    assert "is finished, so nothing was trained" in caplog.text
    with pytest.raises(FlairNasError, match="holds a run with other settings: width was 8 and is now 9"):
        train(raw, tmp_path / "out", characters=False, width=9)
    (tmp_path / "out" / TABLE).write_bytes(b"x")
    with pytest.raises(FlairNasError, match=r"table.safetensors: is damaged, or of another version"):
        train(raw, tmp_path / "out", characters=False)


def test_another_text_is_refused(raw: str, tmp_path: Path) -> None:
    with mock.patch.object(training, "train_words", side_effect=KeyboardInterrupt), pytest.raises(RunStopped):
        train(raw, tmp_path / "out")
    write_raw(Path(raw), lines=401)
    with pytest.raises(FlairNasError, match=r"raw.txt: the text is another one than when this run began"):
        train(raw, tmp_path / "out")


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (b"", "the file is empty"),
        (b"ten chars.", "has 3 words; embeddings need 1,000 or more"),
        ("\ufeffword".encode(), "has 1 words"),
        (b"\xff\xfe caf\xe9 " * 500, "not UTF-8"),
        (b"a\0b " * 2000, "a NUL byte"),
        (" ".join(f"w{number}" for number in range(2000)).encode(), "no words occur min_count = 2 times"),
    ],
)
def test_a_text_that_cannot_be_used(data: bytes, error: str, tmp_path: Path) -> None:
    (tmp_path / "raw.txt").write_bytes(data)
    with pytest.raises(FlairNasError, match=error):
        train(str(tmp_path / "raw.txt"), tmp_path / "out")
    assert not (tmp_path / "out" / ABOUT).exists()


def test_line_ends_marks_and_long_lines_change_no_words(raw: str, tmp_path: Path) -> None:
    lines = Path(raw).read_text(encoding="utf-8").split("\n")
    forms = {
        "plain": "\n".join(lines),
        "crlf": "\r\n".join(lines),
        "mark": "\ufeff" + "\n".join(lines),
        "blank": "\n\n \n".join(lines),
    }
    found = {}
    for name, text in forms.items():
        (tmp_path / f"{name}.txt").write_text(text, encoding="utf-8", newline="")
        counts = read(tmp_path / f"{name}.txt", tmp_path / name)
        found[name] = (counts.lines, counts.words, (tmp_path / name / "tokens.txt").read_bytes())
    assert len({*found.values()}) == 1
    (tmp_path / "long.txt").write_text(" ".join(lines), encoding="utf-8")
    long = read(tmp_path / "long.txt", tmp_path / "long")
    assert long.words > 0.99 * found["plain"][1] and long.long == 1  # segtok may keep a full stop within a line
    assert len((tmp_path / "long" / "tokens.txt").read_text(encoding="utf-8").split()) == long.words
    assert 10 < long.lines < long.words / LONG_LINE * 2


def test_a_text_that_is_read_in_part_says_how_much(raw: str, tmp_path: Path) -> None:
    """Also where a file is read in larger blocks."""
    lines = Path(raw).read_text(encoding="utf-8")
    (tmp_path / "large.txt").write_text(lines * 60, encoding="utf-8")
    whole = read(tmp_path / "large.txt", tmp_path / "whole", characters=False)
    assert whole.part == 1 and whole.characters > 800_000
    for share in (0.1, 0.7):
        part = read(tmp_path / "large.txt", tmp_path / f"{share}", share * whole.characters, characters=False)
        assert part.characters == pytest.approx(share * whole.characters, rel=0.01)
        assert part.part == pytest.approx(share, abs=0.02)


def test_lines_are_held_out_for_character_models_alone(raw: str, tmp_path: Path) -> None:
    """They are from the whole text, and stand at its end; word vectors read all."""
    with_models, without = read(raw, tmp_path / "a"), read(raw, tmp_path / "b", characters=False)
    lines, plain = ((tmp_path / name / "tokens.txt").read_text(encoding="utf-8").splitlines() for name in "ab")
    assert sorted(lines) == sorted(plain) and with_models.words == without.words and not without.held
    held = lines[-with_models.held :]
    places = [plain.index(line) / len(plain) for line in held]
    assert 0.04 < len("\n".join(held)) / with_models.characters < 0.06 and places[0] < 0.1 and places[-1] > 0.9
    config = plan.character_settings(EmbeddingConfig(raw), tmp_path / "a", with_models, 1)
    corpus = load_text(config.text, config)
    assert np.count_nonzero(corpus.valid == corpus.vocabulary.index(END)) == with_models.held


def test_a_text_without_blanks_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    line = "昨日東京で開かれた会議で大臣は新しい計画について詳しく説明した"
    (tmp_path / "raw.txt").write_text("\n".join([line, line[::-1]] * 750) + line * 200, encoding="utf-8")
    with mock.patch.object(training, "train_words", side_effect=KeyboardInterrupt), pytest.raises(RunStopped):
        train(str(tmp_path / "raw.txt"), tmp_path / "out", character_epochs=1)
    assert "almost no blanks (1.0 words a line, 3" in caplog.text and "MeCab (Japanese)" in caplog.text


@pytest.mark.parametrize("name", ["plan.json", "text/text.json", "words.model", "text/tokens.txt"])
def test_a_damaged_state_is_told(raw: str, tmp_path: Path, name: str) -> None:
    with mock.patch.object(training, "train_directions", side_effect=KeyboardInterrupt), pytest.raises(RunStopped):
        train(raw, tmp_path / "out")
    state = tmp_path / "out" / "training"
    (state / name).write_bytes((state / name).read_bytes()[:50])
    if name == "text/tokens.txt":  # it is read while there are epochs to train
        (state / "words.model").unlink()
    with pytest.raises(FlairNasError, match=rf"{state / name}: is (damaged|cut short).*; delete"):
        train(raw, tmp_path / "out")


def test_the_sentences_of_a_corpus_serve(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLAIR_NAS_CACHE", str(tmp_path / "cache"))
    config = EmbeddingConfig(corpus="demo", width=8, rows=64, epochs=1, characters=False)
    about = train_embeddings(config, tmp_path / "out", progress=False)
    sentences = load_corpus("demo").corpus.train
    assert about["text"]["words"] == sum(map(len, sentences))  # type: ignore[arg-type]


def test_a_budget_reads_less(raw: str, tmp_path: Path) -> None:
    """A plan that would take longer has fewer epochs, and then a part of the text."""

    def plan_for(budget: str | None) -> plan.Plan:
        config = EmbeddingConfig(**settings(raw, characters=False, epochs=10, budget=budget))
        # a second of reading and one of word vectors for the whole text
        with mock.patch.object(plan, "time", mock.Mock(perf_counter=mock.Mock(side_effect=iter(range(100))))):
            return plan.make_plan(config, find_source(config))

    whole, fewer, part = map(plan_for, (None, "7s", "1.5s"))
    assert whole.characters == fewer.characters == np.inf and whole.epochs == 10 and 1 < fewer.epochs < 10
    assert part.epochs == 1 and part.part == pytest.approx(1.5 * 0.85 / 2)
    assert f"{part}".startswith("the budget allows the first 64 % of the text")
    some, counts = read(raw, tmp_path / "some", part.characters), read(raw, tmp_path / "all")
    assert part.characters <= some.characters < part.characters + 100 and some.words < counts.words
    with pytest.raises(FlairNasError, match=r"budget 0.1s is too small for 1,000 words; give 10s or more"):
        plan_for("0.1s")


def test_word_vectors_get_the_rest_of_a_budget(raw: str) -> None:
    """They get all the time that whole epochs of the character models leave."""

    def epochs_for(budget: str | None) -> tuple[int, int]:
        config = EmbeddingConfig(**settings(raw, epochs=20, character_epochs=10, budget=budget))
        seconds = [0, 0, 0, 0.2]  # before and after reading, and an epoch of word vectors
        clock = mock.Mock(perf_counter=mock.Mock(side_effect=seconds))
        with mock.patch.object(plan, "time", clock), mock.patch.object(plan, "measure_cost", return_value=(1.0, "")):
            made = plan.make_plan(config, find_source(config))
        return made.epochs, made.character_epochs

    assert [*map(epochs_for, (None, "9s", "1.4s"))] == [(20, 10), (13, 5), (1, 1)]


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"text": None}, "give either a text or a corpus"),
        ({"corpus": "demo"}, "give either a text or a corpus"),
        ({"words": False, "characters": False}, "words and characters are both off"),
        ({"budget": "soon"}, "budget must be a time above 0 with its unit"),
    ],
)
def test_settings_that_contradict(changes: dict[str, Any], error: str) -> None:
    with pytest.raises(FlairNasError, match=error):
        EmbeddingConfig(**settings("raw.txt", **changes))


def test_all_or_a_part_of_a_folder(raw: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    train(raw, folder := tmp_path / "mine")
    corpus = load_corpus("demo").corpus
    monkeypatch.chdir(tmp_path)
    widths = {
        spec: [member.embedding_length for member in build_embeddings([spec], corpus).embeddings]
        for spec in ("mine", str(folder), "mine/", "mine#words", "mine#characters")
    }
    assert str(SubwordEmbeddings(folder)) == "SubwordEmbeddings('mine', 8)"
    assert widths == {"mine": [8] * 3, str(folder): [8] * 3, "mine/": [8] * 3, "mine#words": [8],
                      "mine#characters": [8, 8]}  # fmt: skip
    (tmp_path / "glove").mkdir()
    (tmp_path / "unfinished" / "training").mkdir(parents=True)
    with pytest.raises(FlairNasError, match=r"holds no embedding.json; its training .*embed train --resume unfinished"):
        build_embeddings(["unfinished"], corpus)
    (tmp_path / "nothing").mkdir()
    with pytest.raises(FlairNasError, match=r"nothing holds no embedding.json$"):
        build_embeddings(["nothing"], corpus)
    with pytest.raises(FlairNasError, match=r"mine#words: there is no such folder; .* without #"):
        SubwordEmbeddings("mine#words")
    (tmp_path / "glove" / "config.json").touch()
    with pytest.raises(FlairNasError, match=r"glove holds no embedding.json; if it .* write transformer:./glove"):
        build_embeddings(["./glove"], corpus)
    for spec in ("no/such", "none#words", "./glove"):
        with pytest.raises(FlairNasError, match=r"there is no folder|holds no embedding.json"):
            build_embeddings([spec], corpus)
    shutil.copytree(folder, tmp_path / "english")
    named, local = (build_embeddings([spec], corpus).embedding_length for spec in ("english", "./english"))
    assert (named, local) == (300, 24)
    shutil.copytree(folder, tmp_path / "my#text")
    assert build_embeddings(["my#text"], corpus).embedding_length == 24
    with pytest.raises(FlairNasError, match=r"'mine#chars': the parts of a folder are #words and #characters"):
        build_embeddings(["mine#chars"], corpus)
    with pytest.raises(FlairNasError, match="are given twice"):
        build_embeddings(["mine", "mine/#words"], corpus)
    shutil.copytree(folder, tmp_path / "other")
    (tmp_path / "other" / "forward.safetensors").unlink()
    with pytest.raises(FlairNasError, match=r"forward.safetensors: cannot be read .*; copy the folder again"):
        build_embeddings(["other"], corpus)
    about = json.loads((tmp_path / "other" / ABOUT).read_text())
    about["files"] = {name: checksum for name, checksum in about["files"].items() if name != TABLE}
    (tmp_path / "other" / ABOUT).write_text(json.dumps(about))
    for refused in (lambda: build_embeddings(["other#words"], corpus), lambda: SubwordEmbeddings("other")):
        with pytest.raises(FlairNasError, match="was made without words|has no word vectors"):
            refused()
