"""The health of a search: what its figures say, and the plain sentence at its end."""

from __future__ import annotations

import json
import math
from collections import Counter, deque
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from small_search import KINDS, objective_of, small, write_text

from flair_nas.cli import main
from flair_nas.genotype import Genotype
from flair_nas.runs.metric import F1, PERPLEXITY, Guess
from flair_nas.search.config import SearchConfig
from flair_nas.search.health import (
    EPOCHS,
    explain_failure,
    judge_decisions,
    judge_scores,
    judge_weights,
    measure_health,
)
from flair_nas.search.objectives.text import TextObjective
from flair_nas.search.trainer import search_genotype
from flair_nas.settings.resolve import read_mapping, resolve
from flair_nas.storage.resources import resource_path
from flair_nas.supernet import derive
from flair_nas.supernet.derive import margins

pytestmark = pytest.mark.slow


def paths(parts: Sequence[str], steps: int = 4) -> dict[str, list[torch.Tensor]]:
    """Weights of each part that move on in one direction."""
    return {name: [torch.full((2,), 0.005 * step) for step in range(steps + 1)] for name in parts}


def test_drift_needs_two_steps() -> None:
    genotype = Genotype.parse("tanh0")
    for steps, drift in ((0, None), (1, None), (4, pytest.approx(1))):
        health = measure_health(paths(["intra"], steps), {"intra": [0.05, 0.2]}, genotype, deque())
        assert health["parts"]["intra"]["drift"] == drift and health["clear"] == 0.5
        assert not health["parts"]["intra"]["drifts"]  # two weights are too few to tell it from chance


def test_changed_nodes_are_counted() -> None:
    genotypes = [
        Genotype.parse(text)
        for text in ("identity0-tanh0/state=tanh", "identity0-tanh1/state=tanh", "identity0-relu1+identity0/state=relu")
    ]
    for parts, expected in ((["intra", "inter"], [None, 1, 2, 2, 2]), (["inter"], [None, 0, 1, 1, 1])):
        earlier: deque[list[str]] = deque(maxlen=EPOCHS)
        margins: dict[str, list[float]] = {name: [] for name in parts}
        found = [measure_health(paths(parts), margins, genotypes[min(epoch, 2)], earlier) for epoch in range(5)]
        assert [health["changed"] for health in found] == expected
        assert [health["over"] for health in found] == [0, 1, 2, 3, 3]
        assert {health["nodes"] for health in found} == {3 if len(parts) == 2 else 1}


@pytest.mark.parametrize("relaxation", ["darts", "i-darts"])
def test_margins_are_those_between_the_kept_edge_and_the_next(relaxation: str) -> None:
    arch = torch.full((3, 5), -20.0)
    arch[0, 1], arch[0, 2] = 0.0, math.log(0.8)
    arch[1, 3], arch[2, 4], arch[2, 1] = math.log(0.5), 0.0, -20.0  # node 2 reads node 1, then node 0
    if relaxation == "darts":  # each pair has a softmax of its own: drop makes them comparable
        arch[1, 0] = math.log(0.5)
    first, second = margins(arch, relaxation)
    assert first == pytest.approx(0.2, abs=1e-6) and second == pytest.approx(0.5, abs=1e-6)
    assert margins(torch.zeros(3, 5), relaxation) == [0, 0]


def test_identity_can_be_limited() -> None:
    arch = torch.zeros(6, 5)
    arch[0, 4], arch[0, 2] = 3.0, 2.9  # node 1: identity, closely before relu
    arch[2, 4] = 5.0  # node 2: identity of node 1, clearly
    arch[3, 4], arch[4, 1] = 4.0, 2.0  # node 3: identity of s_0, before tanh of node 1
    for most, expected in (
        (None, "identity0-identity1-identity0"),
        (3, "identity0-identity1-identity0"),
        (2, "relu0-identity1-identity0"),
        (1, "relu0-identity1-tanh1"),
        (0, "relu0-tanh0-tanh1"),
    ):
        assert Genotype(derive(arch, "i-darts", most_identity=most)).one_line() == expected
    two = derive(arch, "i-darts", 2, most_identity=0)
    assert all(edge.op != "identity" for edges in two for edge in edges)


FIGURES: dict[str, Any] = {
    "parts": {"intra": {"drift": 0.0, "drifts": False}}, "clear": 1.0, "changed": 0, "over": 3, "nodes": 8,
}  # fmt: skip


def sentence(losses: Sequence[float | None] = (5.0, 4.0), **changes: Any) -> str:
    return judge_weights({**FIGURES, **changes}, losses)  # type: ignore[typeddict-item]


def test_the_verdict_is_one_plain_sentence() -> None:
    assert sentence().startswith("settled")
    assert "in 75% of its choices the kept edge is less than 10% ahead" in sentence(clear=0.25)
    assert "close to arbitrary: 3 of its 8 nodes changed in the last 2 epochs" in sentence(changed=3, over=2)
    assert sentence(changed=2).startswith("settled")
    assert "one epoch does not tell" in sentence(changed=None)
    moving = {"drift": 0.9, "drifts": True}
    assert "still move" in sentence(parts={"inter": moving})
    assert "its supernet got worse: a valid loss of 7.86 at the end, of 5.90 at its best" in sentence((5.96, 5.9, 7.86))
    assert "a valid loss of inf at the end" in sentence((5.96, None))
    assert "its training loss rose from 5.00 to 5.50" in judge_weights(FIGURES, [5.0, 4.0], [5.0, 5.5])  # type: ignore[arg-type]
    assert judge_weights(FIGURES, [5.0, 4.0], [5.0, 4.5]).startswith("settled")  # type: ignore[arg-type]
    for said in (sentence(), sentence(clear=0.25)):
        assert said.endswith("flair-nas tune compares it with random cells and the LSTM")
    assert "3 decisions, the valid loss rises by 0.2000 more" in judge_decisions([0.3, 0.1, 0.2])
    said = judge_scores([5, 4, 4.5, math.inf], "loss")
    assert "of the 3 candidates" in said and "the next is behind it by 0.5000 in loss, the last by 1.0000" in said
    assert judge_scores([4.0], "loss") == judge_scores([math.inf], "loss") == ""


@pytest.mark.parametrize("kind", ["first", "joint", "inter", "decided"])
def test_every_epoch_has_its_health_and_the_result_its_verdict(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLAIR_NAS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(TextObjective, "guess", lambda *_: Guess("unigram", "word frequencies alone", 99.0))
    text = write_text(tmp_path / "text", train_lines=60, valid_lines=12)
    result = search_genotype(small(text, **KINDS[kind]), tmp_path / "run", progress=False)
    lines = [json.loads(line) for line in (tmp_path / "run" / "history.jsonl").read_text().splitlines()]
    parts = {"joint": {"intra", "inter"}, "inter": {"inter"}}.get(kind, {"intra"})
    for line, changed in zip(lines, (True, False), strict=True):
        health = line["health"]
        assert set(health["parts"]) == parts and (health["changed"] is None) == changed
        assert 0 <= health["clear"] <= 1 and health["nodes"] >= 2
        assert all(-1 <= part["drift"] <= 1 for part in health["parts"].values())
    own = judge_weights(lines[-1]["health"], *([line[key] for line in lines] for key in ("dev_loss", "train_loss")))
    assert result.verdict.startswith("decided by perturbation") if kind == "decided" else result.verdict == own
    written = Genotype.load(tmp_path / "run" / "genotype.json")
    assert written.origin["verdict"] == result.verdict and written == result.genotype
    again = search_genotype(small(text, **KINDS[kind]), tmp_path / "run", progress=False)
    assert (again.genotype, again.verdict) == (result.genotype, result.verdict)


# --- a search that learned nothing ---


@pytest.fixture
def text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FLAIR_NAS_CACHE", str(tmp_path / "cache"))
    return write_text(tmp_path / "text", train_lines=200, valid_lines=40)


def unigram_perplexity(text: Path) -> float:
    """Counts words by hand; every word of the valid part is in the training part."""
    train, valid = (
        [word for line in (text / f"{part}.txt").read_text().splitlines() for word in [*line.split(), "<eos>"]]
        for part in ("train", "valid")
    )
    counts = {**Counter(train), "<unk>": 1}
    total = sum(counts.values())
    return math.exp(-sum(math.log(counts[word] / total) for word in valid) / len(valid))


LEARNS = ("--learning-rate 5 --hidden-size 16 --nodes 2 --batch-size 8 --bptt 12 --epochs 6 --no-vary-length -q "
          "--dropout 0 --input-dropout 0 --recurrent-dropout 0 --embedding-dropout 0 --device cpu")  # fmt: skip


def run(text: Path, out: Path, capsys: pytest.CaptureFixture[str], *flags: str) -> tuple[int, str, dict[str, Any]]:
    """Returns exit code, what is printed, and the last line of the history."""
    code = main(["search", "--text", str(text), "--out", str(out), *LEARNS.split(), *flags])
    history = (out / "history.jsonl").read_text().splitlines()
    return code, capsys.readouterr().out, json.loads(history[-1])


def test_a_search_that_diverges_says_that_it_learned_nothing(
    text: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, said, last = run(text, tmp_path / "run", capsys, "--learning-rate", "1000", "--epochs", "2")
    guessed = unigram_perplexity(text)
    assert code == 1 and last["unigram_perplexity"] == pytest.approx(guessed)
    first = said.splitlines()[0]
    assert first.startswith("This search learned nothing: its valid perplexity is ")
    assert f"that of word frequencies alone is {guessed:.1f}. " in first and "--learning-rate" in first
    assert "tag train" not in said and "tune" not in said
    assert Genotype.load(tmp_path / "run" / "genotype.json").origin["verdict"] == first
    assert main(["search", "-q", "--resume", str(tmp_path / "run")]) == 1
    assert capsys.readouterr().out.splitlines()[0] == first


def test_a_search_that_learns_surpasses_the_word_frequencies(
    text: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, said, last = run(text, tmp_path / "run", capsys)
    assert code == 0 and last["dev_perplexity"] < 0.9 * last["unigram_perplexity"]
    assert "next: flair-nas tag train" in said and "learned nothing" not in said


def test_what_to_change_follows_from_the_training_loss() -> None:
    guess = Guess("unigram", "word frequencies alone", 6.0)

    def explain(*losses: float, cost: float = 6.5) -> str:
        return explain_failure(cost, guess, PERPLEXITY, losses)

    assert explain(7.0, 8.0, cost=5.9) == explain_failure(None, guess, PERPLEXITY, []) == ""
    assert explain_failure(5.9, None, PERPLEXITY, []) == ""
    assert "rose from 7.00 to 8.00: give it a lower --learning-rate" in explain(7.0, 8.0)
    said = explain(7.0, 6.1)
    assert "fell from 7.00 to 6.10, and is still above the 6.00 of word frequencies alone: give it a lower" in said
    assert "fell from 7.00 to 5.50: see whether the valid part" in explain(7.0, 5.5)
    assert "hardly fell, from 7.00 to 6.99: give it a higher" in explain(7.0, 6.99)
    said = explain_failure(0, Guess("empty", "", 0.0), F1, [7.0, 5.5])
    assert "fell from 7.00 to 5.50, so it may be too early" in said
    assert "After one epoch it may be too early" in explain(7.0, cost=math.inf)
    assert "smaller --vocabulary-size" in explain(7.0, 6.1)
    characters = Guess("unigram", "character frequencies alone", 6.0)
    assert "--vocabulary-size" not in explain_failure(6.5, characters, PERPLEXITY, [7.0, 6.1])


def test_a_search_on_characters_has_their_frequencies_to_surpass(text: Path, tmp_path: Path, capsys: Any) -> None:
    assert run(text, tmp_path / "run", capsys, "--unit=char", "--learning-rate=1000", "--epochs=1")[0] == 1
    verdict = Genotype.load(tmp_path / "run" / "genotype.json").origin["verdict"]
    assert "that of character frequencies alone is" in verdict and "vocabulary" not in verdict


@pytest.mark.parametrize("kind", ["random-shared", "halving"])
def test_every_strategy_has_something_to_surpass(
    kind: str, text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for cost, learned in ((0.0, False), (99.0, True)):
        monkeypatch.setattr(TextObjective, "guess", lambda *_: Guess("unigram", "word frequencies", cost))  # noqa: B023
        result = search_genotype(small(text, **KINDS[kind]), tmp_path / str(cost), progress=False)
        assert result.learned == learned == (not result.verdict.startswith("This search learned nothing"))


def test_sampled_cells_are_judged_by_the_word_frequencies_of_the_training_part(text: Path, tmp_path: Path) -> None:
    config = small(text, sampling="straight-through", learning_rate=1e-6, frequency_bias=False)
    result = search_genotype(config, tmp_path / "run", progress=False)
    assert result.verdict.startswith("This search learned nothing: its train perplexity is ")
    words = [*(text / "train.txt").read_text().replace("\n", " <eos> ").split()]
    counts = {**Counter(words), "<unk>": 1}
    entropy = -sum(math.log(counts[word] / sum(counts.values())) for word in words) / len(words)
    guess = objective_of(small(text)).guess("train")
    assert guess.cost == pytest.approx(entropy)


def test_the_softmax_starts_at_the_word_frequencies(text: Path) -> None:
    objective, before = (objective_of(small(text, frequency_bias=on)) for on in (True, False))
    counts = torch.tensor(objective.text.vocabulary.counts, dtype=torch.float32).clamp(min=1)
    assert torch.allclose(objective.model.decoder.bias, (counts / counts.sum()).log())
    assert not before.model.decoder.bias.any()
    assert torch.equal(objective.model.decoder.weight, before.model.decoder.weight)
    config = small(text, adaptive_cutoffs=[10])  # which has no bias
    assert objective_of(config).model.adaptive.head.bias is None


def test_a_short_text_gets_shorter_segments(text: Path) -> None:
    def objective(steps: int, **changes: Any) -> TextObjective:
        settings = {"batch_size": 4, "bptt": 20, "vary_length": False, **changes}
        return objective_of(small(text, min_steps=steps, **settings))

    words = len(objective(0).text.train)
    assert [objective(steps).bptt for steps in (0, 1, words // 40, 10_000)] == [20, 20, 10, 5]
    assert objective(words // 40).steps(1) >= words // 40
    assert objective(10_000, bptt=3).bptt == 3  # never longer than asked for
    assert "(--min-steps 0 keeps 20)" in objective(words // 40).derived
    assert "--min-steps" not in objective(1).derived


def test_small_presets_ask_for_enough_steps_and_a_bounded_vocabulary() -> None:
    presets = resource_path("presets", "search").glob("*-small.yaml")
    names = [path.stem for path in presets if read_mapping(path).get("objective", "text") == "text"]
    assert len(names) == 16
    for name in [*names, "i-darts-ptb"]:
        config = resolve(SearchConfig, kind="search", preset=name)
        types = 500 if config.unit == "char" else 30_000
        assert (config.min_steps, config.vocabulary_size) == ((600, types) if name in names else (0, None))
