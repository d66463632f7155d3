"""Sections on tunings: the answer, metric and time of each candidate, what parts matter, and the final difference."""

from __future__ import annotations

import dataclasses
import re
import statistics
from collections.abc import Sequence
from html import escape
from typing import Any

import numpy as np
from scipy.special import stdtr

from flair_nas.drawing.curves import COLOURS, Curve
from flair_nas.drawing.figures import Detail, Point, draw_bars, draw_curves, draw_points, draw_seeds, label
from flair_nas.experiments.counts import unpack_counts
from flair_nas.experiments.ledger import Ledger
from flair_nas.experiments.statistics import Estimate, compare
from flair_nas.report.page import Section, table
from flair_nas.report.reading import RunFolder
from flair_nas.runs.duration import duration
from flair_nas.settings.fields import make_settings
from flair_nas.storage.paths import read_file
from flair_nas.tune.candidates import Candidate, describe
from flair_nas.tune.config import DistilConfig, TextTuneConfig, TuneConfig
from flair_nas.tune.parts import EMBEDDED
from flair_nas.tune.trials import Trials

_MAX_BYTES = 10_000_000  # of a report
_BINS = 4  # parts of a range whose means are compared


def describe_tuning(run: RunFolder, detail: Detail) -> Section:
    """Return the section on a tuning, which may have no answer yet."""
    section = Section(run.name, f"flair-nas {run.kind}, {run.folder}")
    ledger = Ledger(run.folder / "ledger.json")
    trials = _read_trials(run, ledger)
    _add_answer(section, run, duration(ledger.seconds))
    if any(trials.run(candidate).get("dev") for candidate in trials.candidates):
        _draw_search(section, trials, detail)
        _draw_curves(section, trials, detail)
        _draw_differences(section, trials, detail)
    else:
        section.add("No candidate has ended an epoch yet, so there is nothing to draw.", "remark")
    failed = [(name, figures["error"]) for name, figures in ledger.runs.items() if "error" in figures]
    section.fold("Failed", failed)
    return section


def _read_trials(run: RunFolder, ledger: Ledger) -> Trials:
    of_tagger = DistilConfig if run.kind == "distil" else TuneConfig
    config = make_settings(of_tagger if "corpus" in run.settings else TextTuneConfig, run.settings)
    return Trials(dataclasses.replace(config, epochs=ledger.plan.get("epochs", config.epochs)), ledger)


def _add_answer(section: Section, run: RunFolder, spent: str) -> None:
    """Add the paragraphs, code and tables of report.md. Fold the last table, of all candidates."""
    try:
        report = read_file(run.folder / "report.md", _MAX_BYTES).decode()
    except (OSError, ValueError):
        section.add(f"There is no report.md: the tuning still runs, or was stopped. {spent} are spent.", "remark")
        return
    blocks = re.findall(r"^```.*?^```$|^\S.*?(?=\n\n|\n?\Z)", report, flags=re.MULTILINE | re.DOTALL)
    for block in blocks:
        if block.startswith("```"):
            section.parts.append(f"<pre>{escape(block.partition(chr(10))[2].removesuffix('```'))}</pre>")
        elif block.startswith("|"):
            lines = [re.split(r"(?<!\\)\|", line.strip()[1:-1]) for line in block.splitlines()]
            head, *rows = [[_as_text(cell) for cell in line] for line in lines]
            if block is blocks[-1]:
                section.fold("All settings that were tried", rows[1:], head)
            else:
                section.parts.append(table(rows[1:], head))
        elif block.startswith("- "):
            for line in block.splitlines():
                section.add(_as_text(line.removeprefix("- ")), "remark")
        elif not block.startswith("#") and not block.endswith(":"):
            section.add(_as_text(block), "verdict" if block.startswith("**") else "")


def _as_text(markdown: str) -> str:
    """Return a paragraph or cell of report.md without its marks."""
    return re.sub(r"\\([\\`<>&|*])", r"\1", re.sub(r"(?<!\\)(\*\*|`)", "", markdown)).strip()


def _draw_search(section: Section, trials: Trials, detail: Detail) -> None:
    """Add metric against time, the best so far, and what parts matter."""
    task, words = trials.config.task, f"{trials.config.task.title} on {trials.config.task.dev}"
    ended = [c for c in trials.candidates if trials.has_ended(c)]
    points = [
        Point(trials.milliseconds(c), task.best(trials.run(c)["dev"]), f"{label(c.name)}<br>{label(describe(c))}")
        for c in ended
        if np.isfinite(trials.milliseconds(c))
    ]
    figures = {}
    if points:
        title = f"{words} and time"
        figures["time"] = draw_points(points, task.higher_is_better, title, "milliseconds a sentence", words)
    if ended:
        times = sorted((trials.run(c).get("at", 0.0) / 3600, task.best(trials.run(c)["dev"])) for c in ended)
        best = [task.best([figure for _, figure in times[: place + 1]]) for place in range(len(times))]
        curve = Curve("best", [hours for hours, _ in times], best, COLOURS[0])
        figures["best"] = draw_curves([curve], "Best so far", "hours", words, detail)
    section.draw(**figures)
    if matter := measure_parts(trials):
        section.draw(parts=draw_bars(matter, f"Share of the variance of {words} by setting"))
        section.add("Figures are those after the first rung, which all candidates reach.", "note")


def measure_parts(trials: Trials) -> dict[str, float]:
    """Return by setting the share of the variance of the metric that it explains after the first rung.

    It is omega squared, which is zero in the mean for a setting that does not matter, and no less than zero here. A
    range has four bins of equally many candidates. A setting with fewer than two candidates a value is left out.
    """
    first, best = trials.rungs[0], trials.config.task.best
    reached = [c for c in trials.candidates if len(trials.run(c).get("dev", ())) >= first]
    figures = [best(trials.run(c)["dev"][:first]) for c in reached]
    total = statistics.pvariance(figures) * len(figures) if figures else 0.0
    if len(reached) < 2 * _BINS or not total:
        return {}
    shares = {}
    for name in reached[-1].point:
        groups = _group([c.point.get(name) for c in reached], figures)
        if len(figures) < 2 * len(groups):
            continue
        within = sum(statistics.pvariance(group) * len(group) for group in groups)
        error = within / (len(figures) - len(groups))
        share = (total - within - (len(groups) - 1) * error) / (total + error)
        shares[name.removeprefix(EMBEDDED)] = max(0.0, share)
    return dict(sorted(shares.items(), key=lambda entry: -entry[1]))


def _group(values: Sequence[Any], figures: Sequence[float]) -> list[list[float]]:
    """Return figures by value, or by bin if values are numbers of a range."""
    if all(isinstance(value, float) for value in values) and len(set(values)) > _BINS:
        return [part.tolist() for part in np.array_split(np.array(figures)[np.argsort(values)], _BINS)]
    groups: dict[str, list[float]] = {}
    for value, figure in zip(values, figures):
        groups.setdefault(str(value), []).append(figure)
    return list(groups.values())


def _draw_curves(section: Section, trials: Trials, detail: Detail) -> None:
    """Add the rungs as a table, and the curve of each candidate with its first seed."""
    task, seed = trials.config.task, trials.config.seeds[0]
    begun = [c for c in trials.candidates if trials.run(c).get("dev")]
    reached = [sum(len(trials.run(c)["dev"]) >= rung for c in begun) for rung in trials.rungs]
    rows = [(f"{at}", f"{rung}", f"{count}") for at, (rung, count) in enumerate(zip(trials.rungs, reached), start=1)]
    section.parts.append(table(rows, ("rung", "epochs", "candidates that reached it")))
    finalists = _find_finalists(trials)
    colours = {c.name: COLOURS[place] for c, place in zip(finalists, (1, 0, 2))}
    pictures = {}
    for kind, key, title in (("candidates", "dev", task.title), ("losses", "dev_loss", "loss")):
        curves = []
        for candidate in sorted(begun, key=lambda c: c in finalists):  # the last is drawn on top
            ys, name = trials.run(candidate)[key], candidate.name
            curves.append(Curve(name, range(1, len(ys) + 1), ys, colours.get(name, COLOURS[-1]), named=name in colours))
        words = f"{title} on {task.dev}"
        pictures[kind] = draw_curves(curves, f"{words}, seed {seed}", "epoch", words, detail, at=trials.rungs[:-1])
    section.draw(**pictures)
    section.add("Dotted lines are rungs, where the loss decides which candidates go on.", "note")


def _find_finalists(trials: Trials) -> list[Candidate]:
    """Return the baseline, and the candidates of the last judgement."""
    names = trials.ledger.plan.get("finalists judged", [])
    return [trials.candidates[0], *(c for c in trials.candidates[1:] if c.name in names)]


def _draw_differences(section: Section, trials: Trials, detail: Detail) -> None:
    """Add the figures of the finalists by seed, and the distributions of their leads."""
    task, finalists = trials.config.task, _find_finalists(trials)
    scored = [seed for seed in trials.config.fresh() if all("counts" in trials.run(c, seed) for c in finalists)]
    if len(finalists) < 2 or not scored:
        section.add("There is no final difference yet: it needs a scored seed of two candidates.", "note")
        return
    runs = {c.name: [trials.run(c, seed) for seed in scored] for c in finalists}
    part = "test" if runs[finalists[0].name][0].get("test") is not None else task.dev
    counts = {name: [unpack_counts(run["counts"]) for run in own] for name, own in runs.items()}
    seeds = {name: [float(task.figure(one.sum(0, dtype="float64"))) for one in own] for name, own in counts.items()}
    figures = {"seeds": draw_seeds(seeds, f"{task.title} on {part} by seed")}
    (baseline, beside), *others = counts.items()
    for number, (name, own) in enumerate(others):
        gain = compare(own, beside, task.figure, task.gain(1.0, 0.0))
        if gain.error:
            title, key = f"lead of {name} over {baseline}", f"difference{number or ''}"
            figures[key] = draw_curves(_trace_density(gain), title, f"{task.title} on {part}", "density", detail)
    section.draw(**figures)


def _trace_density(gain: Estimate) -> list[Curve]:
    """Return the density of a gain as two curves, below zero and above, within four standard errors."""
    low, high = gain.interval()
    low, high = min(low, gain.value - 4 * gain.error, 0.0), max(high, gain.value + 4 * gain.error, 0.0)
    xs = np.union1d(np.linspace(low, high, 121), 0.0)
    ys = np.gradient(stdtr(gain.freedom, (xs - gain.value) / gain.error), xs)
    sides = {"below zero": (COLOURS[1], xs <= 0), "above zero": (COLOURS[0], xs >= 0)}
    return [
        Curve(name, xs[side].tolist(), ys[side].tolist(), colour, fill="tozeroy")
        for name, (colour, side) in sides.items()
        if side.sum() > 1
    ]
