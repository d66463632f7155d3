"""README, docs, examples and help recommend what the defaults are: one layer, one learning rate, one search."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from flair_nas.cli import main
from flair_nas.language_model.config import LanguageModelConfig
from flair_nas.library.layer_spec import LEARNING_RATE, advised_learning_rate
from flair_nas.library.named import bundled_names
from flair_nas.nn.layers import LAYER_NAMES
from flair_nas.settings.resolve import resolve
from flair_nas.tagging.config import TaggerConfig
from flair_nas.tune.config import TuneConfig

ROOT = Path(__file__).parent.parent
LAYER = TaggerConfig().rnn
SEARCH = "local-search-small"
EXAMPLES = [ROOT / "examples" / name for name in ("demo.py", "search_then_tag.py", "classify_texts.py")]
PAGES = [ROOT / "README.md", *(ROOT / "docs").glob("*.md"), *(ROOT / "docs" / "concepts").glob("*.md"), *EXAMPLES]
"""Pages for users, and examples that reproduce no paper."""


def text_of(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def tag_commands(text: str) -> list[list[str]]:
    """The words of each `flair-nas tag train` in a text."""
    return [shlex.split(c) for c in re.findall(r"^ *flair-nas (tag train [^\n]*)", text.replace("\\\n", " "), re.M)]


def test_readme_names_the_default_layer_and_its_rate() -> None:
    table = re.search(r"\| any tagger on a CPU \| `([^`]+)`, at learning rate ([\d.]+)[, ]", text_of("README.md"))
    assert table and table[1] == LAYER and float(table[2]) == LEARNING_RATE == advised_learning_rate(LAYER)
    small = re.search(r"\| a small language model \| `([^`]+)` \|", text_of("README.md"))
    assert small and small[1] == LanguageModelConfig(text="demo").rnn
    assert f'rnn_type="{LAYER}"' in text_of("docs/index.md")
    assert f"default layer is `{LAYER}`, at learning\nrate {LEARNING_RATE:g}" in text_of("docs/tagging.md")
    assert f"Train taggers at learning rate {LEARNING_RATE:g}" in text_of("docs/layers.md")


def test_help_and_presets_and_tune_agree(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["tag", "train", "--help"])
    out = " ".join(capsys.readouterr().out.split()).replace("small-relu- tanh", LAYER)  # a line may end at a hyphen
    assert f"(default: {LAYER})" in out and f"else {LEARNING_RATE:g})" in out
    assert resolve(TaggerConfig, kind="tagging", preset="small-ner").learning_rate == LEARNING_RATE
    assert TuneConfig().learning_rate == LEARNING_RATE


def test_a_bundled_layer_is_stored_with_a_rate_or_has_the_usual_one() -> None:
    rates = {name: advised_learning_rate(name) for name in (*bundled_names(), *LAYER_NAMES)}
    assert set(rates.values()) == {LEARNING_RATE}, "docs/layers.md has one rate for all"


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_no_page_sets_another_rate_or_needs_the_cell_of_a_paper(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    for command in tag_commands(text):
        assert "--learning-rate" not in command, command
        rnn = command[command.index("--rnn") + 1] if "--rnn" in command else LAYER
        assert rnn == LAYER or rnn in ("lstm", "LSTM") or "/" in rnn or rnn.startswith("transformer:"), command
    for code in re.findall(r"\.train\(([^()]*)\)", text):
        rates = {float(rate) for rate in re.findall(r"learning_rate=([\d.]+)", code)}
        assert rates <= {LEARNING_RATE} or path.name == "classify_texts.py", code  # which has Adam


def test_each_page_that_begins_with_a_search_has_the_same() -> None:
    for page in ("README.md", "docs/search.md"):
        first = re.search(r"flair-nas search --preset (\S+)", text_of(page))
        assert first and first[1] == SEARCH, page
    assert f"--preset {SEARCH}" in text_of("examples/demo.py")
    assert f"--preset {SEARCH}" in text_of("examples/search_then_tag.py")
    assert f"`--preset {SEARCH}`" in text_of("docs/search.md")
