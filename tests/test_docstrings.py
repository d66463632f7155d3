"""Each public name has an example in its docstring, and the examples run."""

from __future__ import annotations

import doctest
import inspect
from pathlib import Path

import pytest

import flair_nas
from tests.helpers.select_jobs import run_jobs_here
from website.python_api import GROUPS


@pytest.mark.parametrize("page", GROUPS)
def test_the_examples_of_a_page_run_in_its_order(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Later examples read the files of earlier ones, as the page says."""
    monkeypatch.chdir(tmp_path)
    run_jobs_here(monkeypatch, tmp_path)  # a process for each training of a selection takes seconds to begin
    runner, said = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS), list[str]()
    for name in GROUPS[page][2]:
        text = inspect.getdoc(getattr(flair_nas, name)) or ""
        test = doctest.DocTestParser().get_doctest(text, {}, name, None, None)
        assert test.examples, f"{name} has no example"
        runner.run(test, out=said.append)
    assert not runner.failures, "".join(said)
