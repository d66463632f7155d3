"""The page of figures has what the kept figures give, and the links of all pages lead somewhere."""

from __future__ import annotations

import math
import re
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.json_lines import holm
from benchmarks.search import found_cells

ROOT = Path(__file__).parent.parent
PAGES = [
    *sorted(ROOT.glob("*.md")),
    *sorted(ROOT.glob("benchmarks/**/*.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
]


@pytest.mark.slow
def test_the_tables_are_those_of_the_kept_figures() -> None:
    done = subprocess.run([sys.executable, "-m", "benchmarks.fill", "--check"], cwd=ROOT)
    assert done.returncode == 0, "run: python -m benchmarks.fill"


def test_cells_and_seeds_are_told_apart() -> None:
    of_cells, of_seeds = {"a": 60.0, "b": 58.0, "c": 59.0}, {1: 0.0, 2: -1.5}
    runs = [
        {"name": name, "seed": seed, "dev_perplexity": of_cells[name] + of_seeds[seed]}
        for name, seed in (("a", 1), ("a", 2), ("b", 2), ("c", 1), ("c", 2))
    ]
    fit = found_cells.fitted([*runs, {"name": "d", "seed": 1, "error": "not finite"}])
    assert fit.cells == pytest.approx({**of_cells, "d": math.inf}) and fit.seeds == pytest.approx({2: -1.5})
    assert fit.noise == pytest.approx(0, abs=1e-20) and fit.models == {"a": 2, "b": 1, "c": 2, "d": 1}
    gain, _, p = found_cells.against(fit, ["b"], ["a", "c"], True)
    assert gain == pytest.approx(1.5) and p == pytest.approx(1 / 3)
    gain, chance, p = found_cells.against(fit, ["b", "d"], ["a", "c"], True)  # one that does not train comes last
    assert gain == pytest.approx(1.5) and math.isnan(chance) and p == pytest.approx(2 / 3)
    assert holm({"x": 0.01, "y": 0.04, "z": 0.03}) == pytest.approx({"x": 0.03, "y": 0.06, "z": 0.06})


def test_models_that_are_compared_were_trained_alike() -> None:
    runs = [run for runs in found_cells.read("retrain").values() for run in runs if "settings" in run]
    assert runs
    for run in runs:
        own = run["settings"]
        assert own["init_range"] == (2 / math.sqrt(own["hidden_size"]) if run["genotype"] else None), run["name"]
        for name in set(own) - {"hidden_size", "seed", "init_range"}:
            assert own[name] == runs[0]["settings"][name], (run["name"], name)


@pytest.mark.parametrize("page", PAGES, ids=[str(page.relative_to(ROOT)) for page in PAGES])
def test_links_lead_to_a_file_and_a_heading(page: Path) -> None:
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if target.startswith("http"):
            continue
        path, _, anchor = target.partition("#")
        other = (page.parent / path).resolve() if path else page
        assert other.exists(), target
        if anchor:
            headings = re.findall(r"^#+ (.*)$", other.read_text(encoding="utf-8"), re.M)
            anchors = [re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings]
            assert anchor in anchors, target
