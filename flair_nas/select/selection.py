"""Selection of a layer: rungs of successive halving on dev, several seeds of the best, then fresh ones on test.

OUT/config.yaml      the settings            OUT/runs/NAME-seedN/    a folder of each training
OUT/ledger.json      plan, runs, time spent  OUT/report.md           the answer, with seconds.svg
OUT/model.pt         its model               OUT/model.safetensors   and config.json: a tagger's as data
"""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flair_nas.drawing.charts import draw_seconds
from flair_nas.errors import FlairNasError
from flair_nas.experiments.jobs import Job, Pool
from flair_nas.experiments.ledger import Ledger
from flair_nas.experiments.local_pool import not_while_imported
from flair_nas.experiments.pool import make_pool
from flair_nas.library.layer_spec import warn_of_risks
from flair_nas.runs.duration import duration
from flair_nas.runs.run import open_run
from flair_nas.select.candidates import (
    Candidate,
    Layer,
    list_usual_layers,
    make_candidates,
    matched_lstm,
    named_layers,
    random_layers,
)
from flair_nas.select.config import SelectConfig, SelectSettings, TextSelectConfig
from flair_nas.select.limit import drop_slow
from flair_nas.select.report import PICTURE, Answer, format_report, make_answer, make_points, recommend
from flair_nas.select.runs import Runs
from flair_nas.select.study import Study
from flair_nas.settings.fields import check_config
from flair_nas.storage.files import write_text

log = logging.getLogger("flair_nas")


@dataclass(frozen=True)
class Selection:
    """Result of a selection."""

    answer: Answer  # the better layer, and its lead with a probability
    report: str  # answer and all figures, as Markdown
    out: Path  # folder of the selection
    config: SelectSettings  # settings, as reduced to the budget

    @property
    def recommended(self) -> Candidate:
        """Candidate to use, whose model is saved: the baseline, unless another is surely better."""
        return recommend(self.answer, self.config)


def select_layer(config: SelectSettings, out: str | Path, *, progress: bool = False) -> Selection:
    """Compare recurrent layers on a corpus or text within a budget, and train the best.

    Args:
        config: the settings: a `SelectConfig`, or for a text a `TextSelectConfig`.
        out: a folder that is new or empty, or one of an earlier call. The selection goes on there and trains nothing
            twice, also with another budget or more candidates.
        progress: draw a progress bar while words are embedded.

    Raises:
        FlairNasError: settings, corpus or folder cannot be used. The budget is too small for two layers with the epochs
            of the first rung. No run worked.
        RunStopped: Ctrl-C; the message says how to go on.
        OSError: the folder cannot be written, or the disk is full.

    Example:
        >>> from flair_nas import TextSelectConfig, select_layer
        >>> sizes = {"vocabulary_size": 200, "hidden_size": 8, "batch_size": 32, "bptt": 100, "epochs": 1}
        >>> pool = {"candidates": ["small-tanh"], "random": 0, "match": False, "rates": [1.0], "fresh_seeds": 1}
        >>> config = TextSelectConfig(text="demo", budget="20m", device="cpu", **sizes, **pool)
        >>> selection = select_layer(config, "runs/select")
        >>> selection.recommended.layer.rnn.lower() in ("lstm", "small-tanh")
        True
    """
    not_while_imported()
    check_config(config, SelectConfig, TextSelectConfig)
    for layer in named_layers(config):  # before the corpus is loaded
        warn_of_risks(layer.rnn)
    with (
        open_run(out, config, may_change=config.may_change, quantity="selection", command="flair-nas select") as run,
        make_pool(config) as pool,
    ):
        ledger, folder = Ledger(run.folder / "ledger.json"), run.folder / "runs"
        ledger.begin(run.config.budget)
        study = _make_study(run.config, ledger, pool, folder)
        data = _read(study, progress)  # a fault found here leaves no folder behind
        run.accept()
        folder.mkdir(exist_ok=True)
        try:
            return _select(study, _make_layers(study, data))
        except KeyboardInterrupt:
            ledger.save()  # with the time that was spent since the last run ended
            raise


def estimate_selection(config: SelectSettings, out: str | Path | None = None) -> list[str]:
    """Return sentences on what `select_layer` would compare, within seconds; train and write nothing.

    Args:
        config: the settings.
        out: folder of an earlier call.

    Raises:
        FlairNasError: settings or corpus cannot be used, or the budget is too small.
    """
    not_while_imported()
    named_layers(config)
    with make_pool(config) as pool, tempfile.TemporaryDirectory() as empty:
        ledger = Ledger((Path(empty) if out is None else Path(out)) / "ledger.json")
        ledger.begin(config.budget)
        ledger.check(config.task.work.read(config.one()).fingerprint)
        study = _make_study(config, ledger, pool, Path(empty))
        study.runs.is_estimate = config.engine == "processes"  # machines of a cluster have another pace
        study.fit_settings()
        usual, runs, config = study.choose_usual(), study.runs, study.config
        names = dict.fromkeys(c.layer.name for c in runs.named(usual) if not runs.has_failed(c))
        rates = ", ".join(f"{config.learning_rate * rate:g}" for rate in config.rates)
        epoch, embedding = runs.named_workload().pace.epoch, runs.embedding_seconds
        return [
            f"an epoch takes about {epoch:.1f} s" + f", to embed all words {duration(embedding)}" * (embedding > 1),
            *study.cautions,
            f"compared within {config.budget}: {_join(list(names))}"
            + ", and as many random cells as there is time for" * (config.random is None)
            + f", and {runs.num_pending} more, searched or of equal size" * (runs.num_pending > 0)
            + f"; learning rates {rates}; {config.epochs} epochs",
        ]


def _make_study(config: SelectSettings, ledger: Ledger, pool: Pool, folder: Path) -> Study:
    return Study(Runs(config, ledger, pool, folder, list_usual_layers(config.task)))


def _join(names: Sequence[str], limit: int = 12) -> str:
    return ", ".join(names[:limit]) + f" and {len(names) - limit} more" * (len(names) > limit)


def _read(study: Study, progress: bool) -> Any:
    """Return the data; compute frozen embeddings."""
    work = study.config.task.work
    data = work.read(study.config.one())
    study.ledger.check(data.fingerprint)
    if shortage := work.shortage(data):
        study.warn(f"{shortage}: which layer is the best on it is mostly chance", logging.WARNING)
    study.fit_settings()
    work.prepare(study.config.one(), data, progress)
    study.runs.is_prepared = True
    return data


def _make_layers(study: Study, data: Any) -> list[Layer]:
    """Return the layers that are named, searched on the same data, or matched in size."""
    runs, config, folder = study.runs, study.config, study.runs.folder.parent / "searches"
    layers, jobs = named_layers(config, study.choose_usual()), []
    for name, method in runs.searches_to_do().items():
        folder.mkdir(exist_ok=True)
        jobs.append(Job(name, config.task.work.search, (config.search(method), str(folder / name))))
    if jobs:
        log.info("%d cells are searched on this %s", len(jobs), config.task.data)
    for outcome in runs.pool.run(jobs):
        study.ledger.note(outcome)  # if a search fails, the rest goes on
    layers += runs.searched()
    if config.match:
        matched = matched_lstm(config, config.task.work.counter(data), [*layers, *random_layers(config, 1)])
        # a larger layer than before needs another LSTM; those that were trained stay
        layers += dict.fromkeys([*runs.matched(), *([matched] if matched else [])])
    return drop_slow(runs, layers, study.warn)


def _select(study: Study, layers: list[Layer]) -> Selection:
    """Train and choose; write the report, and copy the model of the recommended layer from its best seed."""
    runs, config, out = study.runs, study.config, study.runs.folder.parent
    cells = random_layers(config, study.count_random(layers))
    if (config.random or 0) * (1 + bool(config.gates)) > len(cells):
        nodes = ", ".join(map(str, config.nodes))
        study.warn(f"no more than {len(cells)} different random cells with {nodes} nodes exist")
    candidates = make_candidates(config, [*layers, *cells])
    if dropped := runs.others(candidates):
        flags = "--candidates, --searches, --random, --rates and --match say what is"
        study.warn(f"trained earlier, and not compared now: {_join(dropped)}; {flags}", logging.WARNING)
    log.info("%d candidates: %s", len(candidates), _join([candidate.name for candidate in candidates]))
    finalists, chose = study.choose(study.prune(candidates))
    fresh = study.judge(finalists)
    judges = fresh or study.judge_by_choosers(finalists, chose)
    if not runs.is_new:
        flags = "--budget, --random, --candidates or --fresh-seeds extend it"
        log.info("%s is finished, so nothing was trained; %s", out, flags)
    scores = [[runs.run(candidate, seed) for seed in judges] for candidate in finalists]
    answer = make_answer(config.task, finalists, scores, judges, fresh=bool(fresh))
    kept = recommend(answer, config)
    best = min([*chose, *fresh], key=lambda seed: runs.cost(kept, seed, config.epochs))
    report = format_report(answer, candidates, study.ledger, config, study.cautions)
    write_text(out / "report.md", report)
    if len(points := make_points(candidates, study.ledger, config)) > 1:
        labels = "seconds an epoch", f"{config.task.title} on {config.task.dev}"
        draw_seconds(points, out / PICTURE, labels, config.task.higher_is_better)
    study.ledger.save()
    model = runs.folder / kept.run(best) / "model.pt"
    if not model.exists():
        again = f"put the folder back, or delete ledger.json and {runs.folder} to train all anew"
        raise FlairNasError(f"{model}, the model to keep, is missing; {again}")
    config.task.work.place(model, out)
    return Selection(answer, report, out, config)
