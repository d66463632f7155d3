"""Sections on selections: the answer, the rungs, the curve of each candidate, and the final difference."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.special import stdtr

from flair_nas.drawing.curves import COLOURS, Curve
from flair_nas.drawing.figures import Detail, draw_curves, draw_seeds
from flair_nas.experiments.counts import Counts, unpack_counts
from flair_nas.experiments.ledger import Ledger
from flair_nas.experiments.statistics import Estimate, compare
from flair_nas.experiments.tasks import TAGGING, TEXT, Task
from flair_nas.report.page import Section, table
from flair_nas.report.reading import JSON, RunFolder
from flair_nas.runs.duration import duration
from flair_nas.storage.paths import read_file

_MAX_BYTES = 10_000_000  # of a report


def describe_selection(run: RunFolder, detail: Detail) -> Section:
    """Return the section on a selection, which may have no answer yet."""
    section = Section(run.name, f"flair-nas select, {run.folder}")
    ledger = Ledger(run.folder / "ledger.json")
    task = TAGGING if "corpus" in run.settings else TEXT
    _add_answer(section, run, duration(ledger.seconds))
    if runs := {name: figures for name, figures in ledger.runs.items() if figures.get("dev")}:
        finalists = _find_finalists(ledger)
        _draw_rungs(section, run, task, runs, finalists, detail)
        _draw_difference(section, task, runs, finalists, detail)
    else:
        section.add("No candidate has ended an epoch yet, so there is nothing to draw.", "remark")
    failed = [(_shorten(name), figures["error"]) for name, figures in ledger.runs.items() if "error" in figures]
    section.fold("Failed", failed)
    return section


def _add_answer(section: Section, run: RunFolder, spent: str) -> None:
    """Add the paragraphs and tables of report.md, without its code. Fold the last table, of all candidates."""
    try:
        report = read_file(run.folder / "report.md", _MAX_BYTES).decode()
    except (OSError, ValueError):
        section.add(f"There is no report.md: the selection still runs, or was stopped. {spent} are spent.", "remark")
        return
    blocks = re.sub(r"^```.*?^```", "", report, flags=re.MULTILINE | re.DOTALL).split("\n\n")
    tables = [block for block in blocks if block.lstrip().startswith("|")]
    for block in blocks:
        text = block.strip()
        if text.startswith("|"):
            cells = [[_as_text(cell) for cell in re.split(r" \| ", line.strip("| "))] for line in text.splitlines()]
            if block is tables[-1]:
                section.fold("All candidates", cells[2:], cells[0])
            else:
                section.parts.append(table(cells[2:], cells[0]))
        elif text.startswith("- "):
            for line in text.splitlines():
                section.add(_as_text(line.removeprefix("- ")), "remark")
        elif text and not text.startswith(("#", "![")) and not text.endswith(":"):
            section.add(_as_text(text), "verdict" if text.startswith("**") else "")


def _as_text(markdown: str) -> str:
    """Return a paragraph or cell of report.md without its marks."""
    return re.sub(r"\\([\\`<>&|*])", r"\1", re.sub(r"(?<!\\)(\*\*|`)", "", markdown)).strip()


def _find_finalists(ledger: Ledger) -> list[str]:
    """Return the candidates of the last judgement, the baseline first; an empty list before it."""
    judged = [*ledger.plan.get("fresh", {})]
    match = re.fullmatch(r"\d+ of (\S+)(?: and (\S+))?", judged[-1]) if judged else None
    return [name for name in match.groups() if name] if match else []


def _shorten(name: str) -> str:
    """Return the name of a run or candidate without its digest."""
    return re.sub(r"-[0-9a-f]{6}-rate([\d.e+-]+?)(-seed\d+)?$", r", rate \1\2", name).replace("-seed", ", seed ")


def _draw_rungs(
    section: Section, run: RunFolder, task: Task, runs: JSON, finalists: Sequence[str], detail: Detail
) -> None:
    """Add the rungs as a table, and the curve of each candidate with its first seed."""
    epochs, first = run.settings.get("epochs", 0), (run.settings.get("seeds") or [1])[0]
    rungs = task.rule.rungs(epochs)
    firsts = {name.rpartition("-seed")[0]: figures for name, figures in runs.items() if name.endswith(f"-seed{first}")}
    reached = [sum(len(figures["dev"]) >= rung for figures in firsts.values()) for rung in rungs]
    rows = [(f"{place}", f"{rung}", f"{count}") for place, (rung, count) in enumerate(zip(rungs, reached), start=1)]
    section.parts.append(table(rows, ("rung", "epochs", "candidates that reached it")))
    ordered = sorted(firsts, key=lambda name: name in finalists)  # the last is drawn on top
    others = [name for name in ordered if name not in finalists]
    few = len(others) <= len(COLOURS) - 3  # two are for the finalists, and grey is for many
    colours = dict(zip(others, COLOURS[2:])) if few else {}
    colours |= dict(zip(finalists, (COLOURS[1], COLOURS[0])))
    pictures = {}
    for kind, key, title in (("candidates", "dev", task.title), ("losses", "dev_loss", "loss")):
        curves = []
        for name in ordered:
            ys, colour = firsts[name][key], colours.get(name, COLOURS[-1])
            curves.append(Curve(_shorten(name), range(1, len(ys) + 1), ys, colour, named=name in colours))
        words = f"{title} on {task.dev}"
        pictures[kind] = draw_curves(curves, f"{words}, seed {first}", "epoch", words, detail, at=rungs[:-1])
    section.draw(**pictures)
    section.add("Dotted lines are rungs, where the loss decides which candidates go on.", "note")


def _draw_difference(section: Section, task: Task, runs: JSON, finalists: Sequence[str], detail: Detail) -> None:
    """Add the figures of the finalists by seed, and the distribution of their difference."""
    scored: dict[str, list[Any]] = {name: [] for name in finalists}
    for name, figures in runs.items():
        candidate = name.rpartition("-seed")[0]
        if candidate in scored and "counts" in figures:
            scored[candidate].append(figures)
    if len(scored) < 2 or not all(scored.values()):
        section.add("There is no final difference yet: it needs a scored seed of two candidates.", "note")
        return
    counts: list[list[Counts]] = [[unpack_counts(one["counts"]) for one in figures] for figures in scored.values()]
    baseline, other = map(_shorten, finalists)
    part = "test" if next(iter(scored.values()))[0].get("test") is not None else task.dev
    gain = compare(counts[1], counts[0], task.figure, task.gain(1.0, 0.0))
    seeds = {
        _shorten(name): [float(task.figure(one.sum(0, dtype="float64"))) for one in layer]
        for name, layer in zip(finalists, counts)
    }
    figures = {"seeds": draw_seeds(seeds, f"{task.title} on {part} by seed")}
    if gain.error:
        title = f"gain of {other} over {baseline}"
        figures["difference"] = draw_curves(_trace_density(gain), title, f"{task.title} on {part}", "density", detail)
    section.draw(**figures)
    low, high = gain.interval()
    several = max(map(len, counts)) > 1
    section.add(
        f"The gain is {gain.value:.2f} (95 %: {low:.2f} to {high:.2f}), and above zero with a probability of "
        f"{gain.probability:.2f}, by Student's t over {'seeds and sentences' if several else 'sentences alone'}."
    )


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
