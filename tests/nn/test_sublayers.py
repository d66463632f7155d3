"""Transformers by the order of their sublayers: the order, the equations, and their use in taggers and on text."""

from __future__ import annotations

import math
import sys
from pathlib import Path

import pytest
import torch
from flair.data import Sentence
from flair.models import SequenceTagger
from small_language_model import settings as text_settings
from small_language_model import write_text_folder
from small_tagging import settings, write_corpus
from torch import Tensor
from torch.nn.utils.rnn import pack_sequence, pad_packed_sequence

from flair_nas import FlairNasError, load_language_model, load_tagger, train_language_model, train_taggers
from flair_nas.cli import main
from flair_nas.genotype.order import is_order, parse_order, read_order
from flair_nas.nn.sublayers import SublayerTransformer

x_transformers = pytest.importorskip("x_transformers", reason="the extra transformer is not installed")


def layer(spec: str, size: int = 5, hidden: int = 8, **options: bool) -> SublayerTransformer:
    torch.manual_seed(0)
    return SublayerTransformer(size, hidden, parse_order(spec), batch_first=True, **options).double().eval()


# --- orders ---


@pytest.mark.parametrize(("n", "k"), [(n, k) for n in range(1, 13) for k in range(n)])
def test_a_sandwich_is_that_of_the_definition_and_of_the_library(n: int, k: int) -> None:
    letters = parse_order(f"transformer:sandwich-{k}-{n}").letters
    assert letters == "s" * k + "sf" * (n - k) + "f" * k and len(letters) == 2 * n
    given = {"sandwich_coef": k} if k else {}
    built = x_transformers.Encoder(dim=4, depth=n, heads=1, attn_dim_head=4, **given)
    assert "".join(built.layer_types) == letters.replace("s", "a")


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("transformer", "got no order"),
        ("transformer:", "got no order"),
        ("transformer:sandwich-3-3", "K must be below N, got 3 and 3"),
        ("transformer:safe", "got 'safe'"),
        ("transformer:sf,layers=2", "options are heads and dropout; got 'layers=2'"),
        ("transformer:sf,heads=0", "got 'heads=0'"),
        ("transformer:sf,heads=2,heads=2", "got 'heads=2'"),
        ("transformer:sf,dropout=0.00001", "got 'dropout=0.00001'"),
        ("transformer:sf,dropout=1", "got 'dropout=1'"),
        ("transformer:" + "sf" * 501, "at most 1,000 sublayers, got 1,002"),
        ("transformer:sandwich-0-9999", "at most 1,000 sublayers, got 19,998"),
    ],
)
def test_a_faulty_order_is_refused_in_a_line(spec: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tag", "train", "--rnn", spec, "--out", "never"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("flair-nas: --rnn 'transformer") and message in line


@pytest.mark.parametrize(
    ("spec", "size", "message"),
    [
        ("transformer:sf", 10, "4 heads do not fit hidden_size 10; it can be 8 or 12"),
        ("transformer:sf", 1, "4 heads do not fit hidden_size 1; it can be 8 or 12"),
        ("transformer:sf,heads=7", 1000, "7 heads do not fit hidden_size 1000; it can be 994 or 1001"),
    ],
)
def test_sizes_that_do_not_fit_name_the_next(spec: str, size: int, message: str) -> None:
    with pytest.raises(FlairNasError, match=message):
        layer(spec, hidden=size, bidirectional=True)
    for fit in map(int, message.split(" be ")[1].split(" or ")):
        layer(spec, hidden=fit, bidirectional=True)


def test_the_library_and_one_layer_are_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(FlairNasError, match="layers must be 1, got 2"):
        SublayerTransformer(5, 8, parse_order("transformer:sf"), num_layers=2)
    monkeypatch.setitem(sys.modules, "x_transformers", None)  # what is None is not imported
    with pytest.raises(FlairNasError, match=r"not installed: pip install 'flair-nas\[transformer\]'"):
        layer("transformer:sf")


def test_a_path_that_begins_alike_is_a_path() -> None:
    assert is_order("Transformer:sf") and is_order("transformer") and is_order("transformer,heads=2")
    assert not is_order("transformer/cell.json") and not is_order("transformer-1.json")


@pytest.mark.parametrize("data", [[], {"order": 1, "origin": {}}, {"order": "transformer:sf"}, {"format": "x"}, None])
def test_what_is_no_order_is_refused(data: object) -> None:
    with pytest.raises(FlairNasError, match="expected an order of a transformer's sublayers"):
        read_order(data)


# --- equations ---


def normalize(x: Tensor, gain: Tensor) -> Tensor:
    return (x - x.mean(-1, keepdim=True)) / (x.var(-1, keepdim=True, correction=0) + 1e-5).sqrt() * (1 + gain)


def rotate(x: Tensor) -> Tensor:
    """Turn each pair of numbers of [T, size] by an angle that grows with the place."""
    size = x.shape[-1]
    speeds = (1 / 10_000 ** (torch.arange(0, size, 2).float() / size)).double()
    turned = torch.empty_like(x)
    for place, row in enumerate(x):
        for pair, speed in enumerate(speeds):
            cos, sin = math.cos(place * speed), math.sin(place * speed)
            a, b = row[2 * pair], row[2 * pair + 1]
            turned[place, 2 * pair], turned[place, 2 * pair + 1] = a * cos - b * sin, b * cos + a * sin
    return turned


def reference(built: SublayerTransformer, x: Tensor) -> Tensor:
    """Run one sequence, [T, D], by the equations of Press et al. (2020)."""
    weights = {name: weight.detach() for name, weight in built.named_parameters()}
    x = x @ weights["project.weight"].T + weights["project.bias"]
    steps, heads = len(x), built.order.heads
    seen = torch.ones(steps, steps).bool() if built.bidirectional else torch.ones(steps, steps).tril().bool()
    for number, letter in enumerate(built.order.letters):
        own = {
            name.split(".", 3)[3]: w for name, w in weights.items() if name.startswith(f"sublayers.layers.{number}.")
        }
        y = normalize(x, own["0.0.gamma"])
        if letter == "f":
            inner = y @ own["1.ff.0.0.weight"].T + own["1.ff.0.0.bias"]
            inner = inner * (1 + torch.erf(inner / math.sqrt(2))) / 2
            x = x + inner @ own["1.ff.2.weight"].T + own["1.ff.2.bias"]
            continue
        parts = [(y @ own[f"1.to_{name}.weight"].T).chunk(heads, dim=-1) for name in "qkv"]
        read = []
        for q, k, v in zip(*parts, strict=True):
            scores = rotate(q) @ rotate(k).T / math.sqrt(q.shape[-1])
            read.append(scores.masked_fill(~seen, -math.inf).softmax(-1) @ v)
        x = x + torch.cat(read, dim=-1) @ own["1.to_out.weight"].T
    return normalize(x, weights["sublayers.final_norm.gamma"])


@pytest.mark.parametrize("bidirectional", [True, False])
@pytest.mark.parametrize(
    "spec", [f"transformer:{order}" for order in ("sandwich-1-2,heads=2", "ffss,heads=1", "f,heads=1")]
)
def test_a_pass_is_that_of_the_equations_alone_and_packed(spec: str, bidirectional: bool) -> None:
    built = layer(spec, bidirectional=bidirectional)
    for weight in built.parameters():
        torch.nn.init.normal_(weight, std=0.3)
    sequences = [torch.randn(steps, 5, dtype=torch.float64) for steps in (3, 7, 1, 4)]
    expected = [reference(built, sequence) for sequence in sequences]
    packed, state = built(pack_sequence(sequences, enforce_sorted=False))
    assert state is None
    padded, lengths = pad_packed_sequence(packed, batch_first=True)
    for sequence, wanted, found, length in zip(sequences, expected, padded, lengths, strict=True):
        torch.testing.assert_close(found[:length], wanted, rtol=0, atol=1e-12)
        torch.testing.assert_close(built(sequence[None])[0][0], wanted, rtol=0, atol=1e-12)


def test_padding_changes_no_bit() -> None:
    built = layer("transformer:sandwich-1-2", bidirectional=True)
    mask = torch.tensor([[True] * 6, [True] * 4 + [False] * 2])
    one = torch.randn(2, 6, 5, dtype=torch.float64)
    other = torch.where(mask[..., None], one, 1e3 * torch.randn_like(one))
    assert torch.equal(built._run(one, mask)[mask], built._run(other, mask)[mask])


# --- taggers and language models ---


def test_a_tagger_learns_and_is_saved_and_loaded(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    chosen = {"rnn": "transformer:ssff,heads=2", "optimizer": "adamw", "learning_rate": 3e-3, "epochs": 12}
    config = settings(write_corpus(tmp_path / "corpus"), **chosen, hidden_size=16)
    metrics = train_taggers(config, tmp_path / "run", progress=False)
    assert metrics["seeds"][0]["dev_f1"] > 60 and "SGD" not in caplog.text
    sentences = [Sentence("Today Alan left Oslo for good"), Sentence("In New York , Ada Byron sang .")]
    tagger = load_tagger(tmp_path / "run")
    assert isinstance(tagger.rnn, SublayerTransformer) and tagger.rnn.bidirectional
    tagger.predict(sentences)
    found = [(label.data_point.text, label.value) for sentence in sentences for label in sentence.get_labels()]
    assert found
    tagger.save(tmp_path / "by_flair.pt")
    again = SequenceTagger.load(str(tmp_path / "by_flair.pt"))
    again.predict(sentences)
    assert [(label.data_point.text, label.value) for sentence in sentences for label in sentence.get_labels()] == found
    with pytest.raises(FlairNasError, match="a SublayerTransformer cannot be exported"):
        from flair_nas.onnx import export_tagger

        export_tagger(tagger, tmp_path / "exported")


def test_sgd_and_words_that_do_not_see_one_another_are_warned_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = settings(write_corpus(tmp_path / "corpus"), rnn="transformer:f,heads=1", epochs=1)
    train_taggers(config, tmp_path / "run", progress=False)
    assert "transformers learn badly with SGD; use --optimizer adamw" in caplog.text
    assert "has no s, so words do not see one another" in caplog.text


def test_a_language_model_reads_no_later_word_and_is_saved_and_loaded(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    chosen = {"rnn": "transformer:sandwich-1-2,heads=2", "optimizer": "adamw", "learning_rate": 3e-3}
    config = text_settings(write_text_folder(tmp_path / "text"), **chosen)
    metrics = train_language_model(config, tmp_path / "run", progress=False)
    saved = load_language_model(tmp_path / "run")
    assert saved.genotype is None and math.isfinite(metrics["dev_perplexity"])
    assert "a transformer has neither input_dropout nor recurrent_dropout" in caplog.text
    torch.manual_seed(0)
    tokens = torch.randint(len(saved.vocabulary), (9, 2))
    changed = tokens.clone()
    changed[5:] = (changed[5:] + 1) % len(saved.vocabulary)
    one, other = saved.model(tokens)[0], saved.model(changed)[0]
    torch.testing.assert_close(one[:5], other[:5], rtol=1e-5, atol=1e-6)
    assert not torch.allclose(one[5:], other[5:], atol=1e-3)


def test_a_character_model_takes_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = write_text_folder(tmp_path / "text")
    assert main(["charlm", "train", "--text", text, "--rnn", "transformer:sf", "--out", str(tmp_path / "run")]) == 2
    assert "unknown rnn 'transformer:sf'" in capsys.readouterr().err
