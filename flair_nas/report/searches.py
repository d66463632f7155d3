"""Sections on searches: the verdict, MAD and drift, and epoch by epoch the mixing weights and the genotype."""

from __future__ import annotations

import contextlib
import itertools
import re
from collections.abc import Iterator, Sequence
from html import escape
from typing import Any

from flair_nas.drawing.curves import COLOURS, Curve, get_values, list_panels
from flair_nas.drawing.figures import Detail, Figure, Heat, draw_curves, draw_heat, draw_panel, thin
from flair_nas.errors import FlairNasError
from flair_nas.genotype import OPERATIONS, Genotype
from flair_nas.genotype.picture import to_svg
from flair_nas.report.page import Section
from flair_nas.report.reading import JSON, RunFolder, list_settings
from flair_nas.report.trainings import begin_section, find_metric, find_title

_TABLES = {"cell": "cell", "state_gate": "state gate", "input_gate": "input gate"}


def describe_search(run: RunFolder, detail: Detail) -> Section:
    """Return the section on a search."""
    section, final = begin_section(run), None
    with contextlib.suppress(FlairNasError, OSError):  # not there yet, or damaged
        final = Genotype.load(run.folder / "genotype.json")
    origin: JSON = dict(final.origin) if final else {}
    if origin.get("verdict"):
        section.add(f"Verdict: {origin['verdict']}", "verdict")
    elif run.history:
        section.add("There is no verdict: the search gave none, or genotype.json is missing.", "note")
    if run.history:
        if final and final != _parse(run.history[-1]):
            section.add("The genotype is not that of the last epoch: the search selected it at its end.")
            section.parts.append(_draw(final))
        _draw_tasks(section, run.history, detail)
        metric = find_metric(run)
        panels = list_panels(run.history, metric)[1:] if metric else []  # `compare_runs` draws the metric
        section.draw(**{panel.y: draw_panel(panel, detail) for panel in panels})
        _add_epochs(section, run, detail)
    names = ("method", "corpus", "date", "flair_nas")
    environment = {name: origin[name] for name in names if name in origin}
    environment |= {name: run.settings[name] for name in ("device", "precision", "seed") if name in run.settings}
    section.fold("Environment", list_settings(environment))
    section.fold("Settings", list_settings(run.settings))
    return section


def _draw_tasks(section: Section, history: Sequence[JSON], detail: Detail) -> None:
    """Add a curve of the metric of each task, if the search has several."""
    epochs, tasks = [line["epoch"] for line in history], _get(history[-1], "tasks")
    figures: dict[str, Figure] = {}
    for name, figures_of in (tasks if isinstance(tasks, dict) else {}).items():
        key = next((key for key in figures_of if key != "dev_loss"), "dev_loss")
        ys = get_values(history, "tasks", name, key)
        title = f"{name}: {key.removeprefix('dev_')}"
        figures[f"task {name}"] = draw_curves([Curve(name, epochs, ys, COLOURS[0])], title, "epoch", title, detail)
    if figures:
        section.draw(**figures)


def _get(data: Any, *path: str) -> Any:
    """Return a value of nested dictionaries, or None."""
    for name in path:
        data = data.get(name) if isinstance(data, dict) else None
    return data


# --- epoch by epoch ---


def _add_epochs(section: Section, run: RunFolder, detail: Detail) -> None:
    """Add a slider over epochs, which moves heat maps, the drawn genotype, and a sentence on what changed."""
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
    if heats:
        section.add(
            "Mixing weights over the even weight: all are 1 before a search. Rings: edges of the genotype.", "note"
        )
    else:
        section.add("There are no heat maps: this history has no mixing weights.", "note")
    section.parts.append("</div></div></div>")


def _draw(genotype: Genotype) -> str:
    """Return the picture of a genotype as HTML; the page has the style of all."""
    return f'<figure class="genotype">{re.sub("<style>.*?</style>", "", to_svg(genotype))}</figure>'


def _parse(line: JSON) -> Genotype | None:
    with contextlib.suppress(FlairNasError):
        return Genotype.parse(line["genotype"]) if isinstance(line.get("genotype"), str) else None
    return None


def _describe_epoch(run: RunFolder, line: JSON, before: Genotype | None, now: Genotype | None) -> str:
    """Return a sentence on an epoch: its metric, how clear its choices are, and what changed."""
    metric = find_metric(run)
    (value,), (clear,) = get_values([line], metric.key if metric else ""), get_values([line], "health", "clear")
    words = [f"Epoch {line['epoch']:,}"]
    words += [f"{find_title(run, metric)} {value:.5g}"] if metric and value is not None else []
    words += [f"{clear:.0%} of the choices are clear"] if clear is not None else []
    if now is None:
        words.append("this line has no genotype")
    elif before is not None:
        changes = _list_changes(before, now)
        words.append(f"changed since the epoch before: {'; '.join(changes) if changes else 'nothing'}")
    return f"{', '.join(words)}."


def _list_changes(before: Genotype, now: Genotype) -> list[str]:
    """Return the nodes that read something else than before, such as ``s3: tanh(s0) → relu(s1)``."""
    old, new = (_list_nodes(genotype) for genotype in (before, now))
    nodes = [node for node in dict.fromkeys([*old, *new]) if old.get(node) != new.get(node)]
    return [f"{node}: {old.get(node, 'none')} → {new.get(node, 'none')}" for node in nodes]


def _list_nodes(genotype: Genotype) -> dict[str, str]:
    """Return the edges of each node, such as ``tanh(s0)``."""
    nodes = {}
    for graph in genotype.graphs():
        labels = {vertex.key: vertex.label for vertex in graph.vertices}
        for vertex in graph.vertices:
            if vertex.reads:
                nodes[vertex.label] = " + ".join(f"{op}({labels[tail]})" for op, tail in vertex.reads)
    return nodes


# --- mixing weights ---


def _draw_mixing(
    run: RunFolder, lines: Sequence[JSON], genotypes: Sequence[Genotype | None]
) -> Iterator[tuple[str, Any]]:
    """Yield a name and a heat map for each table of mixing weights in the last of the lines."""
    for prefix in ("", "back_"):
        for table, graph in _TABLES.items():
            steps = [_scale(line, prefix + table, run.settings.get("relaxation")) for line in lines]
            rows = list(steps[-1] or {})
            if rows and all(step is None or list(step) == rows for step in steps):
                none = {row: [None] * len(OPERATIONS) for row in rows}  # an older version wrote that epoch
                heats = [
                    Heat([*(step or none).values()], _list_marks(genotype, graph, rows))
                    for step, genotype in zip(steps, genotypes)
                ]
                title = f"{graph}{', back' * bool(prefix)}: mixing weights"
                yield f"mixing-{prefix}{table}", draw_heat(heats, rows, OPERATIONS, title)


def _scale(line: JSON, table: str, relaxation: object) -> dict[str, list[float]] | None:
    """Return a row of mixing weights for each edge, times the number of choices in its softmax; None without them."""
    edges, entries = _get(line, "mixing", table), _get(line, "mixing", f"{table}_entries") or []
    if not edges and not entries:
        return None
    letter, past, first = (
        ("s", "", 0) if table.endswith("cell") else ("f", "x", 1) if "state" in table else ("g", "h", 1)
    )
    rows = {
        f"{past}[t-{node}] → {letter}{node}": [round(len(row) * p, 3) for p in row]
        for node, row in enumerate(entries, start=1)
    }
    pairs = ((tail, head) for head in itertools.count(first + 1) for tail in range(first, head))
    for row, (tail, head) in zip(edges or [], pairs):
        choices = len(row) * (head - first if relaxation == "i-darts" else 1)
        rows[f"{letter}{tail} → {letter}{head}"] = [round(choices * p, 3) for p in row]
    return rows


def _list_marks(genotype: Genotype | None, title: str, rows: Sequence[str]) -> list[tuple[str, str]]:
    """Return row and column of each edge that a genotype keeps."""
    marks = []
    for graph in genotype.graphs() if genotype else []:
        labels = {vertex.key: vertex.label for vertex in graph.vertices}
        for vertex in graph.vertices if graph.title.startswith(title) else ():
            marks += [(f"{labels[tail]} → {vertex.label}", op) for op, tail in vertex.reads]
    return [mark for mark in marks if mark[0] in rows]
