"""The page: sections of text, tables and figures in one HTML file that needs no network."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from html import escape
from string import Template

from flair_nas.drawing.curves import load_template
from flair_nas.drawing.figures import Figure
from flair_nas.errors import FlairNasError
from flair_nas.storage.resources import resource_path

MAX_BYTES = 6_000_000
"""Largest size of a page."""


class Section:
    """A section of a page: a title, and HTML below it. Text that is passed in is escaped."""

    def __init__(self, title: str, note: str = "") -> None:
        self.title, self.note = title, note
        self.parts: list[str] = []
        self.figures: dict[str, Figure] = {}  # by name, for files

    def add(self, text: str, kind: str = "") -> None:
        """Add a paragraph: plain, a ``verdict`` or a ``remark``."""
        self.parts.append(f'<p class="{kind}">{escape(text)}</p>' if kind else f"<p>{escape(text)}</p>")

    def draw(self, **figures: Figure) -> None:
        """Add figures side by side."""
        self.parts.append(f'<div class="plots">{"".join(map(self.place, figures, figures.values()))}</div>')

    def place(self, name: str, figure: Figure) -> str:
        """Keep a figure under a name, and return its HTML."""
        self.figures[name] = figure
        height = figure["layout"]["height"]
        return f'<div class="plot" style="height:{height}px">{script(figure)}</div>'

    def fold(self, title: str, rows: Sequence[Sequence[str]], headers: Sequence[str] = ()) -> None:
        """Add a folded table, if it has rows."""
        if rows:
            self.parts.append(f"<details><summary>{escape(title)}</summary>{table(rows, headers)}</details>")

    def to_html(self) -> str:
        """Return the section as HTML."""
        note = f'<p class="note">{escape(self.note)}</p>' if self.note else ""
        return f"<section><h2>{escape(self.title)}</h2>{note}{''.join(self.parts)}</section>"


def script(data: object) -> str:
    """Return a script element with JSON data, without any ``<``. Its numbers must be finite."""
    text = json.dumps(data, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")
    return f'<script type="application/json">{text}</script>'


def table(rows: Iterable[Sequence[str]], headers: Sequence[str] = ()) -> str:
    """Return a table as HTML, which scrolls sideways on a narrow screen."""
    head = f"<tr>{''.join(f'<th>{escape(text)}</th>' for text in headers)}</tr>" if headers else ""
    body = "".join(f"<tr>{''.join(f'<td>{escape(text)}</td>' for text in row)}</tr>" for row in rows)
    return f'<div class="table"><table>{head}{body}</table></div>'


def load_plotly() -> str:
    """Return the code of plotly.js.

    Raises:
        FlairNasError: Plotly is not installed.
    """
    try:
        from plotly.offline import get_plotlyjs
    except ImportError:
        raise FlairNasError("flair-nas report needs Plotly: pip install 'flair-nas[report]'") from None
    return str(get_plotlyjs())


def to_page(title: str, sections: Sequence[Section], plotly: str) -> str:
    """Return the whole page; `plotly` is the code of plotly.js."""
    body = "\n".join(section.to_html() for section in sections)
    template = Template(resource_path("report", "page.html").read_text(encoding="utf-8"))
    return template.substitute(title=escape(title), body=body, plotly=plotly, template=script(load_template()))
