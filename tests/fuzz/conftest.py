"""The report of a round of the long form (`long.py`): how much was tried, and what was found."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from fuzzing import TRIES

FOUND: list[dict[str, str]] = []


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--fuzz-report", metavar="FILE", help="write tries by kind and failures to this file, as JSON")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Function) -> Iterator[None]:
    report = yield
    if report.when == "call" and not report.skipped and not getattr(item.obj, "is_hypothesis_test", False):
        TRIES["cases that are always the same"] += 1
    if report.failed:
        notes = [text for title, text in report.sections if title.startswith("Hypothesis")]
        shown = "\n".join([report.longreprtext, *notes])
        blob = re.search(r"@reproduce_failure\(.*\)", shown)
        FOUND.append({"test": item.nodeid, "blob": blob[0] if blob else "", "shown": shown[-5000:]})
    return report  # type: ignore[return-value]  # what a wrapper gives is the hook's result


def pytest_sessionfinish(session: pytest.Session) -> None:
    path = session.config.getoption("fuzz_report", None)
    if path:
        Path(path).write_text(json.dumps({"tries": TRIES, "found": FOUND}), encoding="utf-8", errors="replace")
