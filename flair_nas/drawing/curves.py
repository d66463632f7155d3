"""Curves of a history, as reports and ``progress.svg`` draw them."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from flair_nas.runs.epoch_record import Line
from flair_nas.runs.metric import Metric
from flair_nas.storage.resources import resource_path

PARTS = {"intra": "cell", "inter": "gates"}
"""Names of the parts of an architecture, by their keys in a history."""


class Curve(NamedTuple):
    """A curve; a missing value is None. A curve that is not `named` is drawn faintly, without a legend."""

    name: str
    xs: Sequence[float]
    ys: Sequence[float | None]
    colour: str
    dash: str = "solid"
    named: bool = True
    fill: str = "none"


class Panel(NamedTuple):
    """Curves over epochs in one picture."""

    title: str
    y: str  # label of the axis
    curves: list[Curve]
    log: bool = False


def load_template() -> dict[str, Any]:
    """Return the Plotly template of all figures."""
    template: dict[str, Any] = json.loads(resource_path("report", "template.json").read_text(encoding="utf-8"))
    return template


COLOURS: tuple[str, ...] = tuple(load_template()["layout"]["colorway"])
"""Colours of curves, readable on white and on black. The last is grey."""


def number(value: object) -> float | None:
    """Return a value of JSON data if it is a finite number, else None."""
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return float(value) if is_number and math.isfinite(value) else None  # type: ignore[arg-type]


def get_values(history: Sequence[Line], *path: str) -> list[float | None]:
    """Return the value at a path of keys for each epoch, or None if it is missing."""
    values = []
    for line in history:
        value: Any = line
        for key in path:
            value = value.get(key) if isinstance(value, dict) else None
        values.append(number(value))
    return values


def metric_curve(history: Sequence[Line], metric: Metric, name: str = "", colour: str = COLOURS[0]) -> Curve:
    """Return the metric on dev by epoch."""
    return Curve(name or metric.title, [line["epoch"] for line in history], get_values(history, metric.key), colour)


def list_deviations(history: Sequence[Line]) -> list[Curve]:
    """Return the curves of MAD of cell and gates, the mean absolute deviation of mixing weights from uniform."""
    points = [
        (line["epoch"] - 1 + point["step"] / line["steps"], point)
        for line in history
        for point in line.get("mad_curve", [])
    ]
    return [
        Curve(name, [time for time, _ in points], [number(point.get(part)) for _, point in points], colour)
        for colour, (part, name) in zip(COLOURS, PARTS.items())
        if any(part in point for _, point in points)
    ]


def list_health(history: Sequence[Line]) -> list[Panel]:
    """Return the panels of MAD and drift, of cell and gates, if they have curves."""
    epochs = [line["epoch"] for line in history]
    drifts = [
        Curve(name, epochs, ys, colour)
        for colour, (part, name) in zip(COLOURS, PARTS.items())
        if any(ys := get_values(history, "health", "parts", part, "drift"))
    ]
    panels = [
        Panel("MAD of the mixing weights", "MAD", list_deviations(history)),
        Panel("drift of the architecture weights", "drift", drifts),
    ]
    return [panel for panel in panels if panel.curves]
