"""Tune: settings are drawn, trained and pruned on dev, and the best are judged by fresh seeds on test.

OUT/config.yaml      the settings            OUT/runs/NAME-seedN/    a folder of each training
OUT/ledger.json      points, runs, time      OUT/report.md           the answer
OUT/model.pt         its model               OUT/model.safetensors   and config.json: a tagger's as data
"""

from __future__ import annotations

import dataclasses
import logging
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flair_nas.errors import FlairNasError
from flair_nas.experiments.ledger import Ledger
from flair_nas.experiments.local_pool import not_while_imported
from flair_nas.experiments.pool import make_pool
from flair_nas.library.layer_spec import warn_of_risks
from flair_nas.runs.duration import duration
from flair_nas.runs.run import Run, open_run
from flair_nas.settings.fields import check_config
from flair_nas.storage.files import write_text
from flair_nas.storage.paths import user_path
from flair_nas.tune.answer import Answer, make_answer
from flair_nas.tune.candidates import Candidate
from flair_nas.tune.config import DistilConfig, TextTuneConfig, TuneConfig, TuneSettings
from flair_nas.tune.judgement import choose, judge, warn_of_limit
from flair_nas.tune.parts import Space, count_points, make_space
from flair_nas.tune.report import format_report
from flair_nas.tune.sampler import has_optuna
from flair_nas.tune.study import Study

log = logging.getLogger("flair_nas")

_TEACHING = 0.3  # of the budget is for teachers at most


@dataclass(frozen=True)
class Tuning:
    """Result of a tuning."""

    answer: Answer  # the best settings, and their lead with a probability
    report: str  # answer and all figures, as Markdown
    out: Path  # folder of the tuning
    config: TuneSettings  # settings, with the epochs that the budget allowed

    @property
    def recommended(self) -> Candidate:
        """Candidate to use, whose model is saved: the baseline, unless another is surely better."""
        return self.answer.recommended.candidate


def tune_tagger(
    config: TuneConfig, out: str | Path, *, parts: Mapping[str, Space] | None = None, progress: bool = False
) -> Tuning:
    """Find the best settings of a tagger for a corpus within a budget, and train it.

    Args:
        config: the settings; those of a training are the baseline.
        out: a folder that is new or empty, or one of an earlier call. The tuning goes on there and trains nothing
            twice, also with another budget or other parts.
        parts: further parts by name. A part is a dictionary: a setting, and a list of its values or a `Range`.
        progress: draw a progress bar while words are embedded.

    Raises:
        FlairNasError: settings, corpus or folder cannot be used. The budget is too small for two settings with the
            epochs of the first rung. No run worked.
        RunStopped: Ctrl-C; the message says how to go on.
        OSError: the folder cannot be written, or the disk is full.

    Example:
        >>> from flair_nas import TuneConfig, tune_tagger
        >>> small = {"hidden_size": 8, "epochs": 1, "embeddings": ["one-hot"], "trials": 2, "fresh_seeds": 1}
        >>> config = TuneConfig(corpus="demo", vary=["rate"], seeds=[1], budget="20m", device="cpu", **small)
        >>> tuning = tune_tagger(config, "runs/tune")
        >>> tuning.recommended.settings["rnn"]
        'lstm'
    """
    check_config(config, TuneConfig)
    return _tune(config, out, parts or {}, progress)


def tune_language_model(config: TextTuneConfig, out: str | Path, *, parts: Mapping[str, Space] | None = None) -> Tuning:
    """Find the best settings of a language model for a text within a budget, and train it.

    Arguments and errors are those of `tune_tagger`.

    Example:
        >>> from flair_nas import TextTuneConfig, tune_language_model
        >>> sizes = {"vocabulary_size": 200, "hidden_size": 8, "batch_size": 32, "bptt": 100, "epochs": 1}
        >>> few = {"vary": ["rate"], "trials": 2, "seeds": [1], "fresh_seeds": 1}
        >>> config = TextTuneConfig(text="demo", budget="20m", device="cpu", **sizes, **few)
        >>> tune_language_model(config, "runs/text").config.epochs
        1
    """
    check_config(config, TextTuneConfig)
    return _tune(config, out, parts or {}, progress=False)


def distil_tagger(config: DistilConfig, out: str | Path, *, progress: bool = False) -> Tuning:
    """Train a small tagger that learns from large ones on raw text, and judge it beside one that has labels alone.

    Teachers label the text; it may take three tenths of the budget. The rest is a tuning of the weight of what they
    say, whose baseline leaves it out. Arguments and errors are those of `tune_tagger`.

    Example:
        >>> from pathlib import Path
        >>> from flair_nas import DistilConfig, TaggerConfig, distil_tagger, train_taggers
        >>> given = {"corpus": "demo", "device": "cpu", "batch_size": 4}
        >>> config = TaggerConfig(embeddings=["english"], hidden_size=32, epochs=4, **given)
        >>> _ = train_taggers(config, "runs/teacher", progress=False)
        >>> _ = Path("raw.txt").write_text("Dr Helen Marsh lives in Leeds .\\n" * 40)
        >>> small = {"hidden_size": 8, "epochs": 1, "embeddings": ["one-hot"], "trials": 2, "fresh_seeds": 1}
        >>> given |= {"teacher": ["runs/teacher"], "text": "raw.txt", "seeds": [1], "budget": "20m"}
        >>> distil_tagger(DistilConfig(**given, **small), "runs/student").config.epochs
        1
    """
    check_config(config, DistilConfig)
    config = dataclasses.replace(config, taught=str(user_path(out).absolute() / "taught"))

    def label(run: Run[TuneSettings], ledger: Ledger) -> None:
        from flair_nas.tagging.distillation.labelling import label_text  # here, as it loads Flair

        limit = _TEACHING * config.seconds
        try:
            label_text(config, run.accept, lambda: ledger.seconds > limit, progress)
        finally:
            if (run.folder / "config.yaml").exists():
                ledger.save()  # with the time that was spent

    return _tune(config, out, {}, progress, label)


def _tune(
    config: TuneSettings,
    out: str | Path,
    parts: Mapping[str, Space],
    progress: bool,
    label: Callable[[Run[TuneSettings], Ledger], None] | None = None,
) -> Tuning:
    not_while_imported()
    space, command = _check(config, parts), f"flair-nas {config.verb}"
    with (
        open_run(out, config, may_change=config.may_change, quantity="tuning", command=command) as run,
        make_pool(config) as pool,
    ):
        ledger, folder = Ledger(run.folder / "ledger.json"), run.folder / "runs"
        ledger.begin(run.config.budget)
        if label is not None:
            label(run, ledger)
        study = Study(run.config, space, _learn(config), ledger, pool, folder)
        _prepare(study, progress)  # a fault found here leaves no folder behind
        run.accept()
        folder.mkdir(exist_ok=True)
        ledger.save()  # with the time of embedding
        try:
            return _run(study)
        except KeyboardInterrupt:
            ledger.save()  # with the time that was spent since the last run ended
            raise


def estimate_tuning(config: TuneSettings, out: str | Path | None = None) -> list[str]:
    """Return sentences on what a tuning would try, within seconds; train and write nothing.

    Args:
        config: the settings.
        out: folder of an earlier call.

    Raises:
        FlairNasError: settings or corpus cannot be used, or the budget is too small.
    """
    not_while_imported()
    space = _check(config, {})
    with make_pool(config) as pool, tempfile.TemporaryDirectory() as empty:
        ledger = Ledger((Path(empty) if out is None else Path(out)) / "ledger.json")
        ledger.begin(config.budget)
        ledger.check(config.task.work.read(config.run_settings({})).fingerprint)
        study = Study(config, space, _learn(config), ledger, pool, Path(empty))
        study.fit_epochs(here=config.engine == "processes")  # machines of a cluster have another pace
        epochs, pace = study.config.epochs, study.pace(study.baseline)
        embedding = float(ledger.plan.get("estimate", {}).get("embedding_seconds", 0.0))
        each = _mean_seconds(study)
        count = int(max(1, study.end_of_search - embedding) / each * pool.workers)
        most = min(count, config.trials or count, count_points(space))
        return [
            f"an epoch of the baseline takes about {pace.epoch:.1f} s"
            + f", to embed all words {duration(embedding)}" * (embedding > 1),
            *study.cautions,
            f"within {config.budget}: about {most:.0f} settings, {epochs} epochs at most",
        ]


def _mean_seconds(study: Study) -> float:
    """Return the mean seconds of a candidate, if each rung keeps its share."""
    rungs, keep, pace = study.rungs, study.config.task.rule.keep, study.pace(study.baseline)
    steps = zip([0, *rungs], rungs)
    return sum(pace.seconds(until - reached) * keep**rung for rung, (reached, until) in enumerate(steps))


def _check(config: TuneSettings, parts: Mapping[str, Space]) -> dict[str, Any]:
    """Return the space of settings; warn of layers with risks, and if Optuna is missing."""
    space: dict[str, Any] = make_space(config, parts)
    optimizer = config.run_settings({})["optimizer"]
    for layer in space.get("rnn", [config.rnn]):
        warn_of_risks(layer, optimizer)
    if not has_optuna() and (config.sampler == "tpe" or config.optuna_storage):
        raise FlairNasError("sampler tpe and optuna_storage need Optuna: pip install 'flair-nas[tune]'")
    if not has_optuna() and config.sampler is None:
        log.info("settings are drawn at random; with Optuna (pip install 'flair-nas[tune]') by what was found before")
    return space


def _learn(config: TuneSettings) -> list[dict[str, Any]]:
    """Return the best settings of earlier runs.

    Raises:
        FlairNasError: a folder holds no tuning with a result.
    """
    found = []
    for folder in config.learn_from:
        ledger = Ledger(Path(folder) / "ledger.json")
        best = ledger.plan.get("best")
        if best is None:
            raise FlairNasError(f"learn_from: {folder} holds no run of flair-nas tune that has ended")
        found.append(best)
    return found


def _prepare(study: Study, progress: bool) -> None:
    """Read the data, fit the epochs to the budget, and compute frozen embeddings."""
    config, work = study.config, study.config.task.work
    study.open_mirror()
    data = work.read(config.run_settings({}))
    study.ledger.check(data.fingerprint)
    if shortage := work.shortage(data):
        study.warn(f"{shortage}: which settings are the best on it is mostly chance", logging.WARNING)
    if "taught_weight" in study.space:
        study.warn("an epoch with taught weight 0 reads the corpus alone, so it has fewer steps than the others")
    study.fit_epochs()
    work.prepare(config.run_settings({}), data, progress)
    study.is_prepared = True


def _run(study: Study) -> Tuning:
    """Train and choose; write the report, and copy the model of the recommended candidate from its best seed."""
    ledger, config, out = study.ledger, study.config, study.folder.parent
    study.search()
    study.time_finishers()
    warn_of_limit(study)
    finalists, chose = choose(study)
    finalists, judges = judge(study, finalists, chose)
    if not study.is_new:
        log.info("%s is finished, so nothing was trained; --budget or --fresh-seeds extend it", out)
    rows = [(candidate, [study.run(candidate, seed) for seed in judges]) for candidate in finalists]
    beside = [study.run(study.baseline, seed) for seed in judges if "counts" in study.run(study.baseline, seed)]
    answer = make_answer(config.task, beside, rows, judges, first=study.baseline, fresh=not {*judges} & {*config.seeds})
    kept = answer.recommended.candidate
    ledger.plan["finalists judged"] = [candidate.name for candidate in finalists]
    ledger.plan["best"] = (finalists[0] if finalists else kept).settings
    report = format_report(answer, study, study.cautions, out)
    write_text(out / "report.md", report)
    ledger.save()
    trained = [seed for seed in [*config.seeds, *judges] if study.has_ended(kept, seed)]
    best = min(trained, key=lambda seed: config.task.cost(study.run(kept, seed), config.epochs))
    model = study.folder / kept.run(best) / "model.pt"
    if not model.exists():
        again = f"put the folder back, or delete ledger.json and {study.folder} to train all anew"
        raise FlairNasError(f"{model}, the model to keep, is missing; {again}")
    config.task.work.place(model, out)
    return Tuning(answer, report, out, config)
