"""Another library's error on one short line, and text that Markdown shows as it is."""

from __future__ import annotations

from flair_nas.errors import as_markdown, shown


def test_an_error_is_one_line_that_says_where_it_was_cut() -> None:
    assert shown(ValueError("first line\n  second")) == "ValueError: first line second"
    whole = shown(ValueError("x" * 188))
    assert len(whole) == 200 and not whole.endswith("...")
    cut = shown(ValueError("x" * 189))
    assert len(cut) == 200 and cut.endswith("x...")


def test_markdown_shows_text_as_it_is() -> None:
    assert as_markdown("R&D my_data-2.1") == "R&D my_data-2.1"
    assert as_markdown("a<b>&lt;c|`d`*\\") == r"a\<b\>\&lt;c\|\`d\`\*\\"
