"""The text that stands for a layer: a genotype, then options; whatever it is, it is read in no time or refused."""

from __future__ import annotations

import json
import os
import time
import warnings
from pathlib import Path

import pytest

from flair_nas.errors import FlairNasError
from flair_nas.genotype import Genotype
from flair_nas.library.layer_spec import _split_options, parse_layer_spec, warn_of_risks
from flair_nas.tagging.registration import build_rnn


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("darts-v2", ("darts-v2", [])),
        (" darts-v2 , dropout = 0.5,gate=product ", ("darts-v2", [("dropout", "0.5"), ("gate", "product")])),
        ("a,b/c.json,init_range=1", ("a,b/c.json", [("init_range", "1")])),
        ('{"a": 1, "b": [2, 3]}', ('{"a": 1, "b": [2, 3]}', [])),
        ("Genotype(recurrent=[('tanh', 0)], concat=range(1, 2)),highway=no", None),
        ("x,dropout", ("x", [("dropout", "")])),
        ("x,dropout=", ("x", [("dropout", "")])),
        ("x,a=b=c", ("x,a=b=c", [])),
        ("x,,y=1", ("x,", [("y", "1")])),
        ("", ("", [])),
    ],
)
def test_options_follow_after_commas_and_other_commas_stay(
    text: str, expected: tuple[str, list[tuple[str, str]]] | None
) -> None:
    source = text.rpartition(",")[0]
    assert _split_options(text) == (expected or (source, [("highway", "no")]))


@pytest.mark.parametrize(
    "text",
    [
        "a,b=" + " " * 100_000 + "'",  # took three minutes
        "," * 100_000,
        "a" + ",b=c" * 50_000,
        "a," + "=" * 100_000,
        "tanh0-" * 100_000,
        "~nosuchuser/x.json",
        "a\0b.json",
        "half \ud83d of a pair.json",
        "(" * 10_000 + "Genotype(" * 10_000,
        '{"a":' * 100_000,
    ],
)
def test_text_made_to_break_it_is_refused_at_once_and_in_short(text: str) -> None:
    started = time.process_time()
    with pytest.raises(FlairNasError) as caught:
        parse_layer_spec(text, ("LSTM",))
    assert time.process_time() - started < 5  # a tenth of that, here
    assert len(str(caught.value)) < 1500
    str(caught.value).encode()


@pytest.mark.parametrize("name", ["pipe", "pipe.json", "folder/genotype.json"])
def test_a_pipe_that_nobody_writes_to_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / name)
    with pytest.raises(FlairNasError, match="no regular file"):
        parse_layer_spec(str(tmp_path / name))


def test_a_gated_carry_that_nobody_asked_for_is_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    old = Genotype.parse("tanh0/state=tanh").to_dict() | {"version": 1}
    del old["options"]["carry"]
    (tmp_path / "old.json").write_text(json.dumps(old), encoding="utf-8")
    path = str(tmp_path / "old.json")

    def said(text: str) -> str:
        caplog.clear()
        warn_of_risks(text)
        return caplog.text

    assert f"with {path},combine=sum,carry=ungated it cannot" in said(f"{path},combine=sum")
    assert said(f"{path},carry=gated") == said(f"{path},carry=ungated") == said(f"{path},highway=false") == ""
    assert said("tanh0/state=tanh") == said("tanh0") == said("tanh0/input=tanh") == said("ess-ptb") == ""
    assert "use tanh0/input=tanh,gate=product,gate=residual" in said("tanh0/input=tanh,gate=product")
    assert said("lstm") == ""
    with pytest.warns(UserWarning, match="carry=gated, which is what genotype files of version 1 mean"):
        build_rnn(path, input_size=3, hidden_size=4)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        build_rnn(f"{path},carry=gated", input_size=3, hidden_size=4)


@pytest.mark.parametrize("text", ["tanh0-relu1", "tanh0/state=tanh,gate=product,carry=gated", "relu0,highway=False"])
def test_a_text_of_a_genotype_is_read_as_that_genotype(text: str) -> None:
    genotype, _ = parse_layer_spec(text)
    assert parse_layer_spec(f"{text},init_range=0.1") == (genotype, {"init_range": 0.1})
    assert genotype.spec() == text
