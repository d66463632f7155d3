"""Sections on trainings: of language models, of character models, of taggers; and curves that searches have, too."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from flair_nas.report.figures import COLOURS, Curve, Detail, draw_curves
from flair_nas.report.page import Section
from flair_nas.report.reading import JSON, RunFolder, list_settings, number
from flair_nas.runs.duration import duration


class Title(NamedTuple):
    """A metric in a history."""

    text: str
    higher_is_better: bool = False
    log: bool = False


TITLES = {
    "valid_perplexity": Title("valid perplexity", log=True),
    "valid_bits": Title("valid bits per character"),
    "valid_f1": Title("F1 on dev", higher_is_better=True),
    "valid_accuracy": Title("accuracy on dev", higher_is_better=True),
    "valid_cost": Title("mean cost of the tasks"),
    "dev_f1": Title("F1 on dev", higher_is_better=True),
}
"""Metrics by their key in a history; a history has one of them."""


def find_metric(run: RunFolder) -> str:
    """Return the key of a run's metric; empty for a run without a whole epoch."""
    lines = list(itertools.chain(*run.histories.values()))
    return next((key for key in TITLES if any(key in line for line in lines)), "")


def find_title(run: RunFolder, key: str) -> str:
    """Return the name of a run's metric."""
    return "accuracy on dev" if run.figures.get("measure") == "accuracy" and key == "dev_f1" else TITLES[key].text


def get_values(history: Sequence[JSON], key: str) -> list[float | None]:
    """Return the values of a key by epoch; None where it has none."""
    return [number(line.get(key)) for line in history]


def sum_seconds(history: Sequence[JSON]) -> list[float]:
    """Return the time from the start to the end of each epoch, with evaluation."""
    times = [(number(line.get("seconds")) or 0.0) + (number(line.get("evaluation_seconds")) or 0.0) for line in history]
    return list(itertools.accumulate(times))


def get_best(history: Sequence[JSON], key: str) -> list[float | None]:
    """Return the metric of the best candidate at the end of each epoch; None where no candidate is scored."""
    from_loss = {"valid_perplexity": math.exp, "valid_bits": lambda loss: loss / math.log(2)}.get(key)
    best = get_values(history, "best_loss" if from_loss else key.replace("valid_", "best_", 1))
    return [value if value is None or from_loss is None else from_loss(value) for value in best]


def compare_runs(runs: Sequence[RunFolder], detail: Detail) -> Iterator[Section]:
    """Yield a section for each metric, with the curves of all runs in one picture."""
    groups: dict[tuple[str, str], list[RunFolder]] = {}
    for run in runs:
        if key := find_metric(run):
            groups.setdefault((find_title(run, key), key), []).append(run)
    for (title, key), chosen in groups.items():
        by_epoch, by_second, so_far = list[Curve](), list[Curve](), list[Curve]()
        section = Section(f"{title[0].upper()}{title[1:]}")
        for run, colour in zip(chosen, itertools.cycle(COLOURS)):
            dashes = itertools.cycle(("solid", "dash", "dot"))
            for (part, history), dash in zip(run.histories.items(), dashes):
                name, ys = f"{run.name} {part}".strip(), get_values(history, key)
                by_epoch.append(Curve(name, [line["epoch"] for line in history], ys, colour, dash))
                by_second.append(Curve(name, sum_seconds(history), ys, colour, dash))
                if any(best := get_best(history, key)):
                    so_far.append(by_epoch[-1]._replace(ys=best))
        figures = {
            "epochs": draw_curves(by_epoch, f"{title}, by epoch", "epoch", title, detail, log=TITLES[key].log),
            "seconds": draw_curves(by_second, f"{title}, by time", "seconds", title, detail, log=TITLES[key].log),
        }
        if so_far:
            words = f"{title}, the best candidate"
            figures["best"] = draw_curves(so_far, words, "epoch", title, detail, log=TITLES[key].log)
        section.draw(**figures)
        longest = max(len(curve.xs) for curve in by_epoch)
        if longest > detail.points:
            section.add(f"Curves are thinned: {detail.points:,} of {longest:,} epochs are drawn.", "note")
        yield section


def describe_training(run: RunFolder, detail: Detail) -> Section:
    """Return the section on a training."""
    section = begin_section(run)
    section.fold("Final figures", list_settings({k: v for k, v in run.figures.items() if k != "seeds"}))
    section.fold("Settings", list_settings(run.settings))
    return section


def begin_section(run: RunFolder) -> Section:
    """Return a section with the remarks on a run, and a sentence for each of its histories."""
    section = Section(run.name, f"flair-nas {run.kind}, {run.folder}")
    for remark in run.remarks:
        section.add(remark, "remark")
    key, epochs = find_metric(run), run.settings.get("epochs")
    if not key:
        section.add("No epoch has ended yet, so there is nothing to draw.", "remark")
    for part, history in run.histories.items() if key else ():
        values = [(value, line["epoch"]) for value, line in zip(get_values(history, key), history) if value is not None]
        done = f"{len(history):,} of {epochs:,}" if isinstance(epochs, int) and len(history) < epochs else ""
        words = f"{part}: " * bool(part) + (f"{done} epochs so far" if done else f"{len(history):,} epochs")
        words += f" in {duration(sum_seconds(history)[-1])}" if history else ""
        if values:
            best = max(values) if TITLES[key].higher_is_better else min(values)
            words += (
                f"; {find_title(run, key)} {values[-1][0]:.5g} at the end, {best[0]:.5g} at its best (epoch {best[1]})"
            )
        section.add(f"{words}.")
    return section
