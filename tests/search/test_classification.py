"""Searches whose model is a Flair classifier: what learns, its figure, resuming, the command, what it is good for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from flair.data import Sentence
from small_tagging import write_classes

from flair_nas import DocumentRNNEmbeddings, load_genotype
from flair_nas.cli import main
from flair_nas.errors import FlairNasError
from flair_nas.runs.metric import ACCURACY, F1
from flair_nas.search.bilevel import mean_gradients, model_weights
from flair_nas.search.flair_config import ClassificationSearchConfig
from flair_nas.search.objectives.classification import ClassificationObjective, build, read
from flair_nas.search.processes import make_accelerator
from flair_nas.search.trainer import search_genotype
from flair_nas.tagging.data.classification import load_classes
from flair_nas.tagging.data.corpora import sentences_of
from flair_nas.tagging.data.embeddings import build_embeddings

pytestmark = pytest.mark.usefixtures("columns_without_pictures")


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_classes(tmp_path_factory.mktemp("classes") / "corpus")


def settings(corpus: str, **changes: Any) -> ClassificationSearchConfig:
    given: dict[str, Any] = {
        "corpus": corpus, "embeddings": ["one-hot", "char"], "hidden_size": 6, "nodes": 2, "batch_size": 4, "epochs": 2,
        "learning_rate": 0.5, "dropout": 0.0, "device": "cpu",
    }  # fmt: skip
    return ClassificationSearchConfig(**(given | changes))


def objective_of(corpus: str, **changes: Any) -> ClassificationObjective:
    config = settings(corpus, **changes)
    return build(config, read(config), make_accelerator("cpu", "float32"))


def test_the_loss_is_flairs_and_gradients_of_parts_add_up(corpus: str) -> None:
    objective = objective_of(corpus, reproject=False)
    objective.module.eval()
    (batch,) = objective.training_batch(1, 0).parts
    total, count = objective.model.forward_loss(batch)
    assert count == len(batch) == 4
    torch.testing.assert_close(objective.training_loss(batch), total)
    torch.testing.assert_close(objective.validation_loss(batch), total / 4)
    assert not any(objective.holder.name in sentence._embeddings for sentence in batch)
    whole = mean_gradients(objective, objective.training_loss, [batch], model_weights(objective))[1]
    objective.parts = 2
    parted = mean_gradients(objective, objective.training_loss, [batch[:2], batch[2:]], model_weights(objective))[1]
    with objective.supernet.batch_statistics():  # the statistics that are kept are of no part
        torch.testing.assert_close(whole, parted, rtol=1e-4, atol=1e-5)
    learned = {id(parameter) for parameter in model_weights(objective)}
    assert {id(p) for p in objective.model.parameters()} == learned | {id(objective.supernet.ahead.arch)}


@pytest.mark.slow
def test_the_architecture_learns_on_a_class_that_only_dev_has(tmp_path: Path) -> None:
    folder = Path(write_classes(tmp_path / "corpus"))
    dev = folder / "dev.txt"
    dev.write_text(dev.read_text().replace("__label__ALPHA", "__label__GAMMA"))
    found = search_genotype(settings(str(folder), held_out=0.0), tmp_path / "run", progress=False)
    assert len(found.history) == 2


def test_gradients_of_one_pass_outlive_the_next(corpus: str) -> None:
    objective = objective_of(corpus)
    batches = [objective.training_batch(1, step).parts[0] for step in range(2)]
    objective.training_loss(batches[0]).backward()
    weight = objective.supernet.ahead.weight_nodes
    assert weight.grad is not None
    before = weight.grad.clone()
    objective.training_loss(batches[1])  # Flair has its layer forget gradients here
    assert torch.equal(weight.grad, before)


@pytest.mark.slow
def test_a_classifier_is_learned_and_its_cell_used_in_flair(corpus: str, tmp_path: Path) -> None:
    config = settings(corpus, epochs=8, hidden_size=12, held_out=0.0, embeddings=["one-hot"])
    found = search_genotype(config, tmp_path / "run", progress=False)
    assert found.metric is ACCURACY
    assert max(line["dev_accuracy"] for line in found.history) > 85
    assert found.genotype.origin["corpus"] == "corpus, 24 training sentences"
    data = load_classes(corpus)
    embeddings = build_embeddings(["one-hot"], data.corpus).embeddings
    documents = DocumentRNNEmbeddings(embeddings, rnn_type=str(tmp_path / "run" / "genotype.json"), hidden_size=5)
    sentence = Sentence("alpha word1")
    documents.embed(sentence)
    assert sentence.embedding.shape == (5,) and documents.rnn.genotype.nodes == found.genotype.nodes


def test_classes_have_to_surpass_the_most_frequent_one(corpus: str) -> None:
    objective = objective_of(corpus)
    labels = [sentence.get_label("class").value for sentence in objective.dev]
    key, name, cost = objective.guess()
    most = name.removeprefix("the label ").removesuffix(" alone")
    assert key == "majority" and cost == pytest.approx(-100 * labels.count(most) / len(labels)) and cost < 0


def test_texts_with_several_classes_are_judged_by_f1(tmp_path: Path) -> None:
    objective = objective_of(write_classes(tmp_path / "corpus", several=True))
    assert objective.metric is F1 and objective.model.multi_label
    found = objective.evaluate()
    assert 0 <= found.value <= 100 and found.loss > 0


def test_the_command(
    corpus: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("flair_nas.search.trainer.explain_failure", lambda *_: "")  # one epoch may learn nothing
    small = "--embeddings one-hot --hidden-size 6 --nodes 2 --batch-size 4 --epochs 1 --device cpu"
    command = ["search", "-q", "--objective", "classification", "--corpus", corpus, *small.split()]
    assert main([*command, "--out", str(tmp_path / "run")]) == 0
    said = capsys.readouterr().out
    assert "the supernet's valid accuracy is " in said and 'DocumentRNNEmbeddings(..., rnn_type="' in said
    assert load_genotype(tmp_path / "run").one_line() in said
    assert main([*command, "--columns", "text=0,ner=1", "--out", str(tmp_path / "other")]) == 2
    assert "--columns: only with --objective tagging" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("line", "words", "labels"),
    [
        ("__label__A one two", ["one", "two"], ["A"]),
        ("__label__A\t__label__B\tone", ["one"], ["A", "B"]),
        ("   __label__A one", ["one"], ["A"]),
        ("__label__A    __label__B   one", ["one"], ["A", "B"]),
        ("\ufeff__label__A one", ["one"], ["A"]),
        ("__label__A\u00a0one", ["one"], ["A"]),
        ("__label__A __label__A one", ["one"], ["A"]),
    ],
)
def test_no_label_is_read_as_a_word_and_no_text_is_left_out(
    line: str, words: list[str], labels: list[str], tmp_path: Path
) -> None:
    folder = Path(write_classes(tmp_path / "corpus"))
    (folder / "train.txt").write_text(f"{line}\n\n__label__B two\n", encoding="utf-8")
    first, second = sentences_of(load_classes(folder).corpus.train)
    assert [token.text for token in first] == words
    assert [label.value for label in first.get_labels("class")] == labels
    assert [token.text for token in second] == ["two"]


@pytest.mark.parametrize(
    ("part", "content", "message"),
    [
        ("train", None, "has no train.txt"),
        ("train", "__label__A one two\nthree\n", r"train.txt:2: 'three' must be __label__NAME and a text"),
        ("dev", "__label__A __label__B\n", "dev.txt:1: '__label__A __label__B' must be __label__NAME and a text"),
        ("dev", "\n", "dev.txt is empty"),
        ("train", "__label__A one\n__label__ two\n", "train.txt:2: '__label__ two' must be __label__NAME and a text"),
        ("train", "__label__A one __label__B two\n", "train.txt:1: '__label__B' is in the text; write all labels"),
        ("train", "__label__A \u200c\n", "train.txt:1: .* must be __label__NAME and a text"),
    ],
)
def test_files_that_cannot_be_used(part: str, content: str | None, message: str, tmp_path: Path) -> None:
    folder = Path(write_classes(tmp_path / "corpus"))
    (folder / f"{part}.txt").unlink()
    if content is not None:
        (folder / f"{part}.txt").write_text(content)
    with pytest.raises(FlairNasError, match=message):
        load_classes(folder)


def test_a_folder_may_be_relative_and_lines_hold_any_character(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = Path(write_classes(tmp_path / "corpus"))
    with (folder / "train.txt").open("a", encoding="utf-8") as lines:
        lines.write("__label__ALPHA one\u2028two\x0bthree\n")
    monkeypatch.chdir(tmp_path)
    data = load_classes("corpus")
    assert data.name == "corpus" and len(data.corpus.train) == 25
    assert data.sha256 == load_classes(folder).sha256
    (folder / "train.txt").write_text("__label__A one\u2028two\nthree\n", encoding="utf-8")
    with pytest.raises(FlairNasError, match=r"train.txt:2: 'three'"):
        load_classes("corpus")


def test_one_class_and_no_folder_are_refused(tmp_path: Path) -> None:
    folder = Path(write_classes(tmp_path / "corpus"))
    for part in ("train", "dev"):
        (folder / f"{part}.txt").write_text("__label__A one two\n" * 8)
    with pytest.raises(FlairNasError, match="corpus has 1 class; there must be two at least"):
        objective_of(str(folder))
    with pytest.raises(FlairNasError, match="is no folder: give one with train.txt and dev.txt"):
        load_classes("")
