"""Sections on trainings of language models, character models and taggers, and curves that searches share."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

from flair_nas.drawing.curves import COLOURS, Curve, get_values, metric_curve
from flair_nas.drawing.figures import Detail, draw_curves
from flair_nas.report.page import Section
from flair_nas.report.reading import JSON, RunFolder, list_settings
from flair_nas.runs.duration import duration
from flair_nas.runs.metric import ACCURACY, METRICS, Metric


def find_metric(run: RunFolder) -> Metric | None:
    """Return the metric of a run, or None if no epoch has ended."""
    lines = [line for history in run.histories.values() for line in history]
    return next((metric for key, metric in METRICS.items() if any(key in line for line in lines)), None)


def find_title(run: RunFolder, metric: Metric) -> str:
    """Return the title of a run's metric. A tagger's history has the accuracy of token labels under the key of F1."""
    title = ACCURACY.title if run.figures.get("measure") == "accuracy" else metric.title
    return f"{title} on dev"


def add_seconds(history: Sequence[JSON]) -> list[float]:
    """Return the seconds from the start of a run to the end of each epoch, with evaluation."""
    pairs = zip(get_values(history, "seconds"), get_values(history, "evaluation_seconds"))
    return list(itertools.accumulate((training or 0.0) + (evaluation or 0.0) for training, evaluation in pairs))


def get_best(history: Sequence[JSON], metric: Metric) -> list[float | None]:
    """Return the metric of the best candidate at the end of each epoch, or None before one is scored."""
    (key,) = metric.best(0.0)
    convert = metric.from_loss or float
    return [value if value is None else convert(value) for value in get_values(history, key)]


def compare_runs(runs: Sequence[RunFolder], detail: Detail) -> Iterator[Section]:
    """Yield a section for each metric, with the curves of all runs in one picture."""
    groups: dict[tuple[str, Metric], list[RunFolder]] = {}
    for run in runs:
        if metric := find_metric(run):
            groups.setdefault((find_title(run, metric), metric), []).append(run)
    for (title, metric), chosen in groups.items():
        by_epoch, by_second, so_far = list[Curve](), list[Curve](), list[Curve]()
        section = Section(f"{title[0].upper()}{title[1:]}")
        for run, colour in zip(chosen, itertools.cycle(COLOURS)):
            for (part, history), dash in zip(run.histories.items(), itertools.cycle(("solid", "dash", "dot"))):
                curve = metric_curve(history, metric, f"{run.name} {part}".strip(), colour)._replace(dash=dash)
                by_epoch.append(curve)
                by_second.append(curve._replace(xs=add_seconds(history)))
                if any(best := get_best(history, metric)):
                    so_far.append(curve._replace(ys=best))
        figures = {
            "epochs": draw_curves(by_epoch, f"{title}, by epoch", "epoch", title, detail, log=metric.log),
            "seconds": draw_curves(by_second, f"{title}, by time", "seconds", title, detail, log=metric.log),
        }
        if so_far:
            words = f"{title}, the best candidate"
            figures["best"] = draw_curves(so_far, words, "epoch", title, detail, log=metric.log)
        section.draw(**figures)
        longest = max(len(curve.xs) for curve in by_epoch)
        if longest > detail.points:
            section.add(f"Curves are thinned: {detail.points:,} of {longest:,} epochs are drawn.", "note")
        yield section


def describe_training(run: RunFolder, detail: Detail) -> Section:
    """Return the section on a training."""
    section = begin_section(run)
    if run.calibration:
        _add_reliability(section, run.calibration, detail)
    figures = {name: figure for name, figure in run.figures.items() if name != "seeds"}
    section.fold("Final figures", list_settings(figures))
    return section


def _add_reliability(section: Section, calibration: JSON, detail: Detail) -> None:
    """Add the share of right labels by their score, before and after the calibration."""
    curves = [Curve("exact scores", [0.0, 1.0], [0.0, 1.0], COLOURS[-1], "dot")]
    for part, colour in zip(("before", "after"), COLOURS):
        scores, shares = zip(*calibration[part]["bins"])
        name = f"{part}, error {calibration[part]['error']:.1f} points"
        curves.append(Curve(name, scores, shares, colour))
    title = f"Scores on {calibration['part']} of {calibration['corpus']}, {calibration['after']['labels']:,} labels"
    section.draw(reliability=draw_curves(curves, title, "mean score", "share of right labels", detail))


def begin_section(run: RunFolder) -> Section:
    """Return a section with the remarks on a run, and a sentence for each of its histories."""
    section = Section(run.name, f"flair-nas {run.kind}, {run.folder}")
    for remark in run.remarks:
        section.add(remark, "remark")
    metric, epochs = find_metric(run), run.settings.get("epochs")
    if not metric:
        section.add("No epoch has ended yet, so there is nothing to draw.", "remark")
        return section
    for part, history in run.histories.items():
        pairs = zip(get_values(history, metric.key), history)
        values = [(value, line["epoch"]) for value, line in pairs if value is not None]
        done = f"{len(history):,} of {epochs:,}" if isinstance(epochs, int) and len(history) < epochs else ""
        words = f"{part}: " * bool(part) + (f"{done} epochs so far" if done else f"{len(history):,} epochs")
        words += f" in {duration(add_seconds(history)[-1])}" if history else ""
        if values:
            best = max(values) if metric.higher_is_better else min(values)
            words += f"; {find_title(run, metric)} {values[-1][0]:.5g} at the end, "
            words += f"{best[0]:.5g} at its best (epoch {best[1]})"
        section.add(f"{words}.")
    return section
