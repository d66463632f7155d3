"""How a selection spends its time, on a clock of its own: runs are simulated, so that each takes what a test says."""

from __future__ import annotations

import copy
import dataclasses
import errno
import logging
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from select_jobs import run_jobs_here
from small_tagging import write_corpus

from flair_nas.errors import FlairNasError
from flair_nas.experiments import tagging_task
from flair_nas.experiments.counts import pack_counts
from flair_nas.experiments.ledger import Ledger
from flair_nas.experiments.successive_halving import Rule
from flair_nas.experiments.tasks import TAGGING
from flair_nas.library.named import bundled_names, load_genotype
from flair_nas.runs.duration import parse_time
from flair_nas.runs.run import RunStopped
from flair_nas.select.candidates import SMALL_CELLS, list_usual_layers, random_layers
from flair_nas.select.clock import Clock, Workload
from flair_nas.select.config import SelectConfig
from flair_nas.select.selection import Selection, estimate_selection, select_layer


class World:
    """Time and F1 of simulated runs: 10 s an epoch and 50, unless a test changes them."""

    def __init__(self) -> None:
        self.ledger = Ledger(Path("none"))
        self.embedding = 0.0  # seconds
        self.usual, self.pace = 10.0, dict[str, float]()  # seconds an epoch, and by layer, as the run reports them
        self.slower: dict[int, float] = {}  # by seed: how many times as long it really takes
        self.f1: dict[str | tuple[str, int], float] = {}  # by layer, or layer and seed
        self.error: Callable[[str, int, bool], str | None] = lambda rnn, seed, score: None
        self.after: Callable[[str, int], None] = lambda rnn, seed: None
        self.done: list[tuple[str, int]] = []
        self.reached: dict[str, int] = {}

    def ledger_budget(self) -> float:
        """Return the seconds of the budget."""
        return parse_time(self.ledger.plan["budget"]) or 0.0

    def spend(self, seconds: float) -> None:
        """Set the time that the ledger says was spent."""
        self.ledger._earlier = seconds
        if self.ledger.path.exists():
            self.ledger.save()

    def estimate(self, given: dict[str, Any]) -> dict[str, Any]:
        """Return the time of an epoch."""
        pace = self.pace.get(given["rnn"], self.usual)
        return {"seconds": [pace], "around_seconds": 0.0, "embedding_seconds": self.embedding}

    def train(self, given: dict[str, Any], folder: str, score: bool) -> dict[str, Any]:
        """Simulate the training of a tagger."""
        rnn, (seed,), epochs = given["rnn"], given["seeds"], given["epochs"]
        if error := self.error(rnn, seed, score):
            raise FlairNasError(error)
        pace, f1 = self.pace.get(rnn, self.usual), self.f1.get((rnn, seed), self.f1.get(rnn, 50.0))
        self.ledger._earlier += (epochs - self.reached.get(folder, 0)) * pace * self.slower.get(seed, 1.0)
        self.reached[folder] = epochs
        Path(folder).mkdir(parents=True, exist_ok=True)
        (Path(folder) / "model.pt").write_bytes(b"a model")
        self.done.append((rnn, seed))
        self.after(rnn, seed)
        found = {
            "dev": [f1] * epochs, "dev_loss": [1 - f1 / 100] * epochs, "seconds": [pace] * epochs,
            "around_seconds": 0.0, "exhausted": False, "scored": score, "parameters": 7, "peak_memory_mb": 1,
        }  # fmt: skip
        counts = np.array([[round(f1), 100, 100]] * 20)
        return found | ({"test": f1, "counts": pack_counts(counts)} if score else {})


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    made, begin = World(), Ledger.begin

    def begun(ledger: Ledger, budget: str) -> None:
        made.ledger = ledger
        begin(ledger, budget)

    monkeypatch.setattr(Ledger, "begin", begun)
    monkeypatch.setattr(Ledger, "seconds", property(lambda self: self._earlier))
    run_jobs_here(monkeypatch, tmp_path)
    monkeypatch.setattr(tagging_task, "train", lambda *arguments: made.train(*arguments))
    monkeypatch.setattr(tagging_task, "estimate", lambda given: made.estimate(given))
    monkeypatch.setattr(tagging_task, "place", lambda model, folder: None)  # there is no tagger
    monkeypatch.setitem(TAGGING.__dict__, "rule", Rule(0.2, 0.5))
    return made


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_corpus(tmp_path_factory.mktemp("corpus"))


def settings(corpus: str, **changes: Any) -> SelectConfig:
    given: dict[str, Any] = {
        "corpus": corpus, "embeddings": ["one-hot"], "hidden_size": 8, "epochs": 1, "random": 0, "seeds": [1, 2],
        "candidates": ["tanh0"], "rates": [1.0], "learning_rate": 0.1, "fresh_seeds": 2, "match": False,
        "workers": 1, "device": "cpu",
    }  # fmt: skip
    return SelectConfig(**(given | changes))


def answered(found: Selection) -> tuple[str, tuple[int, ...], bool]:
    """Return the winner, the seeds that judge, and True if they are fresh."""
    return found.answer.winner.candidate.layer.name, found.answer.judges, found.answer.fresh


TWO: dict[str | tuple[str, int], float] = {"lstm": 40, "tanh0": 60, "relu0": 59, ("tanh0", 2): 20, ("relu0", 2): 90}
"""F1 by which tanh0 is the best with the first seed, and relu0 with both."""


def enough_for(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    """Let the last of the budget be enough for a number of trainings, however fast the machine is."""

    def seconds(jobs: list[float], workers: int) -> float:
        return 0.0 if len(jobs) <= count else math.inf

    monkeypatch.setattr("flair_nas.select.runs.makespan", seconds)


def test_a_finished_selection_is_the_same_when_it_is_begun_again(
    corpus: str, tmp_path: Path, world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.f1 = TWO
    for name, budget in (("all", "2h"), ("cut", "140s"), ("few", "45s")):
        given = settings(corpus, candidates=["tanh0", "relu0"], budget=budget)
        world.slower = {4: 3.0}
        found = select_layer(given, tmp_path / name)
        world.done.clear()
        caplog.clear()
        with caplog.at_level(logging.INFO, "flair_nas"):
            again = select_layer(given, tmp_path / name)
        assert world.done == [] and again.answer == found.answer and again.report == found.report
        assert "is finished, so nothing was trained" in caplog.text
        assert answered(found) == {
            "all": ("relu0", (3, 4), True), "cut": ("relu0", (3, 4), True), "few": ("tanh0", (3,), True),
        }[name]  # fmt: skip


def asks_for_much(corpus: str, budget: str, **changes: Any) -> SelectConfig:
    return settings(
        corpus, epochs=20, candidates=["tanh0", "relu0", "identity0"], random=None, rates=[1.0, 2.0], fresh_seeds=3,
        hidden_size=96, match=True, budget=budget, **changes,
    )  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(
    ("budget", "left_out"),
    [
        ("1h", ""),
        ("36m", "no random cell is compared"),
        ("34m", "no LSTM of equal size is compared"),
        ("26m", "the learning rate 0.1 alone is tried"),
        ("13m", "each layer is trained for 10 of 20 epochs, after which another may be ahead"),
        ("285s", "of the other layers only tanh0 is compared"),
    ],
)
def test_a_small_budget_leaves_out_what_it_has_no_time_for_and_says_so(
    budget: str, left_out: str, corpus: str, tmp_path: Path, world: World, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "flair_nas"):
        found = select_layer(asks_for_much(corpus, budget), tmp_path)
    trained = {rnn for rnn, _ in world.done}
    assert {"lstm", "tanh0"} <= trained and "| lstm | 96 | 0.1 |" in found.report
    assert found.answer.fresh and found.answer.seeds >= 2  # others judge than those that chose
    assert world.ledger.seconds <= 1.05 * world.ledger_budget()
    lines = [line for line in found.report.splitlines() if line.startswith("- the budget of")]
    assert (lines[-1:] == [f"- the budget of {budget} is small, so {left_out}."]) is bool(left_out)
    assert all(line.removeprefix("- ").rstrip(".") in caplog.text for line in lines)
    world.done.clear()
    again = select_layer(asks_for_much(corpus, budget), tmp_path)
    assert world.done == [] and again.report == found.report


@pytest.mark.parametrize(("budget", "few"), [("150s", 6), ("110s", 3), ("90s", 1), ("75s", 0)])
def test_random_cells_that_were_asked_for_are_halved(
    budget: str, few: int, corpus: str, tmp_path: Path, world: World
) -> None:
    found = select_layer(settings(corpus, random=6, budget=budget), tmp_path)
    cells = {6: "", 3: "only 3 random cells are compared", 1: "only 1 random cell is compared", 0: "no random cell is "}
    assert found.config.random == few and cells[few] in found.report and ("is small, so" in found.report) is (few < 6)
    assert len({rnn for rnn, _ in world.done}) == 2 + few and answered(found)[1:] == ((3, 4), True)


@pytest.mark.slow
def test_a_selection_that_was_made_smaller_is_extended_by_a_larger_budget(
    corpus: str, tmp_path: Path, world: World
) -> None:
    small = select_layer(asks_for_much(corpus, "285s"), tmp_path)
    assert small.config.epochs == 4 and small.config.candidates == ["tanh0"]
    spent = world.ledger.seconds
    same = select_layer(asks_for_much(corpus, f"{spent + 1:.0f}s"), tmp_path)  # no time for anything more
    assert same.answer == small.answer and world.ledger.seconds == spent
    large = select_layer(asks_for_much(corpus, "1h"), tmp_path)
    assert large.config == asks_for_much(corpus, "1h") and "is small, so" not in large.report
    assert large.answer.seeds == 3 and {"relu0", "identity0"} <= {rnn for rnn, _ in world.done}


@pytest.mark.slow
def test_a_budget_that_is_too_small_for_two_layers_is_refused_before_anything_is_trained(
    corpus: str, tmp_path: Path, world: World
) -> None:
    for embedding in (600.0, 0.0):
        world.embedding = embedding
        with pytest.raises(FlairNasError) as caught:
            select_layer(asks_for_much(corpus, "50s"), tmp_path / "out")
        assert world.done == [] and not (tmp_path / "out").exists()
        proposed = (
            r"lstm and tanh0 with 4 epochs and one seed need --budget (\w+)\. "
            r".* need --budget (\w+), .* --budget (\w+)$"
        )
        found = re.search(proposed, str(caught.value))
        assert found
    for name, budget in zip(("least", "judged", "whole"), found.groups()):
        judged = select_layer(asks_for_much(corpus, budget), tmp_path / name).answer
        assert (judged.fresh and judged.seeds >= 2) is (name != "least"), budget
    with pytest.raises(FlairNasError, match="too small"):
        select_layer(asks_for_much(corpus, "70s"), tmp_path / "out")


def test_random_cells_that_take_longer_than_the_first_runs_leave_time_for_fresh_seeds(
    corpus: str, tmp_path: Path, world: World
) -> None:
    """Slow down as runs do that lose a processor of their own."""

    def slow_down(rnn: str, seed: int) -> None:
        world.usual = 1.0 if len(world.done) < 3 else 4.0

    world.usual, world.after = 1.0, slow_down
    given = settings(corpus, epochs=5, random=None, fresh_seeds=3, budget="10m")
    found = select_layer(given, tmp_path)
    assert answered(found)[1:] == ((3, 4, 5), True) and world.ledger.seconds <= 600
    trained = {rnn for rnn, _ in world.done}
    assert world.ledger.plan["random"] == len(trained) - 2 > 20  # the LSTM and what is named are the others


def test_a_run_that_would_end_after_the_budget_is_not_begun(corpus: str, tmp_path: Path, world: World) -> None:
    given = settings(corpus, seeds=[1], fresh_seeds=4, budget="101s")
    for name, slower, judges in [
        ("as planned", 1.0, (2, 3, 4, 5)),
        ("slower", 2.0, (2, 3)),
        ("a little over", 1.06, (2, 3, 4, 5)),
    ]:
        world.slower = dict.fromkeys(range(2, 6), slower)
        found = select_layer(given, tmp_path / name)
        assert answered(found)[1:] == (judges, True)
        assert ("there was time for 2 of 4 fresh seeds" in found.report) is (name == "slower")
        assert world.ledger.seconds <= 1.1 * 101


def test_a_run_that_was_stopped_late_is_gone_on_with(corpus: str, tmp_path: Path, world: World) -> None:
    given = settings(corpus, seeds=[1], budget="62s")
    whole = select_layer(given, tmp_path / "whole")

    def stop(rnn: str, seed: int) -> None:
        if world.done.count((rnn, 3)) and world.done[-2][1] == 3:
            world.after = lambda rnn, seed: None
            raise KeyboardInterrupt  # it is trained, and nobody has noted that

    world.after = stop
    world.done.clear()
    with pytest.raises(RunStopped):
        select_layer(given, tmp_path / "out")
    assert select_layer(given, tmp_path / "out").answer == whole.answer and answered(whole)[1] == (2, 3)


def test_more_fresh_seeds_lose_nothing_that_has_chosen(corpus: str, tmp_path: Path, world: World) -> None:
    world.f1 = TWO
    given = settings(corpus, epochs=2, candidates=["tanh0", "relu0", "identity0"], budget="1h")
    first = select_layer(given, tmp_path)
    assert answered(first) == ("relu0", (3, 4), True)
    places = dict(world.ledger.plan["places"])
    more = select_layer(dataclasses.replace(given, fresh_seeds=5), tmp_path)  # the budget is the same
    assert answered(more) == ("relu0", (3, 4, 5, 6, 7), True)
    few = f"{world.ledger.seconds + 60:.0f}s"  # not enough for all that are asked for
    more = select_layer(dataclasses.replace(given, fresh_seeds=12, budget=few), tmp_path)
    assert answered(more) == ("relu0", (3, 4, 5, 6, 7, 8), True) and world.ledger.plan["places"] == places
    assert "there was time for 6 of 12 fresh seeds" in more.report and "went on" not in more.report


def test_the_report_tells_seeds_that_chose_from_fresh_ones(corpus: str, tmp_path: Path, world: World) -> None:
    world.f1 = {"lstm": 40.0, ("lstm", 3): 30.0, ("lstm", 4): 30.0, "tanh0": 20.0}
    report = select_layer(settings(corpus), tmp_path / "one").report
    assert "| lstm | 8 | 0.1 | 2 + 2 fresh | 1 | 0.6000 | 40.00 ± 0.00 | 30.00 ± 0.00 | 7 |" in report


def test_where_nothing_was_found_no_script_is_given(corpus: str, tmp_path: Path, world: World) -> None:
    world.f1 = {"lstm": 0.0, "tanh0": 0.0}
    found = select_layer(settings(corpus, rates=[1.0, 2.0]), tmp_path / "nothing")
    assert found.answer.found_nothing and "```" not in found.report
    assert "\n\n| layer |" in found.report
    world.f1["lstm"] = 1.0
    found = select_layer(settings(corpus, rates=[1.0, 2.0]), tmp_path / "some")
    assert not found.answer.found_nothing and "```" in found.report


@pytest.mark.parametrize(
    ("count", "choosing", "judging"),
    [
        (1, [2, 0, 0], [2, 0, 0, 0, 0]),  # the first seed has to judge, too
        (3, [2, 0, 0], [0, 0, 0, 2, 0]),
        (4, [2, 2, 2], [0, 0, 0, 2, 2]),
        (6, [3, 3, 3], [0, 0, 0, 2, 2]),
    ],
)
def test_time_is_for_fresh_seeds_of_two_and_then_for_more_to_choose_among(
    count: int,
    choosing: list[int],
    judging: list[int],
    corpus: str,
    tmp_path: Path,
    world: World,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    enough_for(monkeypatch, count)
    given = settings(corpus, candidates=["tanh0-tanh1"], random=1, rates=[1.0, 2.0], seeds=[1, 2, 3], epochs=2)
    found = select_layer(given, tmp_path)
    runs = world.ledger.runs

    def of_seed(seed: int) -> list[dict[str, Any]]:
        return [run for name, run in runs.items() if name.endswith(f"seed{seed}")]

    assert [len(of_seed(seed)) for seed in (2, 3)] == choosing[1:]
    assert [sum(run["scored"] for run in of_seed(seed)) for seed in (1, 2, 3, 4, 5)] == judging
    assert found.answer.fresh is (judging[0] == 0) and found.answer.seeds == max(1, sum(judging[3:]) // 2)
    assert ("there was time for" in found.report) is (count < 4)
    assert ("the seeds that chose judge, too, which flatters the winner" in found.report) is (count == 1)
    assert ("Fresh seeds took no part" in found.report) is found.answer.fresh
    # the baseline comes to the end with each of its rates, and is one of the two that are compared
    assert all(len(run["dev"]) == 2 for name, run in runs.items() if name.startswith("lstm"))
    assert found.answer.other is not None
    compared = {scored.candidate.layer.name for scored in (found.answer.winner, found.answer.other)}
    assert len(compared) == 2 and "lstm" in compared


def test_where_time_is_short_fewer_go_on_so_that_the_last_have_all_seeds(
    corpus: str, tmp_path: Path, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    enough_for(monkeypatch, 2)
    asked: list[tuple[int, int]] = []

    def for_two(clock: Clock, load: Workload, fresh: int, rung: int = 0) -> float:
        asked.append((rung, load.candidates))
        return math.inf if rung == 1 and load.candidates > 3 else 0.0  # the baseline is the third

    monkeypatch.setattr(Clock, "remaining", for_two)
    world.f1["lstm"] = 40.0
    given = settings(corpus, candidates=["tanh0-tanh1", "relu0", "gru", "identity0"], random=1, epochs=4)
    select_layer(given, tmp_path)
    trained = [len(run["dev"]) for name, run in world.ledger.runs.items() if name.endswith("seed1")]
    assert len(trained) == 6 and (1, 4) in asked and (1, 3) in asked
    assert sum(epochs >= 2 for epochs in trained) == 3
    plan, done = copy.deepcopy(world.ledger.plan), len(world.done)
    assert plan["places"]["6 after rung 1"] == 2
    said = "time was short, so after 1 of 4 epochs 3 and not 4 of 6 went on"
    assert f"- {said}." in (tmp_path / "report.md").read_text()
    monkeypatch.setattr(Clock, "remaining", lambda *_: 0.0)  # what was decided by time is not decided again
    select_layer(given, tmp_path)
    assert world.ledger.plan == plan and len(world.done) == done
    select_layer(dataclasses.replace(given, candidates=[*given.candidates, "sigmoid0"]), tmp_path)
    assert world.ledger.plan["places"]["7 after rung 1"] == 4  # with more candidates, by the rule again


def test_a_finished_selection_stays_what_it_is_whatever_is_spent(corpus: str, tmp_path: Path, world: World) -> None:
    """Extend a selection in which nothing is left to do: no time is too short."""
    names = ["tanh0-tanh1", "gru", "relu0", "identity0", "sigmoid0-tanh1"]
    given = settings(corpus, candidates=names, random=4, epochs=4, budget="60m")
    first, runs = select_layer(given, tmp_path), dict(world.ledger.runs)
    world.done.clear()
    for budget in ("61m", "1h", "57m", "60m"):  # more, the same in other words, less than is spent
        world.spend(57 * 60 + 30)
        again = select_layer(dataclasses.replace(given, budget=budget), tmp_path)
        assert world.done == [] and world.ledger.runs == runs
        assert again.answer == first.answer and again.answer.seeds == 2


def test_a_selection_that_is_stopped_may_go_on_while_there_is_time_for_the_rest_of_it(
    corpus: str, tmp_path: Path, world: World
) -> None:
    """Go on where finished and failed runs take no time."""

    def stop(rnn: str, seed: int) -> None:
        if len(world.done) == 5:
            raise KeyboardInterrupt

    world.usual, world.after = 20.0, stop
    world.error = lambda rnn, seed, score: "not finite in epoch 1, batch 2" if rnn == "relu0" else None
    given = settings(corpus, random=None, epochs=4, candidates=["tanh0-tanh1", "gru", "relu0"], budget="10m")
    with pytest.raises(RunStopped):
        select_layer(given, tmp_path)
    world.spend(600 - 8 * 20)  # three runs go on by one epoch, two by two: seven epochs; all anew would be eleven
    select_layer(given, tmp_path)
    assert len(world.done) > 5 and (tmp_path / "report.md").exists()


def test_random_cells_that_were_begun_stay_with_another_budget(corpus: str, tmp_path: Path, world: World) -> None:
    world.usual = 20.0
    for budget in ("6m", "4m"):
        given = settings(corpus, random=None, gates=2, epochs=2, seeds=[1], fresh_seeds=1, budget=budget)
        world.spend(0)
        select_layer(given, tmp_path)
        drawn = {name.partition("-rate")[0] for name in world.ledger.runs if name.startswith("random-")}
        count = world.ledger.plan["random"]
        assert len(drawn) == 2 * count and count >= 2  # each with gates, too


def test_where_none_is_named_as_many_usual_layers_are_compared_as_there_is_time_for(
    corpus: str, tmp_path: Path, world: World
) -> None:
    world.usual = 20.0
    best_first, counts = list_usual_layers(TAGGING), []
    assert best_first[: len(SMALL_CELLS) + 2] == [*SMALL_CELLS, "gru", "darts-v2"]
    assert sorted(best_first) == sorted({*SMALL_CELLS, "gru", *bundled_names()})
    for budget, spent in (("5m", 0), ("8m", 5), ("6m", 8), ("9h", 8)):  # in minutes; what was begun stays
        world.done.clear()
        world.spend(spent * 60)
        given = settings(corpus, candidates=[], epochs=2, seeds=[1], fresh_seeds=1, budget=budget)
        found = select_layer(given, tmp_path)
        compared = [name for name in best_first if f"| {name} | 8 |" in found.report]
        counts.append(len(compared))
        assert compared == best_first[: len(compared)] == world.ledger.plan["usual"]
        caution = f"the time is enough for {len(compared)} of the {len(best_first)} usual layers"
        assert (caution in found.report) == (budget != "9h")
        assert (world.done == []) == (budget == "6m")
    assert 1 < counts[0] < counts[1] == counts[2] < counts[3] == len(best_first)


class Step:
    """A training step that takes some seconds."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def __call__(self) -> None:
        pass


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Let steps take 1 s in an LSTM, and as many in a cell as it has nodes; return the layers that were timed."""
    timed: list[str] = []

    def step(given: dict[str, Any]) -> Step:
        timed.append(given["rnn"])
        is_cell = given["rnn"] not in ("lstm", "gru")
        return Step(float(len(load_genotype(given["rnn"]).nodes)) if is_cell else 1.0)

    monkeypatch.setattr(tagging_task, "stepper", lambda given: step)
    monkeypatch.setattr("flair_nas.experiments.layers.time_ratio", lambda step, other: step.seconds / other.seconds)
    return timed


def test_layers_and_random_cells_slower_than_the_limit_are_not_compared(
    corpus: str, tmp_path: Path, world: World, steps: list[str]
) -> None:
    names = ["relu0-tanh1", "tanh0", "tanh0-tanh1-tanh2"]
    given = settings(corpus, candidates=names, random=4, nodes=[1, 2, 3], at_most_seconds=2.0)
    found = select_layer(given, tmp_path)
    every = found.report.partition("## All candidates")[2]
    table = [line for line in every.splitlines() if line.startswith("| ")][2:]
    rows = [line.split(" | ")[0].removeprefix("| ") for line in table]
    assert sorted(rows) == ["lstm", "random-1", "random-2", "random-3", "random-4", "relu0-tanh1", "tanh0"]
    assert {rnn.count("-") for rnn, _ in world.done} == {0, 1}
    assert "![F1 on dev against seconds an epoch](seconds.svg)" in found.report
    caution = "slower than 2 times the LSTM in a training step, and so not compared: tanh0-tanh1-tanh2 (3.00), random"
    assert f"{caution} cells of 3 nodes (3.00)" in found.report
    world.done.clear()
    before, timed = found.report, len(steps)
    assert select_layer(given, tmp_path).report == before and not world.done and len(steps) == timed
    more = settings(corpus, candidates=names, random=4, nodes=[1, 2, 3], at_most_seconds=3.0)
    assert "| tanh0-tanh1-tanh2 |" in select_layer(more, tmp_path).report and len(steps) == timed


def test_a_limit_that_no_layer_meets_names_the_fastest(
    corpus: str, tmp_path: Path, world: World, steps: list[str]
) -> None:
    given = settings(corpus, candidates=["relu0-tanh1", "lstm"], random=4, nodes=[3, 4], at_most_seconds=1.5)
    with pytest.raises(FlairNasError, match="no candidate takes at most 1.5 .*fastest: relu0-tanh1, 2.00 times"):
        select_layer(given, tmp_path / "run")
    assert not (tmp_path / "run").exists() and not world.done


@pytest.mark.parametrize(
    "given", [{"candidates": ["tanh0-tanh1"]}, {"candidates": ["lstm"]}, {"candidates": [], "match": True}]
)
def test_a_limit_leaves_random_cells_alone_to_compare(
    given: dict[str, Any], corpus: str, tmp_path: Path, world: World, steps: list[str]
) -> None:
    found = select_layer(settings(corpus, random=2, nodes=[1], at_most_seconds=1.0, **given), tmp_path)
    assert "| random-2 |" in found.report and "tanh0-tanh1 |" not in found.report
    assert ("no LSTM of equal size is compared" in found.report) == ("match" in given)


def test_a_layer_that_cannot_be_timed_fails_alone(
    corpus: str, tmp_path: Path, world: World, steps: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def stepper(given: dict[str, Any]) -> Any:
        def step(given: dict[str, Any]) -> Step:
            if given["rnn"] == "relu0":
                raise FlairNasError("a faulty layer")
            return Step(1.0)

        return step

    monkeypatch.setattr(tagging_task, "stepper", stepper)
    found = select_layer(settings(corpus, candidates=["tanh0", "relu0"], at_most_seconds=1.0), tmp_path)
    assert "| tanh0 |" in found.report and "| relu0 |" in found.report


def test_another_limit_is_another_choice_of_layers(corpus: str, tmp_path: Path, world: World, steps: list[str]) -> None:
    given = {"candidates": [], "epochs": 1, "seeds": [1], "fresh_seeds": 1, "budget": "9h"}
    found = select_layer(settings(corpus, at_most_seconds=1.0, **given), tmp_path)
    assert "| small-relu |" in found.report and "| darts-v2 |" not in found.report
    assert "| darts-v2 |" in select_layer(settings(corpus, **given), tmp_path).report


def test_random_cells_have_the_numbers_of_nodes_that_are_asked_for_and_all_differ(corpus: str) -> None:
    cells = [layer.rnn for layer in random_layers(settings(corpus, nodes=[1, 2, 5]), 60)]
    assert len({*cells, *(load_genotype(name).one_line() for name in SMALL_CELLS)}) == 63
    assert [cell.count("-") + 1 for cell in cells[:3]] == [1, 2, 5]
    assert {cell for cell in cells if "-" not in cell} == {"sigmoid0", "identity0"}  # and the small ones
    assert len(random_layers(settings(corpus, nodes=[1]), 60)) == 2


def test_the_longest_runs_are_begun_first(corpus: str, tmp_path: Path, world: World) -> None:
    world.pace = {"tanh0": 20.0, "relu0": 30.0}
    select_layer(settings(corpus, candidates=["tanh0", "relu0"]), tmp_path)
    by_seed = {seed: [rnn for rnn, other in world.done if other == seed] for seed in (1, 2)}
    assert by_seed == {1: ["lstm", "tanh0", "relu0"], 2: ["relu0", "tanh0", "lstm"]}  # of the first nothing is known


def test_an_lstm_as_large_as_the_largest_layer_stays_when_there_are_larger_ones(
    corpus: str, tmp_path: Path, world: World
) -> None:
    few = settings(corpus, hidden_size=96, match=True, candidates=["darts-v2"])
    select_layer(few, tmp_path)
    before = {name for name in world.ledger.runs if name.startswith("lstm-")}
    found = select_layer(dataclasses.replace(few, candidates=["darts-v2", "ess-ptb"], budget="3h"), tmp_path)
    names = {line.split(" | ")[0] for line in found.report.splitlines() if line.startswith("| lstm-")}
    assert len(names) == 2 and "not compared now" not in found.report
    assert before < {name for name in world.ledger.runs if name.startswith("lstm-")}


def test_the_report_is_there_where_there_is_no_room_for_the_model(
    corpus: str, tmp_path: Path, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(model: Path, folder: Path) -> None:
        raise OSError(errno.ENOSPC, "no room", str(folder / "model.pt"))

    with monkeypatch.context() as patched:
        patched.setattr(tagging_task, "place", full)
        with pytest.raises(OSError, match="no room"):
            select_layer(settings(corpus), tmp_path)
    report = (tmp_path / "report.md").read_text()
    world.done.clear()
    assert select_layer(settings(corpus), tmp_path).report == report and world.done == []


def test_time_is_kept_for_fresh_seeds_of_two(corpus: str, tmp_path: Path, world: World) -> None:
    world.pace = {"tanh0": 100.0, "relu0": 100.0}
    given = settings(corpus, candidates=["tanh0", "relu0"], fresh_seeds=3)
    # 210 s for the first seed; 210 s or, of two layers, 110 s for the second; 330 s for fresh ones of two
    for budget, finalists, seeds in ((750, 3, 2), (740, 2, 2), (640, 2, 1)):
        select_layer(dataclasses.replace(given, budget=f"{budget}s"), tmp_path / str(budget))
        assert (world.ledger.plan["finalists"], world.ledger.plan["seeds"]) == (finalists, seeds)


def test_time_is_kept_for_the_fresh_seeds_of_another_winner(corpus: str, tmp_path: Path, world: World) -> None:
    world.f1 = {"lstm": 40, "tanh0": 60, "relu0": 70}
    given = settings(corpus, fresh_seeds=3, budget="1h")
    assert answered(select_layer(given, tmp_path))[0] == "tanh0"
    enough = f"{world.ledger.seconds + 40:.0f}s"  # one more: its first seed, and three that judge
    more = select_layer(dataclasses.replace(given, candidates=["tanh0", "relu0"], budget=enough), tmp_path)
    assert answered(more) == ("relu0", (3, 4, 5), True)


def test_a_fresh_seed_that_failed_is_tried_again_and_costs_no_other(corpus: str, tmp_path: Path, world: World) -> None:
    world.error = lambda rnn, seed, score: "its process has died" if seed == 2 and rnn != "lstm" else None
    given = settings(corpus, seeds=[1], fresh_seeds=3, budget="85s")
    first = select_layer(given, tmp_path)
    assert answered(first)[1:] == ((3, 4), True) and "there was time" not in first.report
    assert "-seed2 failed, so what the other has with that seed does not count" in first.report
    again = select_layer(dataclasses.replace(given, budget="60s"), tmp_path)  # no time to try it
    assert answered(again)[1:] == ((3, 4), True)
    world.error = lambda rnn, seed, score: None
    assert answered(select_layer(given, tmp_path))[1:] == ((2, 3, 4), True)


def test_a_seed_with_which_nothing_works_does_not_choose(corpus: str, tmp_path: Path, world: World) -> None:
    world.f1 = TWO
    world.error = lambda rnn, seed, score: "not finite" if seed == 2 else None
    found = select_layer(settings(corpus, candidates=["tanh0", "relu0"]), tmp_path)
    assert answered(found) == ("tanh0", (3, 4), True) and "failed: not finite" in found.report
    errors = [run for run in world.ledger.runs.values() if "error" in run]
    assert errors == 3 * [{"error": "not finite", "again": False}]


def test_where_nothing_can_be_scored_that_is_said(corpus: str, tmp_path: Path, world: World) -> None:
    world.error = lambda rnn, seed, score: "no space for test" if score and rnn != "lstm" else None
    with pytest.raises(FlairNasError, match="no layer could be scored: no space for test"):
        select_layer(settings(corpus), tmp_path)


@pytest.mark.slow
def test_a_selection_that_was_stopped_is_refused_or_estimated_as_a_new_one(
    corpus: str, tmp_path: Path, world: World
) -> None:
    def stop(rnn: str, seed: int) -> None:
        raise KeyboardInterrupt

    world.after = stop
    given = asks_for_much(corpus, "34m")
    with pytest.raises(RunStopped):
        select_layer(given, tmp_path)
    assert world.ledger.plan["less"] and not world.ledger.runs
    assert "an epoch takes about 10.0 s" in estimate_selection(given, tmp_path)[0]

    def stop_later(rnn: str, seed: int) -> None:
        if len(world.done) == 2:
            raise KeyboardInterrupt

    world.done.clear()
    world.after = stop_later
    with pytest.raises(RunStopped):
        select_layer(given, tmp_path)
    assert len(world.ledger.runs) == 1
    with pytest.raises(FlairNasError, match="too small: an epoch takes about 10.0 s"):
        select_layer(dataclasses.replace(given, budget=f"{world.ledger.seconds + 1:.0f}s"), tmp_path)


def test_a_smaller_selection_of_which_nothing_is_trained_has_the_pace_of_the_rest(
    corpus: str, tmp_path: Path, world: World
) -> None:
    def stop(rnn: str, seed: int) -> None:
        if len(world.done) == 2:
            raise KeyboardInterrupt

    world.after = stop
    given = settings(corpus, epochs=20, rates=[2.0], budget="1h")
    with pytest.raises(RunStopped):
        select_layer(given, tmp_path)
    world.after = lambda rnn, seed: None
    few = f"{world.ledger.seconds + 300:.0f}s"
    found = select_layer(dataclasses.replace(given, rates=[1.0, 2.0], budget=few), tmp_path)
    assert found.config.rates == [1.0]


def test_a_selection_in_which_all_has_failed_says_so_with_another_budget(
    corpus: str, tmp_path: Path, world: World
) -> None:
    world.error = lambda rnn, seed, score: "not finite: the loss"
    for budget, random in (("1h", 0), ("2h", 0), ("3h", None), ("4h", None)):
        with pytest.raises(FlairNasError, match="no run of rung 1 worked: not finite"):
            select_layer(settings(corpus, budget=budget, random=random), tmp_path)
