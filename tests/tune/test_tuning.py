"""A tuning from end to end: small taggers on a real corpus, in this process where no other is asked for."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pool_jobs import run_jobs_here
from small_tagging import write_corpus

from flair_nas.errors import FlairNasError
from flair_nas.experiments import tagging_task
from flair_nas.experiments.counts import count_file, f1, pack_counts
from flair_nas.experiments.jobs import Job, Outcome
from flair_nas.experiments.ledger import Ledger
from flair_nas.experiments.local_pool import LocalPool
from flair_nas.experiments.tasks import TAGGING
from flair_nas.runs.duration import parse_time
from flair_nas.runs.run import RunStopped
from flair_nas.tagging.prediction import load_tagger
from flair_nas.tune.answer import Answer, make_answer, summarize
from flair_nas.tune.candidates import Candidate, make_candidate
from flair_nas.tune.config import TuneConfig
from flair_nas.tune.parts import Range, current_point, list_layers, make_space
from flair_nas.tune.tuning import Tuning, tune_tagger


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_corpus(tmp_path_factory.mktemp("corpus"))


@pytest.fixture
def jobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    return run_jobs_here(monkeypatch, tmp_path)


def settings(corpus: str, **changes: Any) -> TuneConfig:
    given: dict[str, Any] = {
        "corpus": corpus, "embeddings": ["one-hot", "char"], "vary": ["layer", "rate", "embeddings"], "hidden_size": 8,
        "batch_size": 8, "learning_rate": 1.0, "epochs": 4, "locked_dropout": 0.0, "random": 1, "trials": 5,
        "candidates": ["tanh0-tanh1"], "seeds": [1, 2], "fresh_seeds": 2, "workers": 1, "device": "cpu",
        "sampler": "random",
    }  # fmt: skip
    return TuneConfig(**(given | changes))


def ledger_of(out: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((out / "ledger.json").read_text())
    return found


def untimed(runs: dict[str, Any]) -> dict[str, Any]:
    of_time = ("seconds", "memory_mb", "at", "ms", "ratio")
    return {name: {key: run[key] for key in run if not key.endswith(of_time)} for name, run in runs.items()}


# --- from end to end ---


@pytest.fixture(scope="module")
def whole(corpus: str, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Tuning]:
    """A tuning that nothing stopped, and its folder."""
    folder = tmp_path_factory.mktemp("whole")
    with pytest.MonkeyPatch.context() as patch:
        run_jobs_here(patch, folder)
        return folder / "out", tune_tagger(settings(corpus), folder / "out")


@pytest.mark.slow
def test_the_best_comes_to_the_end_with_the_baseline(whole: tuple[Path, Tuning]) -> None:
    out, found = whole
    ledger = ledger_of(out)
    runs, answer = ledger["runs"], found.answer
    assert len(ledger["points"]) == 5 and ledger["points"][0] == {
        "rnn": "lstm", "learning_rate": 1.0, "embeddings: one-hot": True, "embeddings: char": True,
    }  # fmt: skip
    assert answer.baseline is not None and answer.fresh and answer.judges == (3, 4) and answer.part == "test"
    scored = {name for name, run in runs.items() if "counts" in run}
    names = {judged.candidate.name for judged in (answer.baseline, *answer.others)}
    assert scored == {f"{name}-seed{seed}" for name in names for seed in (3, 4)}
    for judged in (answer.baseline, *answer.others):
        tests = [runs[judged.candidate.run(seed)]["test"] for seed in (3, 4)]
        assert judged.figure == pytest.approx(np.mean(tests)) and judged.interval[0] <= judged.figure
        assert f"| {judged.candidate.name} |" in found.report
    best = answer.others[0]
    assert best.gain is not None and best.gain.value == pytest.approx(best.figure - answer.baseline.figure)
    ms = {name: run for name, run in runs.items() if name.startswith("ms-")}
    assert all(run["ratio"] > 0 and run["ms"] > 0 for run in ms.values()) and len(ms) >= 2
    assert load_tagger(out).tag_type == "ner"
    assert found.report == (out / "report.md").read_text()
    assert "```python" in found.report and "flair-nas tune --resume" in found.report


@pytest.mark.slow
def test_a_tuning_that_is_stopped_goes_on_and_repeats_nothing(
    corpus: str, tmp_path: Path, jobs: list[str], whole: tuple[Path, Tuning], monkeypatch: pytest.MonkeyPatch
) -> None:
    working = LocalPool.run

    def stop_after(done: int) -> None:
        def run(*given: Any) -> Iterator[Outcome]:
            nonlocal done
            for outcome in working(*given):
                if outcome.job.work is tagging_task.train:
                    if done == 0:
                        raise KeyboardInterrupt  # the tagger is trained, and nobody has noted it
                    done -= 1
                yield outcome

        monkeypatch.setattr(LocalPool, "run", run)

    for done in (1, 2, 1):
        stop_after(done)
        with pytest.raises(RunStopped, match="go on with: flair-nas tune --resume"):
            tune_tagger(settings(corpus), tmp_path / "out")
    stop_after(100)
    tune_tagger(settings(corpus), tmp_path / "out")
    assert untimed(ledger_of(tmp_path / "out")["runs"]) == untimed(ledger_of(whole[0])["runs"])
    reports = [(out / "report.md").read_text().splitlines()[2] for out in (whole[0], tmp_path / "out")]
    assert reports[0] == reports[1]
    jobs.clear()
    tune_tagger(settings(corpus, trials=6), tmp_path / "out")
    assert len(ledger_of(tmp_path / "out")["points"]) == 6 and jobs
    shutil.rmtree(tmp_path / "out" / "runs")
    with pytest.raises(FlairNasError, match=r"model\.pt, the model to keep, is missing; .*delete ledger\.json and"):
        tune_tagger(settings(corpus, trials=6), tmp_path / "out")


@pytest.mark.slow
def test_taggers_with_other_embeddings_share_one_process(corpus: str, tmp_path: Path) -> None:
    """Vectors that one tagger left in the corpus are not those of the next, whatever their names."""
    both = settings(corpus, epochs=1, embeddings=["one-hot", "char"])
    for name, specs in (("a", ["one-hot", "char"]), ("b", ["char"]), ("c", ["one-hot", "char"])):
        one = both.run_settings({"embeddings": specs}) | tagging_task.seeded(1)
        tagging_task.train(one, str(tmp_path / name), False)
    losses = [
        json.loads((tmp_path / name / "seed-1" / "history.jsonl").read_text())["dev_loss"] for name in ("a", "b", "c")
    ]
    assert losses[0] == losses[2] != losses[1]


# --- what is refused ---


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"vary": ["layers"]}, "vary has no part layers; did you mean layer.*the parts are layer, rate, width"),
        ({"budget": "soon", "train_with_dev": True}, "budget must be a time above 0.*train_with_dev must be left out"),
        ({"sampler": "grid"}, "sampler must be one of tpe, random"),
        ({"seeds": [1, 1]}, "seeds must be different ones"),
        ({"fresh_seeds": 0}, "fresh_seeds must be a whole number from 1"),
        ({"at_most_ms": -1}, "at_most_ms"),
        ({"ray_address": "auto"}, "ray_address belongs to engine ray"),
    ],
)
def test_settings_that_make_no_tuning_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(FlairNasError, match=message):
        TuneConfig(**changes)


def test_what_cannot_be_tuned_is_refused_before_anything_is_trained(
    corpus: str, tmp_path: Path, jobs: list[str]
) -> None:
    out = tmp_path / "out"
    for changes, message in [
        ({"embeddings": ["word:nothing.gensim"]}, "nothing.gensim does not exist"),
        ({"candidates": ["gru,darts-v2"]}, "separate candidates by blanks, not by commas: gru darts-v2"),
        ({"candidates": ["i-dart"]}, "unknown rnn_type 'i-dart'"),
        ({"vary": ["embeddings"], "embeddings": ["char"]}, "vary embeddings: there is one value only, so nothing can"),
        ({"budget": "0.01s"}, "the budget of 0.01s is too small"),
        ({"corpus": str(tmp_path / "no_dev")}, "dev"),
    ]:
        folder = Path(write_corpus(tmp_path / "no_dev"))
        (folder / "dev.txt").write_text("\n".join(f"{word} O" for word in ["a", "b", "c"]) + "\n")
        with pytest.raises(FlairNasError, match=message):
            tune_tagger(settings(**({"corpus": corpus} | changes)), out)
        assert not out.exists() and not jobs


def test_further_parts_are_checked(corpus: str) -> None:
    config = settings(corpus)
    space = make_space(config, {"clip": {"clip": [1.0, 5.0]}, "patience": {"anneal_factor": Range(0.2, 0.7)}})
    assert space["clip"] == [1.0, 5.0] and space["anneal_factor"] == Range(0.2, 0.7) and "rnn" in space
    for part, message in [
        ({"epochs": [5, 10]}, "part mine: epochs cannot vary"),
        ({"train_with_dev": [True, False]}, "part mine: train_with_dev cannot vary"),
        ({"clip": Range(0.0, 1.0, log=True)}, "part mine: clip is logarithmic, so it must be above 0"),
        ({"corpus": ["demo", "wnut_17"]}, "part mine: corpus cannot vary"),
        ({"batch_size": Range(4, 32)}, "part mine: batch_size takes whole numbers; give a list of them, not a Range"),
        ({"clip": [1.0]}, "part mine: clip has 1 values; give two or more"),
        ({"clip": Range(5.0, 1.0)}, "part mine: clip goes from 5 to 1; swap them"),
        ({"clip": [1.0, -1.0]}, "clip must be a number"),
        ({"clop": [1.0, 2.0]}, "part mine: clop cannot vary; did you mean clip"),
    ]:
        with pytest.raises(FlairNasError, match=message):
            make_space(config, {"mine": part})


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("{", "cannot be read"),
        ('{"format": "flair-nas/tuning", "version": 2}', "version 2, is not"),
        ('{"format": "flair-nas/selection", "version": 1}', "flair-nas/selection, version 1, is not"),
        ('{"format": "flair-nas/tuning", "version": 1, "plan": {}, "runs": {}, "sha256": ""}', "it has changed"),
        ("null", "cannot be read"),
    ],
)
def test_a_ledger_that_is_damaged_or_of_another_version(content: str, words: str, tmp_path: Path) -> None:
    (tmp_path / "ledger.json").write_text(content)
    with pytest.raises(FlairNasError, match=words):
        Ledger(tmp_path / "ledger.json")


@pytest.mark.slow
def test_a_folder_without_its_ledger_or_with_other_settings_is_refused(
    corpus: str, tmp_path: Path, jobs: list[str]
) -> None:
    few: dict[str, Any] = {"trials": 2, "epochs": 1, "seeds": [1], "fresh_seeds": 1}
    tune_tagger(settings(corpus, **few), tmp_path / "out")
    with pytest.raises(FlairNasError, match="holds a tuning with other settings: hidden_size was 8 and is now 9"):
        tune_tagger(settings(corpus, **few, hidden_size=9), tmp_path / "out")
    (tmp_path / "out" / "ledger.json").unlink()
    with pytest.raises(FlairNasError, match=r"ledger\.json is missing, so the time and the results"):
        tune_tagger(settings(corpus, **few), tmp_path / "out")


def test_times_with_their_units() -> None:
    assert [parse_time(text) for text in ("90m", "2h", "1.5h", "30s", "1d", "2", "h")] == [
        5400, 7200, 5400, 30, 86400, None, None,
    ]  # fmt: skip


# --- candidates ---


def test_a_name_depends_on_the_settings_alone(corpus: str, tmp_path: Path) -> None:
    config = settings(corpus)
    point = current_point(config, make_space(config, {})) | {"rnn": "tanh0-tanh1"}
    name = make_candidate(config, point).name
    assert name.startswith("tanh0-tanh1-") and name == make_candidate(settings(corpus, random=5, trials=9), point).name
    same = make_candidate(config, point | {"rnn": "tanh0-tanh1:1.2"}).name  # the same cell
    assert name.rpartition("-")[2] == same.rpartition("-")[2]
    assert name != make_candidate(config, point | {"learning_rate": 0.3}).name
    (tmp_path / "cell.json").write_text((Path(__file__).parents[2] / "resources/genotypes/nao.json").read_text())
    of_file = make_candidate(config, point | {"rnn": str(tmp_path / "cell.json")}).name
    (tmp_path / "cell.json").write_text((Path(__file__).parents[2] / "resources/genotypes/gdas.json").read_text())
    assert of_file != make_candidate(config, point | {"rnn": str(tmp_path / "cell.json")}).name  # another cell


def test_layers_come_once_with_the_baseline_and_the_lstm(corpus: str) -> None:
    names = ["LSTM", "gru", "GRU", "tanh0", "tanh0:1"]
    assert list_layers(settings(corpus, candidates=names, random=0)) == ["lstm", "gru", "tanh0"]
    assert list_layers(settings(corpus, candidates=["rnn"], rnn="gru", random=0)) == ["gru", "lstm", "rnn"]
    usual = list_layers(settings(corpus, candidates=[], random=0))
    assert usual[:2] == ["lstm", "small-relu-tanh"] and {"sru", "mingru", "darts-v2", "ess-ptb"} <= {*usual}
    few, many = (list_layers(settings(corpus, random=count)) for count in (2, 5))
    assert many[: len(few)] == few and len(set(many)) == len(many) == 7


def test_embeddings_that_are_left_out_are_not_used(corpus: str) -> None:
    config = settings(corpus)
    point = current_point(config, make_space(config, {}))
    assert make_candidate(config, point).settings["embeddings"] == ["one-hot", "char"]
    assert make_candidate(config, point | {"embeddings: char": False}).settings["embeddings"] == ["one-hot"]


# --- the answer ---


LSTM, GRU = (Candidate(name, {}, {}) for name in ("lstm", "gru"))


def answer_of(own: list[Any], beside: list[Any], fresh: bool = True) -> Answer:
    def runs(counts: list[Any]) -> list[dict[str, Any]]:
        return [{"counts": pack_counts(np.array(count)), "test": 0.0} for count in counts]

    judges = range(4, 4 + len(own))
    return make_answer(TAGGING, runs(beside), [(GRU, runs(own))], judges, first=LSTM, fresh=fresh)


@pytest.mark.parametrize(
    ("of_gru", "sentence"),
    [
        (46, "Take gru: it is better than the baseline by 6.00 F1, with a probability of 1.00."),
        (34, "Keep the baseline: gru, the best of the others, is not ahead."),
        (40, "Keep the baseline: gru, the best of the others, is not ahead."),
    ],
    ids=["ahead", "behind", "level"],
)
def test_the_answer_is_the_better_one_and_the_baseline_if_they_are_level(of_gru: int, sentence: str) -> None:
    answer = answer_of([[[of_gru, 100, 100]] * 20] * 3, [[[40, 100, 100]] * 20] * 3)
    assert summarize(answer, TuneConfig()) == sentence
    assert answer.recommended.candidate == (GRU if of_gru == 46 else LSTM)


def test_one_seed_does_not_decide() -> None:
    answer = answer_of([[[46, 100, 100]] * 20], [[[40, 100, 100]] * 20])
    assert summarize(answer, TuneConfig()).startswith("Undecided, so keep the baseline: one seed of each")
    assert answer.recommended.candidate == LSTM


def test_where_all_have_found_nothing_none_is_ahead() -> None:
    answer = answer_of([[[0, 0, 100]] * 20] * 2, [[[0, 0, 100]] * 20] * 2)
    assert summarize(answer, TuneConfig()).startswith("Undecided: no settings have learnt anything, as F1 is 0")


def test_no_figure_of_an_interval_is_beyond_what_there_can_be() -> None:
    answer = answer_of([[[right, 1, 1]] * 20 for right in (1, 0, 1)], [[[1, 1, 1]] * 20] * 3)
    assert answer.others[0].figure == pytest.approx(200 / 3) and answer.others[0].interval == (0.0, 100.0)


def test_the_winner_of_48_equal_settings_is_seldom_sure() -> None:
    """All settings are equal but for the noise of seeds and sentences; the best on dev is judged by fresh seeds."""
    source, sure, trials = np.random.default_rng(1), 0, 400

    def found(sentences: np.ndarray, seeds: int) -> list[np.ndarray]:
        right = (source.random((seeds, len(sentences))) < sentences + source.normal(0, 0.02, (seeds, 1))).astype(int)
        return [np.stack([row, np.ones_like(row), np.ones_like(row)], 1) for row in right]

    for _ in range(trials):
        dev, test = (source.uniform(0.2, 0.9, 200) for _ in range(2))
        assert max(float(f1(one.sum(0))) for one in found(dev, 48)) > 0  # the luckiest is taken
        own, beside = found(test, 3), found(test, 3)
        answer = answer_of([*own], [*beside])
        sure += answer.is_sure(answer.others[0])
    assert sure <= 0.05 * trials + 2 * math.sqrt(0.05 * 0.95 * trials)


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


def test_on_the_way_runs_are_compared_by_their_loss() -> None:
    run = {"dev": [0.0, 39.7, 13.1], "dev_loss": [0.5, 0.31, 0.36]}
    assert TAGGING.early_cost(run, 1) == 0.5 and TAGGING.early_cost(run, 3) == 0.31
    assert TAGGING.cost(run, 3) == pytest.approx(-39.7, abs=1e-6)
    unknown = run | {"dev_loss": [0.0, 0.0, 0.0]}  # with labels that are in dev alone there is none
    assert TAGGING.early_cost(unknown, 1) == 0 and TAGGING.early_cost(unknown, 3) == -39.7


@pytest.mark.slow
def test_a_run_goes_on_in_a_process_with_another_number_of_threads(
    corpus: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Go on as a tuning with fewer processes does."""
    monkeypatch.setenv("FLAIR_NAS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("FLAIR_NAS_KERNELS", "columns")
    losses: list[list[float]] = []
    for threads, epochs in ((1, 1), (2, 2)):
        one = settings(corpus).run_settings({"epochs": epochs, "embeddings": ["one-hot"]}) | tagging_task.seeded(1)
        with LocalPool(1, threads=threads) as pool:
            (outcome,) = pool.run([Job("run", tagging_task.train, (one, str(tmp_path / "run"), False))])
        losses.append(outcome.result["dev_loss"])
    assert len(losses[1]) == 2 and losses[1][:1] == losses[0] and all(map(math.isfinite, losses[1]))
