"""Tables of words hold what was written, and nothing else."""

from __future__ import annotations

import pickle
import tempfile
from functools import cache
from pathlib import Path

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import load_file

from flair_nas.runtime.word_table import WordTable, hash_parts, read_tensors
from flair_nas.tagging.data.embedding_folder import TABLE, write_table

ROWS = {"the": 0, "them": 1, "The": 2, "THE": 0, "t": 3, "é": 4, "É": 4, "e": 5, "ﬁ": 0, "Oslo": 1, "OSLO": 2}
ROWS |= {"i̇stanbul": 3, "İstanbul": 6, "😂": 4, "a b": 5, "zz": 5, "ZZ": 0, "!": 5}
WORDS = list(ROWS)
VECTORS = np.random.default_rng(1).normal(size=(7, 5)).astype(np.float32)
VECTORS[6] = VECTORS[3]


@cache
def written() -> Path:
    folder = Path(tempfile.mkdtemp())
    write_table(folder / TABLE, ROWS, VECTORS)
    return folder / TABLE


def expected(word: str) -> np.ndarray:
    """The vector of a word, one product of float32 for each number."""
    row = ROWS.get(word, ROWS.get(word.lower()))
    if row is None:
        return np.zeros(5, np.float32)
    scale = np.float32(np.abs(VECTORS[row]).max() / 127)
    return np.array([np.float32(round(float(number) / float(scale))) * scale for number in VECTORS[row]])


@given(st.lists(st.sampled_from(WORDS) | st.text(st.sampled_from("tTheéEm!oslOİ\n ") | st.characters(), max_size=5)))
def test_words_have_their_vectors_and_others_have_zeros(words: list[str]) -> None:
    vectors = WordTable(written()).embed(words)
    assert vectors.shape == (len(words), 5) and vectors.dtype == np.float32
    for word, vector in zip(words, vectors):
        np.testing.assert_array_equal(vector, expected(word))


def test_eight_bits_are_near_the_vectors() -> None:
    vectors = WordTable(written()).embed(WORDS)
    steps = np.abs(VECTORS).max(axis=1, keepdims=True) / 127
    rows = list(ROWS.values())
    assert (np.abs(vectors - VECTORS[rows]) <= steps[rows] / 2 + 1e-7).all()


def test_the_same_is_written_once() -> None:
    """Equal vectors, and words with the vector of their lower case."""
    tensors = load_file(written())
    assert len(tensors["vectors"]) == 6
    assert {*tensors["words"].tobytes().decode().splitlines()} == {*ROWS} - {"THE", "É", "İstanbul"}


def test_a_table_of_one_word_and_a_row_of_zeros(tmp_path: Path) -> None:
    write_table(tmp_path / TABLE, {"a": 0}, np.zeros((1, 2), np.float32))
    assert WordTable(tmp_path / TABLE).embed(["a", "b", ""]).tolist() == [[0, 0]] * 3


def test_a_copy_maps_the_same_file() -> None:
    table = WordTable(written())
    data = pickle.dumps(table)
    assert len(data) < 500
    np.testing.assert_array_equal(pickle.loads(data).embed(WORDS), table.embed(WORDS))


def test_mapped_tensors_are_those_of_the_library() -> None:
    mapped, loaded = read_tensors(np.memmap(written(), np.uint8, "r")), load_file(written())
    assert mapped.keys() == loaded.keys()
    for name, tensor in loaded.items():
        np.testing.assert_array_equal(mapped[name], tensor)
        assert isinstance(mapped[name].base, np.memmap) and mapped[name].dtype == tensor.dtype


def test_the_same_words_give_the_same_bytes(tmp_path: Path) -> None:
    write_table(tmp_path / TABLE, dict(reversed(ROWS.items())), VECTORS)
    assert (tmp_path / TABLE).read_bytes() == written().read_bytes()


@given(st.text(max_size=30))
def test_parts_have_the_numbers_of_gensim(word: str) -> None:
    from gensim.models.fasttext_inner import compute_ngrams_bytes, ft_hash_bytes

    assert [*hash_parts(word)] == [*map(ft_hash_bytes, compute_ngrams_bytes(word, 3, 6))]


def test_a_word_that_is_not_in_the_table_has_the_mean_of_its_parts(tmp_path: Path) -> None:
    parts = np.random.default_rng(2).normal(size=(16, 5)).astype(np.float32)
    write_table(tmp_path / TABLE, ROWS, VECTORS, parts)
    table = WordTable(tmp_path / TABLE)
    scales = np.abs(parts).max(axis=1, keepdims=True) / 127
    rounded = np.rint(parts / scales) * scales
    for word in ("OSLOS", "the end", "ééé"):
        np.testing.assert_allclose(
            table.embed([word])[0], rounded[[number % 16 for number in hash_parts(word)]].mean(axis=0), rtol=1e-5
        )
    words = ["OSLO", "Oslo", "the"]  # each has its own row, in its own spelling
    np.testing.assert_array_equal(table.embed(words), [expected(word) for word in words])
    assert not table.embed([""]).any() and "THEM" not in table
    copy = pickle.loads(pickle.dumps(WordTable(np.fromfile(tmp_path / TABLE, np.uint8))))
    np.testing.assert_array_equal(copy.embed(["ééé", "the"]), table.embed(["ééé", "the"]))
