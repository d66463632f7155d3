"""Sections on searches: the verdict, MAD, drift, and mixing weights and genotype by epoch."""

from __future__ import annotations

import contextlib
import itertools
import json
import re
from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path
from typing import Any

from flair_nas.drawing.curves import COLOURS, Curve, get_values, list_health
from flair_nas.drawing.figures import Detail, Figure, Heat, draw_curves, draw_heat, thin
from flair_nas.errors import FlairNasError
from flair_nas.genotype import OPERATIONS, Genotype
from flair_nas.genotype.order import is_order, read_order
from flair_nas.genotype.picture import to_svg
from flair_nas.report.page import Section
from flair_nas.report.reading import JSON, RunFolder, list_settings
from flair_nas.report.trainings import begin_section, find_metric, find_title


def describe_search(run: RunFolder, detail: Detail) -> Section:
    """Return the section on a search."""
    section, (final, origin) = begin_section(run), _read_result(run.folder / "genotype.json")
    if origin.get("verdict"):
        section.add(f"Verdict: {origin['verdict']}", "verdict")
    elif run.history:
        section.add("There is no verdict: the search gave none, or genotype.json is missing.", "note")
    if run.history:
        if final and final != _parse(run.history[-1]):
            section.add("The genotype is not that of the last epoch: the search selected it at its end.")
            section.parts.append(_draw(final))
        _draw_tasks(section, run.history, detail)
        panels = list_health(run.history) if find_metric(run) else []  # `compare_runs` draws the metric
        section.draw(**{
            panel.y: draw_curves(panel.curves, panel.title, "epoch", panel.y, detail, log=panel.log)
            for panel in panels
        })  # fmt: skip
        _add_epochs(section, run, detail)
    section.fold("Where it is from", list_settings(origin))
    return section


def _read_result(path: Path) -> tuple[Genotype | None, JSON]:
    """Return the genotype and its provenance; no genotype for an order of sublayers, or where it cannot be read."""
    with contextlib.suppress(FlairNasError, OSError):  # not there yet, or damaged
        final = Genotype.load(path)
        return final, dict(final.origin)
    with contextlib.suppress(FlairNasError, OSError, ValueError):
        order = read_order(json.loads(path.read_text(encoding="utf-8")))
        return None, order.origin
    return None, {}


def _draw_tasks(section: Section, history: Sequence[JSON], detail: Detail) -> None:
    """Add a curve of the metric of each task, if the search has several."""
    epochs, figures = [line["epoch"] for line in history], dict[str, Figure]()
    for name, task in history[-1].get("tasks", {}).items():
        key = next((key for key in task if key != "dev_loss"), "dev_loss")
        curve = Curve(name, epochs, get_values(history, "tasks", name, key), COLOURS[0])
        title = f"{name}: {key.removeprefix('dev_')}"
        figures[f"task {name}"] = draw_curves([curve], title, "epoch", title, detail)
    if figures:
        section.draw(**figures)


# --- epoch by epoch ---


def _add_epochs(section: Section, run: RunFolder, detail: Detail) -> None:
    """Add a slider over epochs. It moves the heat maps, the drawn genotype, and a sentence on what changed."""
    history, places = run.history, thin(range(len(run.history)), detail.epochs)
    genotypes = {at: _parse(history[at]) for place in places for at in (place, max(0, place - 1))}
    pictures = {g.one_line(): _draw(g) for place in places if (g := genotypes[place])}
    section.parts.append(
        f'<div class="epochs"><h3>Epoch by epoch</h3><input type="range" min="0" max="{len(places) - 1}" '
        f'value="{len(places) - 1}" aria-label="epoch">'
    )
    for place in places:
        genotype, before = genotypes[place], genotypes[place - 1] if place else None
        shown = list(pictures).index(genotype.one_line()) if genotype else -1
        words = _describe_epoch(run, history[place], before, genotype)
        section.parts.append(f'<p class="epoch" data-genotype="{shown}">{escape(words)}</p>')
    if len(places) < len(history):
        section.add(f"The slider is thinned: it has {len(places)} of {len(history):,} epochs.", "note")
    section.parts += ['<div class="pair"><div>', *pictures.values(), "</div><div>"]
    heats = list(_draw_mixing(run, [history[place] for place in places], [genotypes[place] for place in places]))
    section.parts += [section.place(name, figure) for name, figure in heats]
    legend = "Mixing weights over the even weight: all are 1 before a search. Rings: edges of the genotype."
    section.add(legend if heats else "There are no heat maps: this history has no mixing weights.", "note")
    section.parts.append("</div></div></div>")


def _draw(genotype: Genotype) -> str:
    """Return the picture of a genotype as HTML. The page has the style of all pictures."""
    return f'<figure class="genotype">{re.sub("<style>.*?</style>", "", to_svg(genotype))}</figure>'


def _parse(line: JSON) -> Genotype | None:
    with contextlib.suppress(FlairNasError):
        return Genotype.parse(line["genotype"]) if isinstance(line.get("genotype"), str) else None
    return None


def _describe_epoch(run: RunFolder, line: JSON, before: Genotype | None, now: Genotype | None) -> str:
    """Return a sentence on an epoch: its metric, the share of clear choices, and what changed."""
    metric = find_metric(run)
    (value,), (clear,) = get_values([line], metric.key if metric else ""), get_values([line], "health", "clear")
    words = [f"Epoch {line['epoch']:,}"]
    words += [f"{find_title(run, metric)} {value:.5g}"] if metric and value is not None else []
    words += [f"{clear:.0%} of the choices are clear"] if clear is not None else []
    if now is None:
        order = line.get("genotype")
        words.append(order if isinstance(order, str) and is_order(order) else "this line has no genotype")
    elif before is not None:
        changes = _list_changes(before, now)
        words.append(f"changed since the epoch before: {'; '.join(changes) if changes else 'nothing'}")
    return f"{', '.join(words)}."


def _list_changes(before: Genotype, now: Genotype) -> list[str]:
    """Return the nodes whose edges have changed, such as ``s3: tanh(s0) → relu(s1)``."""
    old, new = dict[str, str](), dict[str, str]()
    for nodes, genotype in ((old, before), (new, now)):
        for _, tail, head, op in _list_edges(genotype):
            nodes[head] = f"{nodes[head]} + {op}({tail})" if head in nodes else f"{op}({tail})"
    changed = [node for node in old | new if old.get(node) != new.get(node)]
    return [f"{node}: {old.get(node, 'none')} → {new.get(node, 'none')}" for node in changed]


def _list_edges(genotype: Genotype) -> Iterator[tuple[str, str, str, str]]:
    """Yield the title of its graph, the tail, the head and the operation of each edge."""
    for graph in genotype.graphs():
        labels = {vertex.key: vertex.label for vertex in graph.vertices}
        for vertex in graph.vertices:
            for op, tail in vertex.reads:
                yield graph.title, labels[tail], vertex.label, op


# --- mixing weights ---


def _draw_mixing(
    run: RunFolder, lines: Sequence[JSON], genotypes: Sequence[Genotype | None]
) -> Iterator[tuple[str, Any]]:
    """Yield a name and a heat map for each table of mixing weights."""
    for prefix in ("", "back_"):
        for table in ("cell", "state_gate", "input_gate"):
            graph = table.replace("_", " ")
            steps = [_scale(line, prefix + table, run.settings.get("relaxation")) for line in lines]
            rows = list(steps[-1])
            if rows and all(list(step) == rows for step in steps):
                heats = []
                for step, genotype in zip(steps, genotypes):
                    edges = _list_edges(genotype) if genotype else ()
                    kept = [(f"{tail} → {head}", op) for title, tail, head, op in edges if title.startswith(graph)]
                    heats.append(Heat([*step.values()], [mark for mark in kept if mark[0] in rows]))
                title = f"{graph}{', back' * bool(prefix)}: mixing weights"
                yield f"mixing-{prefix}{table}", draw_heat(heats, rows, OPERATIONS, title)


def _scale(line: JSON, table: str, relaxation: object) -> dict[str, list[float]]:
    """Return a row of mixing weights for each edge, times the number of choices in its softmax."""
    mixing = line.get("mixing", {})
    edges, entries = mixing.get(table, []), mixing.get(f"{table}_entries", [])
    letter, past = ("s", "") if table.endswith("cell") else ("f", "x") if "state" in table else ("g", "h")
    first = 1 if past else 0
    rows = {
        f"{past}[t-{node}] → {letter}{node}": [round(len(row) * p, 3) for p in row]
        for node, row in enumerate(entries, start=1)
    }
    pairs = ((tail, head) for head in itertools.count(first + 1) for tail in range(first, head))
    for row, (tail, head) in zip(edges, pairs):
        choices = len(row) * (head - first if relaxation == "i-darts" else 1)
        rows[f"{letter}{tail} → {letter}{head}"] = [round(choices * p, 3) for p in row]
    return rows
