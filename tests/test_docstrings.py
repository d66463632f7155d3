"""Each public name has an example in its docstring, and the examples run."""

from __future__ import annotations

import doctest
import inspect
from pathlib import Path

import pytest

import flair_nas
from tests.helpers.pool_jobs import run_jobs_here
from website.python_api import PAGES, group_names

EXAMPLES = {name: inspect.getdoc(getattr(flair_nas, name)) or "" for name in flair_nas.__all__}


@pytest.mark.parametrize("page", PAGES)
def test_the_examples_of_a_page_run(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An example that reads the files of another one says so, and runs after it."""
    monkeypatch.chdir(tmp_path)
    run_jobs_here(monkeypatch, tmp_path)  # a process for each training of a selection takes seconds to begin
    runner, said = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS), list[str]()
    for name in sorted(group_names()[page], key=lambda name: "that of the example of" in EXAMPLES[name]):
        test = doctest.DocTestParser().get_doctest(EXAMPLES[name], {}, name, None, None)
        assert test.examples, f"{name} has no example"
        runner.run(test, out=said.append)
    assert not runner.failures, "".join(said)
