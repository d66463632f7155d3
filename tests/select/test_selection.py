"""A selection from end to end: small taggers on a real corpus, in this process where no other is asked for."""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from select_jobs import run_jobs_here
from small_tagging import write_corpus

from flair_nas.errors import FlairNasError
from flair_nas.experiments import tagging_task
from flair_nas.experiments.counts import count_file, f1, pack_counts
from flair_nas.experiments.jobs import Job, Outcome
from flair_nas.experiments.ledger import Ledger
from flair_nas.experiments.local_pool import LocalPool
from flair_nas.experiments.successive_halving import Rule
from flair_nas.experiments.tasks import TAGGING, Task
from flair_nas.genotype import random_genotype
from flair_nas.library.layer_spec import parse_layer_spec, to_layer_spec
from flair_nas.library.named import load_genotype
from flair_nas.runs.duration import parse_time
from flair_nas.runs.run import RunStopped
from flair_nas.select.candidates import (
    Candidate,
    Layer,
    make_candidates,
    matched_lstm,
    named_layers,
    random_layers,
)
from flair_nas.select.clock import Clock, Pace, Workload, makespan, mean_pace
from flair_nas.select.config import SelectConfig
from flair_nas.select.report import (
    Answer,
    Scored,
    explain_answer,
    make_answer,
    recommend,
    summarize_answer,
)
from flair_nas.select.selection import select_layer
from flair_nas.tagging.prediction import load_tagger


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_corpus(tmp_path_factory.mktemp("corpus"))


@pytest.fixture(autouse=True)
def early(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compare taggers early, at epochs 1, 2 and 4 of 4."""
    monkeypatch.setitem(TAGGING.__dict__, "rule", Rule(0.2, 0.5))


@pytest.fixture
def jobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    return run_jobs_here(monkeypatch, tmp_path)


def settings(corpus: str, **changes: Any) -> SelectConfig:
    given: dict[str, Any] = {
        "corpus": corpus, "embeddings": ["one-hot"], "hidden_size": 8, "batch_size": 8, "learning_rate": 1.0,
        "epochs": 4, "locked_dropout": 0.0, "random": 1, "candidates": ["tanh0-tanh1"], "seeds": [1, 2], "rates": [1.0],
        "fresh_seeds": 1, "match": False, "workers": 1, "device": "cpu",
    }  # fmt: skip
    return SelectConfig(**(given | changes))


def ledger_of(out: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((out / "ledger.json").read_text())
    return found


def untimed(runs: dict[str, Any]) -> dict[str, Any]:
    return {
        name: {k: v for k, v in run.items() if not k.endswith(("seconds", "memory_mb"))} for name, run in runs.items()
    }


@pytest.mark.slow
def test_the_best_comes_to_the_end_with_the_baseline(
    corpus: str, tmp_path: Path, jobs: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = select_layer(settings(corpus), tmp_path / "out")
    runs = ledger_of(tmp_path / "out")["runs"]
    trained = {name: len(run["dev"]) for name, run in runs.items()}
    (lstm,) = {name.rpartition("-seed")[0] for name in runs if name.startswith("lstm")}
    finalists = {name.rpartition("-seed")[0] for name in runs if name.endswith("seed2")}
    winner = found.answer.winner
    assert lstm in finalists and winner.candidate.name in finalists and len(finalists) == 2
    first = {name.removesuffix("-seed1"): run["dev_loss"] for name, run in runs.items() if name.endswith("seed1")}
    assert len(first) == 3 and all(min(losses) > 0 for losses in first.values())
    others = sorted((name for name in first if name != lstm), key=lambda name: first[name][0])
    second = [name for name in others if len(first[name]) >= 2]  # who came to the second rung, after two epochs
    assert second == others[: len(second)]
    assert finalists - {lstm} == {min(second, key=lambda name: min(first[name][:2]))}
    assert all(trained[f"{name}-seed{seed}"] == 4 for name in finalists for seed in (1, 2))
    assert all(trained[f"{name}-seed1"] == (2 if name in second else 1) for name in set(first) - finalists)
    assert {name for name, run in runs.items() if "counts" in run} == {f"{name}-seed3" for name in finalists}
    test = runs[f"{winner.candidate.name}-seed3"]["test"]
    assert found.answer.probability is not None and found.answer.probability >= 0.5
    assert found.answer.part == "test" and found.answer.fresh and winner.figure == pytest.approx(test)
    low, high = winner.interval
    assert low <= winner.figure <= high
    assert found.answer.other is not None and found.answer.interval is not None
    low, high = found.answer.interval
    assert low <= winner.figure - found.answer.other.figure <= high
    assert load_tagger(tmp_path / "out").tag_type == "ner"
    kept = ledger_of(tmp_path / "out")["runs"][found.recommended.run(1)]["parameters"]
    assert sum(weight.numel() for weight in load_tagger(tmp_path / "out").rnn.parameters()) == kept
    assert found.report == (tmp_path / "out" / "report.md").read_text() and winner.candidate.layer.name in found.report


def test_the_seeds_that_judge_are_others_than_those_that_choose() -> None:
    assert SelectConfig().fresh() == [4, 5, 6]
    assert SelectConfig(seeds=[7, 2], fresh_seeds=2).fresh() == [1, 3]
    with pytest.raises(FlairNasError, match="fresh_seeds"):
        SelectConfig(fresh_seeds=0)


def test_a_slow_first_epoch_does_not_set_the_pace() -> None:
    runs = [{"seconds": seconds, "around_seconds": 2.0} for seconds in ([30.0, 10.0], [40.0, 20.0, 20.0], [50.0])]
    assert mean_pace(runs[:2]) == Pace(15.0, 2.0) and mean_pace(runs[2:]) == Pace(50.0, 2.0)


def test_the_rest_from_a_rung_on_is_what_is_left_of_the_whole(corpus: str, tmp_path: Path) -> None:
    clock = Clock(settings(corpus, epochs=20, rates=[1.0]), Ledger(tmp_path / "ledger.json"), 1)

    def remaining(candidates: int, rung: int = 0) -> float:
        return clock.remaining(Workload(candidates, Pace(1.0, 0.0), [0, 0, 0, 0]), 2, rung)

    whole = remaining(16)
    assert whole == 16 * 4 + 8 * 4 + 4 * 8 + 2 * 4 + 4 * 20  # rungs at 4, 8, 16 and 20, then two fresh seeds of two
    assert remaining(8, 1) == whole - 16 * 4
    assert remaining(2, 3) == 2 * 4 + 4 * 20


def test_what_is_done_takes_no_time(corpus: str, tmp_path: Path) -> None:
    clock, pace = Clock(settings(corpus, epochs=20, rates=[1.0]), Ledger(tmp_path / "ledger.json"), 1), Pace(1.0, 10.0)
    assert clock.remaining(Workload(16, pace, [16, 8, 4, 2], 2), 1) == 0
    assert clock.remaining(Workload(16, pace, [16, 8, 4, 2], 1), 1) == 30
    # one more came, which may be the best of the others: a fresh seed of it
    assert clock.remaining(Workload(17, pace, [16, 9, 5, 3], 2), 1) == 14 + 30


def test_side_by_side_each_worker_takes_the_next() -> None:
    assert makespan([], 2) == 0 and makespan([3.0], 2) == 3
    assert makespan([2.0, 2.0, 2.0], 2) == 4 and makespan([5.0, 1.0, 1.0, 1.0], 2) == 5


def test_on_the_way_runs_are_compared_by_their_loss() -> None:
    run = {"dev": [0.0, 39.7, 13.1], "dev_loss": [0.5, 0.31, 0.36]}
    assert TAGGING.early_cost(run, 1) == 0.5 and TAGGING.early_cost(run, 3) == 0.31
    assert TAGGING.cost(run, 3) == pytest.approx(-39.7, abs=1e-6)
    unknown = run | {"dev_loss": [0.0, 0.0, 0.0]}  # with labels that are in dev alone there is none
    assert TAGGING.early_cost(unknown, 1) == 0 and TAGGING.early_cost(unknown, 3) == -39.7


@pytest.mark.slow
def test_a_selection_that_is_stopped_goes_on_and_repeats_nothing(
    corpus: str, tmp_path: Path, jobs: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    select_layer(settings(corpus), tmp_path / "whole")
    whole, count = ledger_of(tmp_path / "whole"), len(jobs)
    working = LocalPool.run

    def stopped_after(done: int) -> None:
        def run(*given: Any) -> Iterator[Outcome]:
            nonlocal done
            for outcome in working(*given):
                if outcome.job.work is not tagging_task.estimate:  # of which nothing is left
                    if done == 0:
                        raise KeyboardInterrupt  # the tagger is trained, and nobody has noted it
                    done -= 1
                yield outcome

        monkeypatch.setattr(LocalPool, "run", run)

    for done in (1, 2, 1, 100):
        jobs.clear()
        stopped_after(done)
        if done == 100:
            select_layer(settings(corpus), tmp_path / "out")
        else:
            with pytest.raises(RunStopped, match="go on with: flair-nas select --resume"):
                select_layer(settings(corpus), tmp_path / "out")
    assert untimed(ledger_of(tmp_path / "out")["runs"]) == untimed(whole["runs"])
    reports = [(tmp_path / name / "report.md").read_text().splitlines()[2] for name in ("whole", "out")]
    assert reports[0] == reports[1]
    shutil.rmtree(tmp_path / "whole" / "runs")
    with pytest.raises(FlairNasError, match=r"model\.pt, the model to keep, is missing; .*delete ledger\.json and"):
        select_layer(settings(corpus), tmp_path / "whole")
    jobs.clear()
    more = select_layer(settings(corpus, candidates=["tanh0-tanh1", "gru"], budget="3h"), tmp_path / "out")
    assert 0 < len(jobs) < count and "gru" in more.report and not any(name.startswith("tanh0") for name in jobs[:1])


@pytest.mark.slow
def test_cells_that_are_searched_on_the_corpus_are_candidates(
    corpus: str, tmp_path: Path, jobs: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # the layer with gates has the most weights; on test the baseline finds nothing, the other one all
    monkeypatch.setattr(Task, "cost", lambda self, run, epochs: float(-run["parameters"]))
    counts = itertools.cycle([[0, 1, 1], [0, 1, 1], [1, 1, 1], [1, 1, 1]])  # two seeds of each
    monkeypatch.setattr("flair_nas.select.report.unpack_counts", lambda _: np.array([next(counts)] * 20))
    few: dict[str, Any] = {"search_epochs": 1, "random": 0, "epochs": 1, "seeds": [1], "fresh_seeds": 2}
    given = settings(corpus, searches=["i-darts", "ess"], **few)
    found = select_layer(given, tmp_path / "out")
    cell, gated = (load_genotype(tmp_path / f"out/searches/search-{name}-1-epochs") for name in ("i-darts", "ess"))
    assert ledger_of(tmp_path / "out")["runs"]["search-i-darts-1-epochs"] == {"genotype": cell.one_line()}
    assert gated.state_gate is not None and gated.input_gate is not None
    assert found.answer.winner.candidate.layer.name == "found by ess" and "| found by i-darts | 8 |" in found.report
    assert f'    rnn_type="{to_layer_spec(gated)}",\n    hidden_size=8,\n' in found.report
    jobs.clear()
    select_layer(given, tmp_path / "out")
    assert jobs == []

    def failing(*_: Any) -> dict[str, Any]:
        raise FlairNasError("not finite in epoch 1, step 2")

    monkeypatch.setattr(tagging_task, "search", failing)
    other = select_layer(settings(corpus, searches=["i-darts", "darts"], **few), tmp_path / "out")
    assert "search-darts-1-epochs failed: not finite in epoch 1, step 2" in other.report


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("{", "cannot be read"),
        ('{"format": "flair-nas/selection", "version": 2, "plan": {}, "runs": {}, "seconds": 0}', "version 2, is not"),
        (
            '{"format": "flair-nas/selection", "version": 1, "plan": {}, "runs": {}, "seconds": 0, "sha256": ""}',
            "changed",
        ),
    ],
)
def test_a_ledger_that_cannot_be_used_is_refused(content: str, words: str, tmp_path: Path) -> None:
    (tmp_path / "ledger.json").write_text(content)
    with pytest.raises(FlairNasError, match=f"ledger.json.*{words}"):
        Ledger(tmp_path / "ledger.json")


def test_a_ledger_that_is_missing_beside_trainings_is_refused(tmp_path: Path) -> None:
    Ledger(tmp_path / "ledger.json").begin("1h")
    (tmp_path / "runs" / "lstm-seed1").mkdir(parents=True)
    with pytest.raises(
        FlairNasError, match="ledger.json is missing, so the time .* Restore it, delete .*runs to begin"
    ):
        Ledger(tmp_path / "ledger.json").begin("1h")


def test_what_is_refused_leaves_no_folder_behind(corpus: str, tmp_path: Path, jobs: list[str]) -> None:
    for data, embeddings in ((corpus, "glov"), (str(tmp_path / "none"), "one-hot")):
        with pytest.raises(FlairNasError):
            select_layer(settings(data, embeddings=[embeddings]), tmp_path / "out")
        assert not (tmp_path / "out").exists()


def test_settings_that_make_no_selection_are_refused() -> None:
    with pytest.raises(
        FlairNasError, match="budget must be a time above 0 with its unit, such as 90m.*train_with_dev must be left out"
    ):
        SelectConfig(budget="soon", train_with_dev=True)
    assert [parse_time(text) for text in ("90m", "2h", "1.5h", "30s", "1d", "2", "h")] == [
        5400, 7200, 5400, 30, 86400, None, None,
    ]  # fmt: skip


# --- candidates ---


def test_a_name_stays_when_candidates_are_added() -> None:
    config = SelectConfig(rates=[1.0, 0.5], learning_rate=0.2)
    few, many = (make_candidates(config, random_layers(config, count)) for count in (2, 5))
    assert many[:4] == few and len({candidate.name for candidate in many}) == 10
    assert [candidate.learning_rate for candidate in few] == [0.2, 0.1, 0.2, 0.1]
    gated = random_layers(SelectConfig(gates=2), 1)
    assert [layer.name for layer in gated] == ["random-1", "random-1-gates"] and "/state=" in gated[1].rnn


def test_named_cells_have_gates_too_if_asked_for() -> None:
    names = ["i-darts-ptb,recurrent_dropout=0.25,combine=sum", "ess-ptb", "gru"]
    layers = {layer.name: layer.rnn for layer in named_layers(SelectConfig(candidates=names, gates=2))}
    assert list(layers) == ["lstm", names[0], f"{names[0]}-gates", "ess-ptb", "gru"]
    gated, numbers = parse_layer_spec(layers[f"{names[0]}-gates"])
    plain, _ = parse_layer_spec(names[0])
    assert gated.state_gate is not None and gated.state_gate.history == 2 and numbers == {"recurrent_dropout": 0.25}
    assert dataclasses.replace(gated, state_gate=None, input_gate=None, origin=plain.origin) == plain


def test_the_lstm_is_always_there_and_a_layer_comes_once(tmp_path: Path) -> None:
    def names(**changes: Any) -> list[str]:
        return [layer.name for layer in named_layers(SelectConfig(**changes))]

    assert names(rnn="gru", candidates=["rnn"]) == ["gru", "lstm", "rnn"]
    assert names(candidates=["LSTM", "gru", "GRU", "tanh0", "tanh0:1"]) == ["lstm", "gru", "tanh0"]
    random_genotype(1).save(tmp_path / "cell.json")
    config = SelectConfig(candidates=[str(tmp_path / "cell.json")])
    before = make_candidates(config, named_layers(config))
    random_genotype(2).save(tmp_path / "cell.json")
    after = make_candidates(config, named_layers(config))
    assert before[:2] == after[:2] and before[2].name != after[2].name  # another cell is another run
    with pytest.raises(FlairNasError, match="rates must be different ones"):
        SelectConfig(rates=[1.0, 1.0])
    with pytest.raises(FlairNasError, match="at_most_seconds or gates must be left out"):
        SelectConfig(gates=2, at_most_seconds=1.0)


@pytest.mark.slow
@pytest.mark.parametrize("rnn", ["lstm", "tanh0", "sru"])
def test_parameters_are_counted_by_what_the_layer_reads(rnn: str, corpus: str, tmp_path: Path) -> None:
    config = settings(corpus, reproject=5, epochs=1)
    run = tagging_task.train(config.one(rnn=rnn) | tagging_task.seeded(1), str(tmp_path), False)
    assert tagging_task.counter(tagging_task.read(config.one()))(config.one(rnn=rnn)) == run["parameters"]
    assert (
        run["parameters"]
        < tagging_task.counter(tagging_task.read(config.one()))(config.one(rnn=rnn, reproject=True)) / 2
    )


def test_the_matched_lstm_has_as_many_parameters_as_the_largest_layer(corpus: str) -> None:
    config = SelectConfig(corpus=corpus, embeddings=["one-hot"], hidden_size=20)
    count = tagging_task.counter(tagging_task.read(config.one()))
    layers = [Layer("lstm", "lstm", 20), Layer("i-darts-ptb", "i-darts-ptb", 20)]
    matched = matched_lstm(config, count, layers)
    assert matched is not None and matched.hidden_size > 20
    sizes = [count(config.one(rnn=layer.rnn, hidden_size=layer.hidden_size)) for layer in (matched, layers[1])]
    assert sizes[0] == pytest.approx(sizes[1], rel=0.05)
    assert matched_lstm(config, count, layers[:1]) is None


# --- the answer ---


LSTM, GRU = (Candidate(Layer(name, name, 256), 0.1, name) for name in ("lstm", "gru"))


@pytest.mark.parametrize(
    ("of_gru", "winner", "words"),
    [
        (46, "gru", "gru is better than lstm by 6.00 ("),
        (34, "lstm", "lstm is better than gru by 6.00 ("),
        (40, "lstm", "They are level ("),
    ],
    ids=["ahead", "behind", "level"],
)
def test_the_answer_is_the_better_one_and_the_baseline_if_they_are_level(of_gru: int, winner: str, words: str) -> None:
    def runs(right: int) -> list[dict[str, Any]]:
        return [{"counts": pack_counts(np.array([[right, 100, 100]] * 20)), "test": float(right)} for _ in range(3)]

    answer = make_answer(TAGGING, [LSTM, GRU], [runs(40), runs(of_gru)], [4, 5, 6], fresh=True)
    assert answer.winner.candidate.name == winner and answer.probability == (0.5 if of_gru == 40 else 1.0)
    text = explain_answer(answer, SelectConfig())
    assert words in text and "over 3 fresh seeds and sentences" in text
    assert recommend(answer, SelectConfig()).layer.name == winner
    assert summarize_answer(answer, SelectConfig()).startswith(f"{'Take' if winner == 'gru' else 'Keep'} {winner}: ")


def test_the_answer_says_how_sure_it_is() -> None:
    scored = Scored(GRU, 41.5, (39.0, 42.0)), Scored(LSTM, 40.0, (39.0, 41.0))
    for judges, probability, fresh, verdict in [
        ((4, 5, 6), 0.97, True, "Take gru: it is better than lstm by 1.50 F1, with a probability of 0.97."),
        ((4, 5, 6), 0.94, True, "Keep lstm: gru is ahead by 1.50 F1, with a probability of 0.94, where 0.95 would"),
        ((4,), 0.99, True, "Undecided, so keep lstm: one seed of each does not tell which layer is better."),
        ((1, 2), 0.96, False, "Take gru: "),
    ]:
        answer, config = Answer("test", judges, *scored, (0.1, 2.0), probability, fresh), SelectConfig()
        text, takes = explain_answer(answer, config), verdict.startswith("Take")
        assert summarize_answer(answer, config).startswith(verdict)
        assert recommend(answer, config) == (GRU if takes else LSTM)
        assert ("fresh seed" in text) is (fresh and len(judges) > 1) and ("sentences alone" in text) is (
            len(judges) == 1
        )
        assert ("`--resume` once with `--fresh-seeds 10" in text) is (len(judges) == 3 and probability < 0.95)
        assert ("To settle it" in text) is not takes
        assert ("with `--budget 240m" in text) is (len(judges) == 1)  # as there was no time for 3
    ten = Answer("test", tuple(range(4, 14)), *scored, (0.1, 2.0), 0.94)
    assert "--fresh-seeds 20 " in explain_answer(ten, SelectConfig(fresh_seeds=10))


@pytest.mark.parametrize("judges", [(4,), (4, 5)])
def test_where_all_have_found_nothing_none_is_ahead(judges: tuple[int, ...]) -> None:
    runs = [{"counts": pack_counts(np.array([[0, 0, 100]] * 20)), "test": 0.0} for _ in judges]
    for candidates in ([LSTM, GRU], [LSTM]):
        answer = make_answer(TAGGING, candidates, [runs] * len(candidates), judges, fresh=True)
        assert explain_answer(answer, SelectConfig()).startswith("Train longer (--epochs 80, in another folder)")
        assert summarize_answer(answer, SelectConfig()).startswith(
            "Undecided: no layer has learnt anything, as F1 is 0"
        )


def test_no_figure_of_an_interval_is_beyond_what_there_can_be() -> None:
    lstm = Candidate(Layer("lstm", "lstm", 256), 0.1, "lstm")
    counts = [pack_counts(np.array([[right, 1, 1]] * 20)) for right in (1, 0, 1)]
    runs = [{"counts": of_seed, "test": 0.0} for of_seed in counts]
    answer = make_answer(TAGGING, [lstm, dataclasses.replace(lstm, name="gru")], [runs, runs], [4, 5, 6], fresh=True)
    assert answer.winner.figure == pytest.approx(200 / 3) and answer.winner.interval == (0.0, 100.0)


# --- counts ---


def test_counts_are_those_of_strict_entities(tmp_path: Path) -> None:
    rows = "Ada B-PER B-PER\nByron I-PER O\nin O O\nOslo B-LOC B-LOC\n\nAda B-PER B-PER\n\nand O B-LOC\n\n"
    (tmp_path / "test.txt").write_text(rows.replace(" ", "\t").replace("Byron", "Lady Byron"))
    counts = count_file(tmp_path / "test.txt", spans=True)
    assert counts.tolist() == [[1, 2, 2], [1, 1, 1], [0, 1, 0]]
    assert float(f1(counts.sum(0))) == pytest.approx(100 * 2 * 2 / (4 + 3))
    assert count_file(tmp_path / "test.txt", spans=False).tolist() == [[3, 4, 4], [1, 1, 1], [0, 1, 1]]


def test_labels_may_have_blanks(tmp_path: Path) -> None:
    (tmp_path / "test.txt").write_text("Lady Ada\tB-first name\tB-first name\nsaw\tO\tB-first name\n\n")
    assert count_file(tmp_path / "test.txt", spans=True).tolist() == [[1, 2, 1]]


@pytest.mark.slow
def test_a_run_goes_on_in_a_process_with_another_number_of_threads(
    corpus: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Go on as a selection with fewer processes does."""
    monkeypatch.setenv("FLAIR_NAS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("FLAIR_NAS_KERNELS", "columns")
    losses: list[list[float]] = []
    for threads, epochs in ((1, 1), (2, 2)):
        config = settings(corpus, epochs=epochs)
        (lstm,) = make_candidates(config, named_layers(settings(corpus, candidates=["lstm"])))
        job = Job("run", tagging_task.train, (lstm.settings(config, 1, epochs), str(tmp_path / "run"), False))
        with LocalPool(1, threads=threads) as pool:
            (outcome,) = pool.run([job])
        losses.append(outcome.result["dev_loss"])
    assert len(losses[1]) == 2 and losses[1][:1] == losses[0] and all(map(math.isfinite, losses[1]))
