"""The report of a tuning, as Markdown."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from pathlib import Path

from flair_nas.errors import as_markdown
from flair_nas.experiments.ledger import Run
from flair_nas.experiments.statistics import epoch_seconds, mean_and_spread
from flair_nas.runs.duration import duration, format_time
from flair_nas.storage.paths import typed
from flair_nas.tune.answer import Answer, Judged, summarize
from flair_nas.tune.candidates import Candidate, describe
from flair_nas.tune.config import TuneSettings
from flair_nas.tune.trials import Trials

ALL_CANDIDATES = "## All settings that were tried"
"""Title of the last section of a report."""


def format_report(answer: Answer, trials: Trials, cautions: Sequence[str], out: Path) -> str:
    """Return the report: answer, cautions, use, and a table of all candidates."""
    config, task, best = trials.config, trials.config.task, answer.recommended.candidate
    lines = [f"# Settings for {as_markdown(str(getattr(config, task.data)))}", ""]
    lines += [f"**{as_markdown(summarize(answer, config))}**", "", *_answer_table(answer, trials), ""]
    lines += [*explain(answer, trials), ""]
    spent = f"{duration(trials.ledger.seconds)} of {duration(config.seconds)}"
    lines += [f"`model.pt` is the {task.model} of {best.name}, of the seed best on {task.dev}. Time: {spent}."]
    more = f"flair-nas {config.verb} --resume {typed(out)} --budget {format_time(2 * config.seconds)}"
    lines += ["", f"To go on with more time: `{more}`."]
    if cautions:
        lines += ["", "Beware:", "", *(f"- {as_markdown(caution)}." for caution in cautions)]
    if not answer.found_nothing:
        settings = best.settings | {"epochs": config.epochs} | task.work.seeded(config.seeds[0])
        lines += ["", *task.work.usage(settings)]
    lines += ["", ALL_CANDIDATES, ""]
    head = (f"best {task.dev} {task.title}", "seeds", "epochs", "ms", "weights", "s / epoch", "MB", "settings")
    lines += [_row("name", *head), "| --- " * (1 + len(head)) + "|"]
    ranked = sorted(trials.candidates, key=lambda c: _rank(c, trials))
    lines += [_describe_row(candidate, trials) for candidate in ranked]
    return "\n".join(lines) + "\n"


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def _answer_table(answer: Answer, trials: Trials) -> list[str]:
    """Return a small table of the baseline and the finalists."""
    title, dev = trials.config.task.title, trials.config.task.dev
    head = ("what", "name", "ms a sentence", f"{dev}, seeds that chose", f"{dev}, judges", f"{title} on {answer.part}")
    lines = [_row(*head, "95 %", "P(better)", "settings"), "| --- " * 9 + "|"]
    titles = ["best", "within the limit" if trials.config.at_most_ms else "fast"]
    rows: list[tuple[str, Judged]] = [("baseline", answer.baseline)] if answer.baseline else []
    for what, judged in [*rows, *zip(titles, answer.others)]:
        chance = "-" if judged.gain is None or answer.found_nothing else f"{judged.gain.probability:.2f}"
        devs = (_best_on_dev(judged.candidate, seeds, trials) for seeds in (trials.config.seeds, answer.judges))
        cells = (_format_ms(judged.candidate, trials), *map(mean_and_spread, devs), f"{judged.figure:.2f}")
        cells += (_range(judged.interval), chance, as_markdown(describe(judged.candidate)))
        lines.append(_row(what, as_markdown(judged.candidate.name), *cells))
    return lines


def _format_ms(candidate: Candidate, trials: Trials) -> str:
    ms = trials.milliseconds(candidate)
    return f"{ms:.2f}" if math.isfinite(ms) else "-"


def _best_on_dev(candidate: Candidate, seeds: Sequence[int], trials: Trials) -> list[float]:
    runs = [trials.run(candidate, seed) for seed in seeds]
    return [trials.config.task.best(run["dev"]) for run in runs if run.get("dev")]


def _range(interval: tuple[float, float]) -> str:
    return f"{interval[0]:.2f} to {interval[1]:.2f}"


def explain(answer: Answer, trials: Trials) -> list[str]:
    """Return what the figures of the answer mean, and how to settle it."""
    config, count = trials.config, len(answer.judges)
    if answer.found_nothing:
        return [f"{suggest_longer_training(config)}."]
    judges = f"{count} {'fresh ' * answer.fresh}seed{'s' * (count > 1)}"
    over = f"over {judges} and sentences" if count > 1 else "over sentences alone, as there is one seed"
    words = [f"P(better): how likely settings are better than the baseline, {over}."]
    for judged in answer.others:
        if judged.gain is not None:
            words.append(
                f"The lead of {judged.candidate.name} is {judged.gain.value:.2f} {config.task.title} "
                f"(95 %: {_range(judged.gain.interval())})."
            )
    tried = len(trials.candidates)
    if tried > 2:
        words.append(
            f"The best of {tried} settings looks better than it is to the seeds that chose it. Fresh seeds did not "
            "choose."
            if answer.fresh
            else f"These seeds chose among {tried} settings, which flatters the best."
        )
    lines = [" ".join(words)]
    if len(answer.others) > 1:
        best, fast = answer.others
        times = [_format_ms(judged.candidate, trials) for judged in (fast, best)]
        lines += [
            "",
            f"{fast.candidate.name} takes {times[0]} ms a sentence, the best {times[1]} ms. Its {config.task.title} "
            f"differs by {fast.figure - best.figure:+.2f}.",
        ]
    if flags := suggest_flags(answer, config):
        lines += ["", f"To settle it, `--resume` once with `{flags}`, which adds seeds."]
    if answer.part != "test":
        lines += ["", f"There is no test part: these figures are of {answer.part}, which chose, and so too good."]
    return lines


def suggest_longer_training(config: TuneSettings) -> str:
    """Return advice for a tuning that found nothing."""
    return (
        f"Train longer (--epochs {2 * config.epochs}, in another folder) and with a larger --budget, or on more "
        "sentences"
    )


def suggest_flags(answer: Answer, config: TuneSettings) -> str:
    """Return the flags for `--resume` that may settle an answer, or an empty string if it is settled."""
    best = answer.others[0].gain if answer.others else None
    if (
        best is None
        or answer.found_nothing
        or len(answer.judges) > 1
        and best.value <= 0
        or answer.is_sure(answer.others[0])
    ):
        return ""
    more = f"--fresh-seeds {max(10, 2 * config.fresh_seeds)} "
    seeds = more if answer.fresh and len(answer.judges) >= config.fresh_seeds else ""  # there was time for all
    return f"{seeds}--budget {format_time(2 * config.seconds)}"


def _rank(candidate: Candidate, trials: Trials) -> tuple[float, float]:
    run, config = trials.run(candidate), trials.config
    if not run.get("dev"):
        return 1.0, 0.0
    reached = config.epochs if trials.has_ended(candidate) else len(run["dev"])
    return -float(reached), config.task.cost(run, config.epochs)


def _describe_row(candidate: Candidate, trials: Trials) -> str:
    """Return the row of a candidate in the table of all."""
    runs = [trials.run(candidate, seed) for seed in trials.config.seeds]
    good: list[Run] = [run for run in runs if run.get("dev")]
    name, changes = as_markdown(candidate.name), as_markdown(describe(candidate))
    if not good:
        error = " ".join(runs[0].get("error", "not begun").split())
        return _row(name, as_markdown(error), *[""] * 6, changes)
    dev = mean_and_spread([trials.config.task.best(run["dev"]) for run in good])
    epochs = statistics.mean(len(run["dev"]) for run in good)
    memory = max(run["peak_memory_mb"] for run in good)
    return _row(
        name, dev, str(len(good)), f"{epochs:.0f}", _format_ms(candidate, trials),
        f"{good[0]['parameters']:,}", f"{epoch_seconds(good):.1f}", f"{memory:,.0f}", changes,
    )  # fmt: skip
