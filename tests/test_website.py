"""The site's own pages: their code runs, their lines are short, and they name every environment variable."""

from __future__ import annotations

import ast
import importlib
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from flair_nas.cli.command import build_parser

ROOT = Path(__file__).parent.parent
NAMES = (
    *("index", "getting_started", "environment", "commands/index", "python/index"),
    *("pytorch", "sharing", "resuming", "cluster"),
    *("concepts/cell", "concepts/gates", "concepts/supernet", "concepts/trust"),
)
PAGES = {name: (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8") for name in NAMES}
CODE = {name: "\n".join(re.findall(r"^```python\n(.*?)^```$", text, re.M | re.S)) for name, text in PAGES.items()}
COMMANDS = {
    command.replace("\\\n", " ")
    for text in PAGES.values()
    for block in re.findall(r"^```(?:sh|text)\n(.*?)^```$", text, re.M | re.S)
    for command in re.findall(r"^(?:[A-Z_]+=\S+ )?flair-nas ((?:.|(?<=\\)\n)+)", block, re.M)
}
VALUES = {"ON", "YES", "TRUE"}
"""Texts in capitals that are values of a variable, not its name."""


@pytest.fixture
def website(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A function that imports a module of website/."""

    def load(name: str) -> ModuleType:
        return importlib.import_module(name)

    monkeypatch.syspath_prepend(str(ROOT / "website"))
    return load


def variables(tree: ast.Module) -> set[str]:
    """Names of environment variables that functions read: all texts in capitals beside `os.environ`."""
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    reading = [node for node in functions if "os.environ" in ast.unparse(node)]
    texts = {node.value for function in reading for node in ast.walk(function) if isinstance(node, ast.Constant)}
    return {text for text in texts if isinstance(text, str) and re.fullmatch(r"[A-Z][A-Z_]+", text)} - VALUES


@pytest.mark.slow
def test_the_code_of_the_pages_runs(tmp_path: Path) -> None:
    # in one process, as Flair takes seconds to import; a traceback names the page
    lines = [f"exec(compile({code!r}, {name!r}, 'exec'), {{}})" for name, code in CODE.items() if code]
    code, count = re.subn(r"epochs=\d+", "epochs=1", "\n".join(lines))
    assert count > 1  # the trainings of the first steps
    command = [sys.executable, "-c", code]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    result = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=600)
    assert result.returncode == 0, result.stderr[-3000:]


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_the_commands_of_a_page_have_the_flags_that_they_use(command: str) -> None:
    _, unknown = build_parser().parse_known_args(shlex.split(command, comments=True))
    assert not unknown


@pytest.mark.parametrize("name", PAGES)
def test_a_page_says_what_it_is_for(name: str) -> None:
    prose = re.sub(r"^```.*?^```$", "", PAGES[name], flags=re.M | re.S)
    assert "After this page you" in " ".join(prose.split("\n\n")[1].split())


def test_lines_of_prose_are_short() -> None:
    for page in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "benchmarks").rglob("*.md")]:
        prose = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)
        long = [line for line in prose.splitlines() if len(line) > 120 and not line.startswith(("|", "!["))]
        assert not long, (page, long)


def test_the_first_steps_are_short() -> None:
    assert len(PAGES["getting_started"].split()) <= 700


def test_every_environment_variable_has_a_row() -> None:
    used = set()
    for file in sorted((ROOT / "flair_nas").rglob("*.py")):
        text = file.read_text(encoding="utf-8")
        assert "getenv" not in text, file
        used |= {*re.findall(r"\bFLAIR_NAS_[A-Z_]+\b", text), *variables(ast.parse(text))}
    rows = re.findall(r"^\| `(\w+)` \|", PAGES["environment"].partition("## Read by libraries")[0], re.M)
    assert sorted(rows) == sorted(used)


def test_every_public_name_has_an_entry(website: Any) -> None:
    pages = website("python_api").python_pages()
    assert "::: flair_nas.SearchedRNN" in pages["python/layers.md"]


def test_every_flag_has_a_row(website: Any) -> None:
    commands = website("command_line")
    pages = commands.command_pages()
    page = pages["commands/tag.md"]
    assert "<code>--hidden-size</code>" in page and "a whole number from 1 to 1,000,000</td><td>256" in page
    assert "<code>--reproject-embeddings</code>, <code>--no-reproject</code>" in page
    assert "one of text, tagging, classification, several" in pages["commands/search.md"]
    assert "i-darts-small" in pages["commands/search.md"]
    table = commands.verbs_table()
    assert "(tag.md#flair-nas-tag-train)" in table and re.search(r"^\| 130 \| stopped", table, re.M)


def test_equations_become_mathml_or_an_error(website: Any) -> None:
    pytest.importorskip("latex2mathml", reason="the extra docs is not installed")
    replace = website("equations").replace_equations
    marked = r'<p><span class="arithmatex">\(a &lt; \sigma\)</span></p>'
    assert re.fullmatch(r"<p><math.*?<mi>a</mi><mo>&#x0003C;</mo><mi>&#x003C3;</mi>.*</math></p>", replace(marked))
    assert 'display="block"' in replace('<div class="arithmatex">\\[x\\]</div>')
    with pytest.raises(ValueError, match=r"unknown command \\sigmoid"):
        replace(r'<span class="arithmatex">\(\sigmoid\)</span>')


def test_flowcharts_become_pictures_or_an_error(website: Any) -> None:
    to_svg = website("flowchart").to_svg
    picture = to_svg("flowchart TD\n    a --> b & c --> d\n    subgraph x\n    a --> d\n    end\n")
    assert picture.count("<rect") == 4 and picture.count("marker-end") == 5
    with pytest.raises(ValueError, match="no chain of a flowchart:     a ==> b"):
        to_svg("flowchart TD\n    a ==> b\n")


def test_links_and_lists_of_github_become_those_of_the_site(website: Any) -> None:
    pytest.importorskip("mkdocs", reason="the extra docs is not installed")
    adapt = website("hooks")._adapt
    assert adapt("[a](../README.md#x) [b](../examples/demo.py) [c](cells)", "tagging.md") == (
        "[a](readme.md#x) [b](examples.md#demopy) [c](cells.md)"
    )
    assert adapt("[a](docs/results.md#x) [b](CHANGELOG.md)", "readme.md") == "[a](results.md#x) [b](changelog.md)"
    assert adapt("[a](../results.md) [b](#x) [c](https://a.b/c)", "concepts/cell.md") == (
        "[a](../results.md) [b](#x) [c](https://a.b/c)"
    )
    assert adapt("These:\n- a\n- b\n\nText\n", "index.md") == "These:\n\n- a\n- b\n\nText\n"
    assert adapt("- a\n  b\n- c", "index.md") == "- a\n  b\n- c"
