"""How a tuning spends its time, on a clock of its own: runs are simulated, so that each takes what a test says."""

from __future__ import annotations

import dataclasses
import errno
import logging
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pool_jobs import run_jobs_here
from small_tagging import write_corpus

from flair_nas.errors import FlairNasError
from flair_nas.experiments import tagging_task
from flair_nas.experiments.counts import pack_counts
from flair_nas.experiments.jobs import Job, Outcome
from flair_nas.experiments.ledger import Ledger
from flair_nas.experiments.local_pool import LocalPool
from flair_nas.runs.duration import parse_time
from flair_nas.runs.run import RunStopped
from flair_nas.tune import study as study_module
from flair_nas.tune.config import TuneConfig
from flair_nas.tune.parts import Range
from flair_nas.tune.tuning import Tuning, estimate_tuning, tune_tagger


class World:
    """Time and F1 of simulated runs: 10 s an epoch and 50, unless a test changes them."""

    def __init__(self) -> None:
        self.ledger = Ledger(Path("none"))
        self.embedding = 0.0  # seconds
        self.pace: Callable[[dict[str, Any]], float] = lambda given: 10.0  # seconds an epoch, as the run reports them
        self.slower: dict[int, float] = {}  # by seed: how many times as long it really takes
        self.f1: Callable[[dict[str, Any], int], float] = lambda given, seed: 50.0
        self.ms: Callable[[dict[str, Any]], float] = lambda given: 2.0
        self.error: Callable[[dict[str, Any], int], str | None] = lambda given, seed: None
        self.after: Callable[[dict[str, Any], int], None] = lambda given, seed: None
        self.done: list[tuple[str, int, int]] = []  # layer, seed and last epoch
        self.reached: dict[str, int] = {}

    def estimate(self, given: dict[str, Any]) -> dict[str, Any]:
        """Return the time of an epoch."""
        return {"seconds": [self.pace(given)], "around_seconds": 0.0, "embedding_seconds": self.embedding}

    def time(self, task: str, given: dict[str, Any], other: dict[str, Any]) -> dict[str, float]:
        """Return the time of a sentence."""
        return {"ratio": self.ms(given) / self.ms(other), "ms": self.ms(other)}

    def train(self, given: dict[str, Any], folder: str, score: bool) -> dict[str, Any]:
        """Simulate the training of a tagger."""
        rnn, (seed,), epochs = given["rnn"], given["seeds"], given["epochs"]
        if error := self.error(given, seed):
            raise FlairNasError(error)
        pace, f1 = self.pace(given), self.f1(given, seed)
        self.ledger._earlier += (epochs - self.reached.get(folder, 0)) * pace * self.slower.get(seed, 1.0)
        self.reached[folder] = epochs
        Path(folder).mkdir(parents=True, exist_ok=True)
        (Path(folder) / "model.pt").write_bytes(b"a model")
        self.done.append((rnn, seed, epochs))
        self.after(given, seed)
        found = {
            "dev": [f1] * epochs, "dev_loss": [1 - f1 / 100] * epochs, "seconds": [pace] * epochs,
            "around_seconds": 0.0, "exhausted": False, "parameters": 7, "peak_memory_mb": 1,
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
    monkeypatch.setattr(study_module, "time_beside", lambda *arguments: made.time(*arguments))
    return made


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_corpus(tmp_path_factory.mktemp("corpus"))


def settings(corpus: str, **changes: Any) -> TuneConfig:
    given: dict[str, Any] = {
        "corpus": corpus, "embeddings": ["one-hot", "char"], "hidden_size": 64, "epochs": 20, "learning_rate": 0.1,
        "vary": ["layer", "rate", "width"], "random": 4, "workers": 1, "device": "cpu", "sampler": "random",
        "budget": "2h",
    }  # fmt: skip
    return TuneConfig(**(given | changes))


def by_rate(given: dict[str, Any], seed: int) -> float:
    """The larger the rate, the better; seeds differ a little."""
    return 40.0 + 40 * given["learning_rate"] + (seed % 3) / 10


def judged(found: Tuning) -> tuple[tuple[int, ...], bool]:
    return found.answer.judges, found.answer.fresh


# --- the budget ---


@pytest.mark.parametrize(("budget", "epoch", "tried"), [("10m", 1.5, 4), ("1h", 3.0, 15), ("4h", 9.0, 30)])
@pytest.mark.parametrize("spread", [1.0, 3.0])
def test_a_budget_is_used_and_kept(
    budget: str, epoch: float, tried: int, spread: float, corpus: str, tmp_path: Path, world: World
) -> None:
    """Some settings take three times as long as others."""
    world.f1, world.pace = by_rate, lambda given: epoch * (spread if given["hidden_size"] > 200 else 1.0)
    found = tune_tagger(settings(corpus, budget=budget), tmp_path)
    limit = parse_time(budget) or 0.0
    assert found.answer.fresh and len(found.answer.judges) >= (2 if budget == "10m" else 3)
    longest = 20 * epoch * spread  # which may no more fit in at the end
    assert min(0.9 * limit, limit - longest) <= world.ledger.seconds <= 1.1 * limit
    assert len(world.ledger.points) >= tried


def test_a_budget_that_is_too_small_is_refused_before_anything_is_trained(
    corpus: str, tmp_path: Path, world: World
) -> None:
    for embedding in (600.0, 0.0):
        world.embedding = embedding
        with pytest.raises(FlairNasError) as caught:
            tune_tagger(settings(corpus, budget="100s"), tmp_path / "out")
        assert world.done == [] and not (tmp_path / "out").exists()
        assert "an epoch of the baseline takes about 10.0 s" in str(caught.value)
        proposed = re.search(
            r"with 7 epochs and one seed need --budget (\w+)\. .* need --budget (\w+)$", str(caught.value)
        )
        assert proposed
    for name, budget in zip(("least", "whole"), proposed.groups()):
        found = tune_tagger(settings(corpus, budget=budget, seeds=[1]), tmp_path / name)
        assert len(found.answer.others) == 1 and (len(found.answer.judges) >= 2) is (name == "whole"), budget
        assert (found.config.epochs == 20) is (name == "whole")


def test_fewer_epochs_are_told_and_a_larger_budget_extends_them(corpus: str, tmp_path: Path, world: World) -> None:
    world.f1 = by_rate
    small = tune_tagger(settings(corpus, budget="20m"), tmp_path)
    assert 7 <= small.config.epochs < 20
    assert (
        f"settings are trained for {small.config.epochs} of 20 epochs, after which others may be ahead" in small.report
    )
    names = [*world.ledger.runs]
    large = tune_tagger(settings(corpus, budget="4h"), tmp_path)
    assert large.config.epochs == 20 and "is small, so" not in large.report
    assert [*world.ledger.runs][: len(names)] == names and 0.9 * 4 * 3600 <= world.ledger.seconds <= 1.1 * 4 * 3600


def test_an_estimate_trains_nothing(corpus: str, tmp_path: Path, world: World) -> None:
    world.embedding = 30.0
    first, *_, last = estimate_tuning(settings(corpus))
    assert first == "an epoch of the baseline takes about 10.0 s, to embed all words 30 s"
    assert re.fullmatch(r"within 2h: about \d+ settings, 20 epochs at most", last) and world.done == []
    with pytest.raises(FlairNasError, match="too small"):
        estimate_tuning(settings(corpus, budget="1m"))


def test_a_run_that_would_end_after_the_budget_is_not_begun(corpus: str, tmp_path: Path, world: World) -> None:
    world.slower = dict.fromkeys(range(4, 10), 1.5)
    found = tune_tagger(settings(corpus, budget="1h"), tmp_path)
    assert len(found.answer.judges) < 3 and found.answer.fresh and "of 3 fresh seeds" in found.report
    assert world.ledger.seconds <= 1.1 * 3600


# --- which settings go on ---


def test_the_better_half_of_each_rung_and_the_baseline_go_on(corpus: str, tmp_path: Path, world: World) -> None:
    world.f1 = by_rate
    found = tune_tagger(settings(corpus, trials=20, budget="9h"), tmp_path)
    first = {c.name: world.ledger.runs[c.run(1)] for c in map_candidates(found, world)}
    reached = [len(run["dev"]) for run in first.values()]
    assert reached[0] == 20 and set(reached) == {7, 14, 20}
    first_rung, second, last = (sum(epochs >= rung for epochs in reached) for rung in (7, 14, 20))
    assert first_rung == 20 and 10 <= second <= 15 and second // 2 <= last <= second * 3 // 4
    others = sorted((run["dev"][0] for run in [*first.values()][1:]), reverse=True)
    best = [run["dev"][0] for run in first.values() if len(run["dev"]) == 20]
    assert others[0] in best  # what is best of all came to the end
    assert all(run["dev"][0] > others[-1] for run in [*first.values()][1:] if len(run["dev"]) > 7)


def map_candidates(found: Tuning, world: World) -> list[Any]:
    from flair_nas.tune.trials import Trials

    return Trials(found.config, world.ledger).candidates


def test_losses_with_and_without_a_crf_are_not_compared(corpus: str, tmp_path: Path, world: World) -> None:
    world.f1 = lambda given, seed: 60.0 if given["crf"] else 20.0  # as their losses are of another kind
    found = tune_tagger(settings(corpus, vary=["crf", "rate"], trials=17, budget="9h"), tmp_path)
    for crf in (True, False):
        own = [c for c in map_candidates(found, world)[1:] if c.settings["crf"] is crf]
        reached = [len(world.ledger.runs[c.run(1)]["dev"]) for c in own]
        assert len(own) // 2 - 1 <= sum(epochs > 7 for epochs in reached) <= len(own) // 2 + 1


def test_known_settings_come_first(corpus: str, tmp_path: Path, world: World) -> None:
    world.f1 = by_rate
    given = settings(corpus, vary=["layer", "rate", "embeddings"], candidates=["gru"], trials=3, budget="9h")
    first = tune_tagger(given, tmp_path / "one")
    assert [point["rnn"] for point in world.ledger.points] == ["lstm", "lstm", "gru"]
    assert [point["learning_rate"] for point in world.ledger.points] == [0.1, 0.2, 0.1]
    best = first.answer.others[0].candidate.settings
    more = settings(
        corpus, vary=["layer", "rate", "embeddings"], trials=5, budget="9h", learn_from=[str(tmp_path / "one")]
    )
    second = tune_tagger(more, tmp_path / "two")
    settings_tried = [c.settings for c in map_candidates(second, world)]
    assert settings_tried[1]["rnn"] == "small-relu-tanh"
    assert any(
        all(own[name] == best[name] for name in ("rnn", "learning_rate", "embeddings")) for own in settings_tried[1:3]
    )
    with pytest.raises(FlairNasError, match="learn_from: .*none holds no run of flair-nas tune that has ended"):
        tune_tagger(dataclasses.replace(more, learn_from=[str(tmp_path / "none")]), tmp_path / "three")


def test_a_space_without_further_settings_ends_early(corpus: str, tmp_path: Path, world: World) -> None:
    found = tune_tagger(settings(corpus, vary=["crf"], embeddings=["one-hot"], budget="9h"), tmp_path)
    assert len(world.ledger.points) == 2 and judged(found) == ((4, 5, 6), True)
    assert world.ledger.seconds < 3600


# --- the choice and the judgement ---


def test_further_seeds_choose_among_the_best(corpus: str, tmp_path: Path, world: World) -> None:
    lucky = 0.19  # rates above are lucky with the first seed alone

    def f1(given: dict[str, Any], seed: int) -> float:
        return 70.0 if given["learning_rate"] > lucky and seed == 1 else 60.0 - abs(given["learning_rate"] - 0.15) * 50

    world.f1 = f1
    found = tune_tagger(settings(corpus, vary=["rate"], trials=16, budget="9h"), tmp_path)
    best = found.answer.others[0].candidate
    finalists = {name.rpartition("-seed")[0] for name in world.ledger.runs if name.endswith("-seed2")}
    assert len(finalists) == 4 and best.name in finalists
    means = {
        name: np.mean([max(world.ledger.runs[f"{name}-seed{seed}"]["dev"]) for seed in (1, 2, 3)]) for name in finalists
    }
    assert best.name == max(means, key=lambda name: means[name])


def test_a_fast_one_is_judged_beside_the_best(corpus: str, tmp_path: Path, world: World) -> None:
    world.f1 = lambda given, seed: 60 + (0.5 if given["hidden_size"] == 384 else 0.0)
    world.ms = lambda given: given["hidden_size"] / 64
    found = tune_tagger(settings(corpus, vary=["width"], hidden_size=256, trials=20, budget="9h"), tmp_path)
    best, fast = (judged.candidate.settings["hidden_size"] for judged in found.answer.others)
    assert (best, fast) == (384, 64)
    assert "takes 1.00 ms a sentence, the best 6.00 ms" in found.report and "| fast | lstm-" in found.report
    world.f1 = lambda given, seed: 60 + given["hidden_size"] / 10
    given = settings(corpus, vary=["width"], hidden_size=256, at_most_ms=3.0, budget="9h")
    found = tune_tagger(given, tmp_path / "limit")
    best, fast = (judged.candidate.settings["hidden_size"] for judged in found.answer.others)
    assert (best, fast) == (384, 128) and "| within the limit | lstm-" in found.report


def test_where_nothing_was_found_no_script_is_given(corpus: str, tmp_path: Path, world: World) -> None:
    world.f1 = lambda given, seed: 0.0
    found = tune_tagger(settings(corpus, trials=4, budget="9h"), tmp_path / "nothing")
    assert (
        found.answer.found_nothing
        and "```" not in found.report
        and "Undecided: no settings have learnt" in found.report
    )
    world.f1 = lambda given, seed: 1.0
    found = tune_tagger(settings(corpus, trials=4, budget="9h"), tmp_path / "some")
    assert not found.answer.found_nothing and "```" in found.report


def test_a_baseline_that_fails_is_not_in_the_way(corpus: str, tmp_path: Path, world: World) -> None:
    world.error = lambda given, seed: "not finite in epoch 1" if given["rnn"] == "lstm" else None
    found = tune_tagger(settings(corpus, vary=["layer"], trials=6, budget="9h"), tmp_path)
    assert found.answer.baseline is None and "the baseline has failed" in found.report
    assert found.recommended == found.answer.others[0].candidate
    world.error = lambda given, seed: "not finite in epoch 1"
    with pytest.raises(FlairNasError, match="no settings worked: not finite in epoch 1"):
        tune_tagger(settings(corpus, vary=["layer"], trials=6, budget="9h"), tmp_path / "all")


def test_a_fresh_seed_that_fails_does_not_count(corpus: str, tmp_path: Path, world: World) -> None:
    world.error = lambda given, seed: "not finite in epoch 3" if seed == 5 and given["rnn"] == "lstm" else None
    found = tune_tagger(settings(corpus, vary=["layer"], trials=4, budget="9h"), tmp_path)
    assert judged(found) == ((4, 6), True) and "failed, so what the others have with that seed" in found.report


# --- going on ---


def test_a_run_that_fails_after_a_rung_goes_on_from_there(corpus: str, tmp_path: Path, world: World) -> None:
    world.f1 = lambda given, seed: 60.0 if given["rnn"] == "gru" else 50.0
    train = world.train

    def train_or_fail(given: dict[str, Any], folder: str, score: bool) -> dict[str, Any]:
        if given["rnn"] == "gru" and given["epochs"] > 7:
            raise FlairNasError("the device is busy")
        return train(given, folder, score)

    world.train = train_or_fail  # type: ignore[method-assign]
    given = settings(corpus, vary=["layer"], candidates=["gru"], trials=6, budget="9h")
    tune_tagger(given, tmp_path)
    assert ("gru", 1, 7) in world.done and not any(rnn == "gru" and epochs > 7 for rnn, _, epochs in world.done)
    world.done.clear()
    world.train = train  # type: ignore[method-assign]
    found = tune_tagger(dataclasses.replace(given, budget="10h"), tmp_path)
    assert [epochs for rnn, seed, epochs in world.done if (rnn, seed) == ("gru", 1)] == [14, 20]
    assert found.answer.others[0].candidate.settings["rnn"] == "gru"


def test_a_score_leaves_the_time_at_which_a_run_ended(corpus: str, tmp_path: Path, world: World) -> None:
    given = settings(corpus, vary=["rate"], trials=3, seeds=[1], fresh_seeds=1, budget="9h")
    found = tune_tagger(given, tmp_path)
    (name,) = (f"{judged.candidate.name}-seed1" for judged in found.answer.others[:1])
    ledger = Ledger(tmp_path / "ledger.json")
    outcome = Outcome(Job(name, len, ()), ledger.runs[name] | {"test": 50.0}, None)
    ended = ledger.runs[name]["at"]
    assert ledger.note(outcome) and ledger.runs[name]["at"] == ended < ledger.seconds


def test_a_finished_tuning_is_the_same_when_it_is_begun_again(
    corpus: str, tmp_path: Path, world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.f1 = by_rate
    found = tune_tagger(settings(corpus), tmp_path)
    world.done.clear()
    with caplog.at_level(logging.INFO, "flair_nas"):
        again = tune_tagger(settings(corpus), tmp_path)
    assert world.done == [] and again.answer == found.answer and again.report == found.report
    assert "is finished, so nothing was trained" in caplog.text


@pytest.mark.parametrize("sampler", ["random", "tpe"])
def test_a_tuning_that_is_stopped_ten_times_is_that_of_one_go(
    sampler: str, corpus: str, tmp_path: Path, world: World
) -> None:
    world.f1, world.pace = by_rate, lambda given: 3.0
    given = settings(corpus, sampler=sampler, budget="30m")
    whole = tune_tagger(given, tmp_path / "whole")
    points, runs = world.ledger.points, world.ledger.runs
    jobs = len(world.done)
    stops = {jobs * number // 11 for number in range(1, 11)}
    world.done.clear()
    count = 0

    def stop(given: dict[str, Any], seed: int) -> None:
        nonlocal count
        count += 1
        if count in stops:
            world.ledger._earlier -= 0.0
            raise KeyboardInterrupt  # it is trained, and nobody has noted that

    world.after, stopped = stop, 0
    while True:
        try:
            again = tune_tagger(given, tmp_path / "out")
            break
        except RunStopped:
            stopped += 1
    assert stopped == 10 and world.ledger.points == points
    assert {name: run.get("dev") for name, run in world.ledger.runs.items()} == {
        name: run.get("dev") for name, run in runs.items()
    }
    assert again.answer == whole.answer and again.report.splitlines()[2] == whole.report.splitlines()[2]


def test_more_fresh_seeds_add_only_these(corpus: str, tmp_path: Path, world: World) -> None:
    world.f1 = by_rate
    given = settings(corpus, trials=6, budget="9h")
    tune_tagger(given, tmp_path)
    world.done.clear()
    more = tune_tagger(dataclasses.replace(given, fresh_seeds=5), tmp_path)
    assert judged(more) == ((4, 5, 6, 7, 8), True) and {seed for _, seed, _ in world.done} == {7, 8}


def test_a_full_disk_ends_it_and_loses_nothing(corpus: str, tmp_path: Path, world: World) -> None:
    def full(given: dict[str, Any], seed: int) -> None:
        if len(world.done) == 3:
            world.after = lambda given, seed: None
            raise OSError(errno.ENOSPC, "no space left")

    world.after = full
    with pytest.raises(OSError, match="no space left"):
        tune_tagger(settings(corpus, trials=5, budget="9h"), tmp_path)
    found = tune_tagger(settings(corpus, trials=5, budget="9h"), tmp_path)
    assert judged(found) == ((4, 5, 6), True) and len(world.ledger.points) == 5


def test_trials_are_copied_to_a_storage_of_optuna(corpus: str, tmp_path: Path, world: World) -> None:
    import optuna

    world.f1 = by_rate
    address = f"sqlite:///{tmp_path}/trials.db"
    given = settings(corpus, vary=["layer", "rate", "embeddings"], trials=8, budget="9h", optuna_storage=address)
    tune_tagger(given, tmp_path / "mine")
    tune_tagger(dataclasses.replace(given, trials=10), tmp_path / "mine")
    trials = optuna.load_study(study_name=str(tmp_path / "mine"), storage=address).trials
    trials.sort(key=lambda trial: trial.user_attrs["number"])  # they are in the order in which they ended
    assert [trial.params for trial in trials] == world.ledger.points
    names = {"COMPLETE", "PRUNED"}
    assert {trial.state.name for trial in trials} == names and trials[0].value == pytest.approx(44.1)
    with pytest.raises(FlairNasError, match="optuna_storage nothing://x cannot be used"):
        tune_tagger(dataclasses.replace(given, optuna_storage="nothing://x"), tmp_path / "other")
    assert not (tmp_path / "other").exists()


def test_known_settings_that_come_later_are_tried_next(corpus: str, tmp_path: Path, world: World) -> None:
    given = settings(corpus, vary=["layer", "rate"], candidates=["gru"], trials=4, budget="9h")
    tune_tagger(given, tmp_path)
    tune_tagger(dataclasses.replace(given, candidates=["gru", "sru"], trials=5), tmp_path)
    assert [point["rnn"] for point in world.ledger.points][-1] == "sru"


def test_parts_that_no_longer_vary_are_told_and_no_settings_come_twice(
    corpus: str, tmp_path: Path, world: World
) -> None:
    few: dict[str, Any] = {"embeddings": ["one-hot"], "budget": "9h"}
    tune_tagger(settings(corpus, vary=["crf", "map"], **few), tmp_path)
    found = tune_tagger(settings(corpus, vary=["crf", "width"], **few), tmp_path)
    names = [candidate.name for candidate in map_candidates(found, world)]
    assert len(set(names)) == len(names) == 4 + 6 and "- varied earlier, and not now: reproject." in found.report


def test_with_a_limit_no_candidate_goes_on_before_it_is_timed(
    corpus: str, tmp_path: Path, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second process times a candidate while the first one trains several."""
    timed, early, working = [256], list[int](), LocalPool.run

    def run(pool: LocalPool, jobs: Iterable[Job | None]) -> Iterator[Outcome]:
        held: list[Job] = []
        for job in jobs:
            if job is not None and job.name.startswith("ms-") and len(held) < 2:
                held.append(job)
            elif job is not None:
                yield from working(pool, [job])
            elif held:
                yield from working(pool, [held.pop(0)])
            else:
                break
        yield from working(pool, held)

    def ms(given: dict[str, Any]) -> float:
        timed.append(given["hidden_size"])
        return float(given["hidden_size"]) / 64

    def note(given: dict[str, Any], seed: int) -> None:
        if given["epochs"] > 7 and given["hidden_size"] not in timed:
            early.append(given["hidden_size"])

    monkeypatch.setattr(LocalPool, "run", run)
    world.ms, world.after = ms, note
    world.f1 = lambda given, seed: 60 + given["hidden_size"] / 10
    given = settings(corpus, vary=["width", "rate"], hidden_size=256, at_most_ms=3.0, trials=16, budget="9h")
    tune_tagger(given, tmp_path / "run")
    assert len(timed) > 3 and not early


def test_a_limit_that_none_meets_is_told(corpus: str, tmp_path: Path, world: World) -> None:
    found = tune_tagger(settings(corpus, trials=4, at_most_ms=1.0, budget="9h"), tmp_path)
    assert "no others that came to the end take at most 1 ms a sentence; the fastest, 2.00 ms" in found.report
    assert len(found.answer.others) == 1


def test_random_cells_keep_their_runs_with_fewer_of_them(corpus: str, tmp_path: Path, world: World) -> None:
    given = settings(corpus, vary=["layer"], candidates=["gru"], random=6, trials=8, budget="90h")
    first = tune_tagger(given, tmp_path)
    world.done.clear()
    again = tune_tagger(dataclasses.replace(given, random=2), tmp_path)
    assert world.done == [] and again.answer == first.answer


def test_a_part_may_range_over_a_setting_that_is_none(corpus: str, tmp_path: Path, world: World) -> None:
    for sampler in ("random", "tpe"):
        given = settings(corpus, vary=["rate"], trials=8, budget="9h", sampler=sampler)
        tune_tagger(given, tmp_path / sampler, parts={"start": {"init_range": Range(0.01, 0.1, log=True)}})
        assert [point["init_range"] is None for point in world.ledger.points] == [True, True, *[False] * 6]


def test_without_optuna_its_settings_are_refused(
    corpus: str, tmp_path: Path, world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("flair_nas.tune.tuning.has_optuna", lambda: False)
    monkeypatch.setattr("flair_nas.tune.study.has_optuna", lambda: False)
    for changes in ({"sampler": "tpe"}, {"optuna_storage": "sqlite:///x.db"}):
        with pytest.raises(FlairNasError, match=r"need Optuna: pip install 'flair-nas\[tune\]'"):
            tune_tagger(settings(corpus, **changes), tmp_path)
    with caplog.at_level(logging.INFO, "flair_nas"):
        tune_tagger(dataclasses.replace(settings(corpus, trials=3, budget="9h"), sampler=None), tmp_path)
    assert "settings are drawn at random; with Optuna" in caplog.text


def test_without_time_for_a_fast_one_the_best_is_judged(corpus: str, tmp_path: Path, world: World) -> None:
    world.f1 = lambda given, seed: 60 + (0.5 if given["hidden_size"] == 384 else 0.0)
    world.ms = lambda given: given["hidden_size"] / 64
    world.slower = {1: 2.0, 2: 2.0, 3: 2.0}  # so less is left than was planned
    given = settings(corpus, vary=["width"], hidden_size=256, epochs=20, seeds=[1], budget="40m")
    found = tune_tagger(given, tmp_path)
    assert [judged.candidate.settings["hidden_size"] for judged in found.answer.others] == [384]
    assert "there was no time to judge a fast one, lstm-" in found.report and found.answer.fresh
    assert tune_tagger(given, tmp_path).answer == found.answer


def test_a_fast_one_that_fails_with_a_fresh_seed_is_left_out(corpus: str, tmp_path: Path, world: World) -> None:
    world.f1 = lambda given, seed: 60 + given["hidden_size"] / 500
    world.ms = lambda given: given["hidden_size"] / 64
    world.error = lambda given, seed: "not finite" if given["hidden_size"] == 64 and seed == 4 else None
    given = settings(corpus, vary=["width"], hidden_size=256, seeds=[1, 2, 3], budget="9h")
    found = tune_tagger(given, tmp_path)
    assert [judged.candidate.settings["hidden_size"] for judged in found.answer.others] == [384]
    assert judged(found) == ((4, 5, 6), True) and "failed with a fresh seed, so it is left out" in found.report


def test_a_finalist_that_fails_with_a_further_seed_is_in_nobodys_way(corpus: str, tmp_path: Path, world: World) -> None:
    world.error = lambda given, seed: "not finite in epoch 1" if seed == 2 else None
    found = tune_tagger(settings(corpus, trials=8, budget="9h"), tmp_path)
    assert judged(found) == ((4, 5, 6), True)


def test_lowered_epochs_are_gone_on_with_at_a_little_more_time(corpus: str, tmp_path: Path, world: World) -> None:
    small = tune_tagger(settings(corpus, budget="20m"), tmp_path)
    again = tune_tagger(settings(corpus, budget="25m"), tmp_path)
    assert again.config.epochs >= small.config.epochs


def test_an_estimate_opens_no_storage(corpus: str, tmp_path: Path, world: World) -> None:
    estimate_tuning(settings(corpus, optuna_storage=f"sqlite:///{tmp_path}/trials.db"))
    assert not (tmp_path / "trials.db").exists()
