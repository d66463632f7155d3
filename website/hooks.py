"""Hooks of MkDocs: pages that are made from code, pages from outside docs/, links, lists, equations and flowcharts."""

from __future__ import annotations

import ast
import json
import posixpath
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from command_line import command_pages, verbs_table
from equations import replace_equations
from flowchart import to_svg
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from python_api import names_table, python_pages

from flair_nas import bundled_names, load_genotype
from flair_nas.report.writing import write_report

ROOT = Path(__file__).resolve().parents[1]
FROM_OUTSIDE = {"README.md": "readme.md", "CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md"}
FROM_OUTSIDE["benchmarks/README.md"] = "benchmarks.md"
FROM_OUTSIDE |= {
    f"benchmarks/figures/{file.name}": f"figures/{file.name}" for file in ROOT.glob("benchmarks/figures/*")
}
"""Pages from outside docs/, and their names in the site."""

REPORTS = ROOT / "benchmarks" / "results" / "reports"
"""Files of one run or of several, a line for each of its files: each becomes a page by `flair-nas report`."""

PARTS: dict[str, Callable[[], str]] = {"verbs": verbs_table, "names": names_table}
"""What stands in the site for a line such as <!-- site: verbs --> of a page."""

_FENCE = re.compile(r"^(```|~~~).*?^\1 *$", re.M | re.S)


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Draw fences of Mermaid while the site is built."""
    fence = {"name": "mermaid", "class": "mermaid", "format": _format_flowchart}
    config.mdx_configs.setdefault("pymdownx.superfences", {})["custom_fences"] = [fence]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are not in docs/, and the style."""
    pages = {**command_pages(), **python_pages(), "examples.md": _examples(), "cells.md": _cells()}
    for name, path in FROM_OUTSIDE.items():
        pages[path] = (ROOT / name).read_text(encoding="utf-8")
    for path, content in pages.items():
        files.append(File.generated(config, path, content=content))
    for packed in sorted(REPORTS.iterdir()):
        files.append(File.generated(config, f"reports/{packed.stem}.html", content=_report(packed)))
    for file in sorted((ROOT / "website" / "assets").iterdir()):
        files.append(File.generated(config, f"assets/{file.name}", abs_src_path=str(file)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Fill in the parts that are made from code, lead links to pages of the site, and part lists from paragraphs."""
    if not page.parent:
        page.meta["hide"] = ["navigation"]  # it would name this page alone
    if page.file.src_uri.startswith(("commands/", "python/")) or page.file.src_uri in FROM_OUTSIDE.values():
        page.meta["search"] = {"boost": 0.5}  # pages that explain come first
    markdown = re.sub(r"^<!-- site: (\w+) -->$", lambda match: PARTS[match[1]](), markdown, flags=re.M)
    pieces, end = [], 0
    for fence in _FENCE.finditer(markdown):
        pieces += [_adapt(markdown[end : fence.start()], page.file.src_uri), fence[0]]
        end = fence.end()
    return "".join([*pieces, _adapt(markdown[end:], page.file.src_uri)])


def on_page_content(page_html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Typeset the equations."""
    try:
        return replace_equations(page_html)
    except ValueError as error:
        raise PluginError(f"{page.file.src_uri}: {error}") from error


def _adapt(text: str, path: str) -> str:
    """Adapt Markdown that GitHub reads: its links, and lists that begin without an empty line before them."""
    text = re.sub(r"(?<=\]\()([^)\s#]+)(#[^)\s]*)?(?=\))", lambda match: _link(*match.groups(""), path), text)
    return re.sub(r"(?:^|(?<=\n\n))(?![-*] |1\. |\s|\|).+?\n(?=\n|\Z)", _part_list, text + "\n", flags=re.S)[:-1]


def _part_list(block: re.Match[str]) -> str:
    return re.sub(r"\n(?=[-*] |1\. )", "\n\n", block[0], count=1)


def _link(target: str, anchor: str, path: str) -> str:
    """Return where a link of the page at `path` leads in the site."""
    if "://" in target:
        return target + anchor
    source = next((source for source, name in FROM_OUTSIDE.items() if name == path), f"docs/{path}")
    own = posixpath.dirname(source)
    goal = posixpath.normpath(posixpath.join(own, target))  # from the top of the checkout
    folder, _, name = goal.partition("/")
    if goal in FROM_OUTSIDE:
        goal = FROM_OUTSIDE[goal]
    elif goal.startswith("benchmarks/results/reports/"):
        goal = f"reports/{posixpath.basename(goal).removesuffix('.jsonl')}.html"
    elif folder == "examples":
        goal, anchor = "examples.md", f"#{name.replace('.', '')}" if name else ""
    else:
        goal = "cells.md" if goal == "docs/cells" else goal.removeprefix("docs/")
    return posixpath.relpath(goal, posixpath.dirname(path) or ".") + anchor


def _report(packed: Path) -> str:
    """Return the report on the runs of a file."""
    folder = ROOT / "build" / "reports" / packed.stem
    shutil.rmtree(folder, ignore_errors=True)  # it may hold runs of an earlier file
    for line in map(json.loads, packed.read_text(encoding="utf-8").splitlines()):
        file = folder / line["file"]
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(line["text"], encoding="utf-8")
    runs = [folder] if (folder / "config.yaml").exists() else sorted(folder.iterdir())
    page = folder.with_suffix(".html")
    write_report([posixpath.relpath(run, Path.cwd()) for run in runs], page)
    return page.read_text(encoding="utf-8")


def _examples() -> str:
    """Return the page of the scripts in examples/."""
    parts = ["# Examples", "Short scripts to copy, from the folder `examples/` of a checkout."]
    for file in sorted((ROOT / "examples").glob("*.py")):
        code = file.read_text(encoding="utf-8")
        first = (ast.get_docstring(ast.parse(code)) or "").partition("\n\n")[0]
        parts += [f"## {file.name}", first, f"```python\n{code}```"]
    return "\n\n".join(parts)


def _cells() -> str:
    """Return the page of the bundled cells, with their pictures."""
    parts = [
        "# Bundled cells",
        "A box is a node. The operations of its edges stand to its left. Boxes with a thick border make the output. "
        "[Genotypes](genotypes.md#which-cells-are-bundled) says where they come from.",
    ]
    for name in bundled_names():
        parts += [f"## {name}", f"`{load_genotype(name).one_line()}`", f"![The cell {name}](cells/{name}.svg)"]
    return "\n\n".join(parts)


def _format_flowchart(source: str, *_: Any, **__: Any) -> str:
    return to_svg(source)
