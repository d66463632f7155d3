"""``flair-nas genotypes``: what each action prints and writes, and what it refuses."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from flair_nas import Genotype, SearchedRNN, load_genotype, random_genotype
from flair_nas.cli import main
from flair_nas.genotype.complexity import edge_depth, edit_distance, multiply_adds
from flair_nas.library.named import bundled_names


def said(capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> str:
    assert main(["genotypes", *words]) == code
    return capsys.readouterr().out


def test_all_bundled_genotypes_are_listed(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    lines = said(capsys, "list", "--hidden-size", "10", "--input-size", "6").splitlines()
    assert [line.split()[0] for line in lines[1:-2]] == list(bundled_names())
    (darts,) = [line for line in lines if line.startswith("darts-v2")]
    weights = 2 * 10 * (6 + 10) + 8 * 2 * 10 * 10
    assert f"{weights:,}  " in darts and f"{2 * weights:,}" in darts and "PTB 55.7" in darts
    dead = said(capsys, "list", "tanh0-relu1-relu0-tanh3:2", "--hidden-size", "10", "--input-size", "6")
    weights = 2 * 10 * (6 + 10) + 4 * 2 * 10 * 10
    assert f"{weights:,}" in dead and f"{2 * (weights - 2 * 200):,}" in dead  # dead nodes take no time
    figures = {"zoo-small: PTB, test perplexity": "62.93 ± 0.20 (3 seeds)", "zoo-small: WNUT-2017, test F1": "31.75"}
    for given, words in ((figures, "PTB 62.93 ± 0.20, WNUT-2017 31.75"), ("none", "-"), ({}, "-")):
        dataclasses.replace(load_genotype("darts-v2"), origin={"figures": given}).save(tmp_path / "cell.json")
        (line,) = said(capsys, "list", str(tmp_path / "cell.json")).splitlines()[1:-2]
        assert line.endswith(f"  {words}")
    assert main(["genotypes", "list", "--hidden-size", "0"]) == 2


def test_one_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    text = said(capsys, "show", "nao")
    assert text.startswith(load_genotype("nao").one_line() + "\ncell:\n  s1 = relu(s0)\n")
    assert "licence of the source's code: GPL-3.0" in text and "depth 6" in text


@pytest.mark.slow
@pytest.mark.parametrize("form", ["svg", "png", "dot", "txt"])
def test_one_is_drawn(form: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / f"cell.{form}"
    assert said(capsys, "draw", "darts-v2", "--out", str(out)) == f"picture: {out}\n"
    begin = {"svg": b"<svg", "png": b"\x89PNG", "dot": b"digraph", "txt": b"cell:"}[form]
    assert out.read_bytes().startswith(begin)


def test_all_are_drawn_and_another_ending_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said(capsys, "draw", "all", "--out", str(tmp_path / "pictures"))
    assert {path.stem for path in (tmp_path / "pictures").glob("*.svg")} == set(bundled_names())
    assert main(["genotypes", "draw", "darts-v2", "--out", str(tmp_path / "cell.gif")]) == 2
    assert "must end in one of .svg, .png, .dot, .txt" in capsys.readouterr().err
    assert not (tmp_path / "cell.gif").exists()


def test_the_pictures_of_the_docs_are_those_of_the_bundled_genotypes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = Path(__file__).parents[2] / "docs" / "cells"
    said(capsys, "draw", "all", "--out", str(tmp_path))
    for name in bundled_names():
        assert (kept / f"{name}.svg").read_text() == (tmp_path / f"{name}.svg").read_text(), (
            "run: flair-nas genotypes draw all --out docs/cells"
        )


def test_two_are_compared(capsys: pytest.CaptureFixture[str]) -> None:
    text = said(capsys, "compare", "tanh0-relu1", "tanh0-relu0-tanh1/state=tanh")
    assert "  s1 = tanh(s0)" in text and "* s2 = relu(s1)" in text and "state gate:" in text
    assert "edit distance: 4 " in text  # a tail, a node, its place among the outputs, the gate's entry
    assert "options differ" not in text


@pytest.mark.parametrize(
    ("names", "expected"), [(["nao"], "required: GENOTYPE"), (["nao", "gdas", "nsas"], "unexpected: 'nsas'")]
)
def test_two_are_compared_and_no_other_number(
    names: list[str], expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["genotypes", "compare", *names]) == 2
    assert expected in capsys.readouterr().err


def test_options_are_compared_too(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    cell = load_genotype("tanh0-relu1")
    cell.save(tmp_path / "one.json")
    dataclasses.replace(cell, highway=False, combine="sum").save(tmp_path / "other.json")
    text = said(capsys, "compare", str(tmp_path / "one.json"), str(tmp_path / "other.json"))
    assert "  s1 = tanh(s0)" in text and "* s1" not in text and "*  " not in text
    changed = [line.split() for line in text.splitlines() if line.startswith("*")]
    assert changed == [
        ["*", "cell", "cell,", "without", "highway"],
        ["*", "highway", "True", "highway", "False"],
        ["*", "combine", "mean", "combine", "sum"],
    ]
    assert "edit distance: 0 " in text and text.rstrip().endswith("options differ")


def test_a_bundled_name_is_checked_and_need_not_be_fetched(capsys: pytest.CaptureFixture[str]) -> None:
    assert "darts-v2: sigmoid0-relu1" in said(capsys, "validate", "darts-v2")
    assert main(["genotypes", "get", "darts-v2"]) == 2
    assert "bundled genotypes need no fetching: flair-nas genotypes list" in capsys.readouterr().err


@pytest.mark.parametrize(
    "text",
    [
        "darts-v2",
        "nao",
        "ess-ptb",
        "tanh0-relu0+tanh1:2",
        "tanh0-relu0+tanh0",
        "tanh0/state=tanh-relu",
        "tanh0-relu1:1",
    ],
)
def test_work_is_what_the_equations_do(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLAIR_NAS_KERNELS", "plain")
    genotype = load_genotype(text)
    layer = SearchedRNN(6, 10, genotype)
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        layer(torch.randn(7, 1, 6))
    assert counter.get_total_flops() == 7 * 2 * multiply_adds(genotype, 6, 10)


def test_distances() -> None:
    a, b = load_genotype("darts-v1"), load_genotype("darts-v2")
    assert edit_distance(a, a) == 0 and edit_distance(a, b) == edit_distance(b, a) == 7
    assert edit_distance(Genotype.parse("tanh0-relu0+tanh1"), Genotype.parse("tanh0-relu0")) == 1
    assert [edge_depth(Genotype.parse(text)) for text in ("tanh0", "tanh0-tanh1-tanh0", "tanh0-tanh1-tanh0:3")] == [
        1,
        2,
        1,
    ]


def test_one_is_drawn_at_random(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "random.json"
    text = said(capsys, "random", "--seed", "3", "--nodes", "5", "--history", "2", "--out", str(out))
    assert text.strip() == random_genotype(3, 5, 1, 2).one_line() == Genotype.load(out).one_line()
    out.write_text("notes")
    assert main(["genotypes", "random", "--out", str(out)]) == 2
    assert "exists and holds no genotype; name another file" in capsys.readouterr().err and out.read_text() == "notes"
    assert main(["genotypes", "random", "--nodes", "0"]) == 2
    assert "at least one node" in capsys.readouterr().err


def test_files_are_checked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good, bad = tmp_path / "good.json", tmp_path / "bad.json"
    random_genotype(1).save(good)
    bad.write_text("{}")
    text = said(capsys, "validate", str(good), str(bad), str(tmp_path / "none.json"), code=2)
    assert f"{good}: {random_genotype(1).one_line()}" in text and text.count("cannot be used: ") == 2
    assert "cannot" not in said(capsys, "validate", str(good))
