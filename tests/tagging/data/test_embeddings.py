"""Embeddings: every written form builds, survives a saved tagger in a new process, and fails with what to do."""

from __future__ import annotations

import gzip
import logging
import pickle
import shutil
from pathlib import Path

import flair
import pytest
import requests
import torch
from flair.data import Corpus, Sentence
from flair.embeddings import StackedEmbeddings, TransformerWordEmbeddings
from flair.embeddings.base import load_embeddings
from flair.models import SequenceTagger
from gensim.models import FastText
from gensim.models.fasttext import save_facebook_model
from small_tagging import write_character_model, write_word_vectors
from small_transformer import write_transformer

from flair_nas.errors import FlairNasError
from flair_nas.tagging.data.corpora import load_corpus
from flair_nas.tagging.data.embeddings import build_embeddings

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def corpus():
    return load_corpus("demo").corpus


@pytest.fixture(scope="module")
def files(tmp_path_factory, corpus) -> dict[str, str]:
    """Small word vectors and a small character language model, real and seeded, with an alphabet of its own."""
    folder = tmp_path_factory.mktemp("embeddings")
    vectors = write_word_vectors(folder / "words.gensim")
    vectors.save_word2vec_format(str(folder / "words.txt"))
    vectors.save_word2vec_format(str(folder / "words.bin"), binary=True)
    vectors.save_word2vec_format(str(folder / "glove.txt"), write_header=False)
    write_character_model(folder / "forward.pt")
    write_transformer(folder / "bert")
    lines = [[token.text.lower() for token in sentence] for sentence in corpus.dev]
    pieces = FastText(lines, vector_size=7, min_count=1, bucket=100, seed=1, workers=1, epochs=1)
    pieces.wv.save(str(folder / "pieces.gensim"))
    save_facebook_model(pieces, str(folder / "pieces.bin"))
    return {path.name: str(path) for path in folder.iterdir()}


@pytest.fixture
def no_network(monkeypatch, tmp_path):
    def refuse(*_, **__):
        request = requests.Request("GET", "https://models.example/a/file").prepare()
        raise requests.exceptions.ConnectionError("no route to host", request=request)

    monkeypatch.setattr(requests, "head", refuse)
    monkeypatch.setattr(requests, "get", refuse)
    monkeypatch.setattr(flair, "cache_root", tmp_path / "cache")


def error_of(specs, corpus) -> str:
    with pytest.raises(FlairNasError) as caught:
        build_embeddings(specs, corpus)
    return str(caught.value)


def embedded(embeddings: StackedEmbeddings, text: str) -> torch.Tensor:
    sentence = Sentence(text, use_tokenizer=False)
    embeddings.embed(sentence)
    return torch.stack([token.get_embedding(embeddings.get_names()) for token in sentence]).detach()


# What builds.


@pytest.mark.parametrize(
    ("form", "length"),
    [
        ("word:{words.gensim}", 7),
        ("word:{words.txt}", 7),
        ("word:{words.bin}", 7),
        ("fasttext:{pieces.gensim}", 7),
        ("fasttext:{pieces.bin}", 7),
        ("transformer:{bert}", 16),
        ("transformer:{bert},layers=last", 16),
        ("flair:{forward.pt}", 6),
        ("pooled-flair:{forward.pt}", 12),
        ("char", 50),
        ("one-hot", 100),
    ],
)
def test_every_form_embeds(corpus, files, form, length):
    for name, path in files.items():
        form = form.replace(f"{{{name}}}", path)
    stack = build_embeddings([form], corpus)
    vectors = embedded(stack, "the race")
    assert stack.embedding_length == length and vectors.shape == (2, length)
    assert vectors.abs().sum() > 0


def test_the_stack_keeps_the_order_and_takes_a_form_with_other_files(corpus, files):
    specs = [f"word:{files['words.gensim']}", "char", f"word:{files['words.txt']}"]
    vectors = embedded(build_embeddings(specs, corpus), "the race")
    assert vectors.shape == (2, 64)
    assert torch.allclose(vectors[:, :7], vectors[:, 57:], atol=1e-5)


def test_a_fasttext_model_has_vectors_of_words_that_it_never_met(corpus, files):
    vectors = embedded(build_embeddings([f"fasttext:{files['pieces.bin']}"], corpus), "leedsington racetrack")
    assert (vectors != 0).all() and not torch.equal(*vectors)


def test_a_path_may_be_relative_and_look_like_a_name_of_flair(corpus, files, tmp_path, monkeypatch, no_network):
    (tmp_path / "en").write_bytes(Path(files["words.gensim"]).read_bytes())
    monkeypatch.chdir(tmp_path)
    assert build_embeddings(["word:en"], corpus).embedding_length == 7


@pytest.mark.parametrize(
    "spec", ["word:words.gensim", "flair:forward.pt", "pooled-flair:forward.pt", "transformer:bert"]
)
def test_embeddings_of_a_relative_path_do_not_name_the_folders_above(spec, corpus, files, monkeypatch, no_network):
    folder = Path(files["bert"]).parent
    monkeypatch.chdir(folder)
    stack = build_embeddings([spec], corpus)
    assert spec.partition(":")[2] in stack.embeddings[0].name
    params = pickle.dumps(stack.save_embeddings())
    assert str(folder).encode() not in params
    monkeypatch.chdir("/")
    torch.testing.assert_close(embedded(load_embeddings(pickle.loads(params)), "the race"), embedded(stack, "the race"))


def test_one_hot_knows_the_words_that_train_has_twice(corpus):
    counts: dict[str, int] = {}
    for sentence in corpus.train:
        for token in sentence:
            counts[token.text] = counts.get(token.text, 0) + 1
    items = build_embeddings(["one-hot"], corpus).embeddings[0].vocab_dictionary.get_items()
    assert set(items[1:]) == {word for word, count in counts.items() if count >= 2}


def test_the_vocabulary_is_not_logged(corpus, caplog):
    with caplog.at_level(logging.INFO, logger="flair"):
        build_embeddings(["one-hot"], corpus)
        assert not caplog.records
        assert logging.getLogger("flair").level == logging.INFO


@pytest.mark.slow
@pytest.mark.parametrize("first", (0, 2, 5))
def test_a_loaded_tagger_joins_the_vectors_in_the_same_order_without_the_files(corpus, files, tmp_path, first):
    folder = shutil.copytree(Path(files["bert"]).parent, tmp_path / "files")
    specs = [f"word:{folder}/words.gensim", f"word:{folder}/glove.txt", "one-hot", "char"]
    specs += [f"{kind}:{folder}/forward.pt" for kind in ("flair", "pooled-flair")]
    specs += [f"transformer:{folder}/bert", f"fasttext:{folder}/pieces.bin"]
    tagger = SequenceTagger(
        embeddings=build_embeddings(specs[first:] + specs[:first], corpus),
        tag_dictionary=corpus.make_label_dictionary("ner"),
        tag_type="ner",
        hidden_size=8,
    )
    tagger.eval()
    tagger.save(tmp_path / "tagger.pt")
    shutil.rmtree(folder)
    loaded = SequenceTagger.load(tmp_path / "tagger.pt")
    assert loaded.embeddings.get_names() == tagger.embeddings.get_names()
    sentence = Sentence("The Snowy \u2603 race in Leeds", use_tokenizer=False)
    with torch.no_grad():
        scores = []
        for one in (tagger, loaded):
            scores.append(one.forward(*one._prepare_tensors([sentence]))[0])
            sentence.clear_embeddings()
    assert torch.equal(*scores)


@pytest.mark.parametrize(("spec", "layers"), [("transformer:{}", "all"), ("transformer:{},layers=last", "-1")])
def test_a_transformer_gives_the_vectors_of_flair_with_and_without_a_separator(corpus, files, spec, layers):
    stack = build_embeddings([spec.format(files["bert"])], corpus)
    stack.train()  # as a tagger in training sets it; what is frozen has no dropout
    for separator in (False, True):
        plain = TransformerWordEmbeddings(
            files["bert"], layers=layers, layer_mean=True, fine_tune=False, use_context_separator=separator
        )
        assert torch.equal(embedded(stack, "the race " * 20), embedded(StackedEmbeddings([plain]), "the race " * 20))


def test_transformers_have_names_of_their_own_and_say_no_folders(corpus, files, tmp_path):
    write_transformer(tmp_path / "bert", seed=1)
    specs = [f"transformer:{files['bert']}{option}" for option in ("", ",layers=last")]
    names = [build_embeddings([spec], corpus).embeddings[0].name for spec in (*specs, f"transformer:{tmp_path}/bert")]
    assert len({*names}) == 3 and all(name.startswith("0-transformer-bert-") for name in names)
    both = build_embeddings(specs, corpus)
    one, other = embedded(both, "the race").split(16, dim=1)
    assert not torch.allclose(one, other)
    assert str(Path(files["bert"]).parent).encode() not in pickle.dumps(both.save_embeddings())


def test_a_folder_of_a_transformer_may_have_a_comma_in_its_name(corpus, files, tmp_path):
    for name in ("a,b", "a,layers=first"):
        shutil.copytree(files["bert"], tmp_path / name)
        assert build_embeddings([f"transformer:{tmp_path / name}"], corpus).embedding_length == 16
        assert "layers=last" in build_embeddings([f"transformer:{tmp_path / name},layers=last"], corpus).get_names()[0]


def test_what_is_frozen_is_no_trained_parameter(corpus, files):
    specs = [f"transformer:{files['bert']}", f"flair:{files['forward.pt']}", f"pooled-flair:{files['forward.pt']}"]
    assert not any(weight.requires_grad for weight in build_embeddings(specs, corpus).parameters())
    assert all(weight.requires_grad for weight in build_embeddings(["char", "one-hot"], corpus).parameters())


# What does not.


def test_none_and_one_twice(corpus):
    assert "no embeddings" in error_of([], corpus)
    assert "'char' are given twice" in error_of(["char", "one-hot", "char"], corpus)


def test_two_fasttext_models_whose_order_would_not_be_known_after_loading(corpus, files):
    specs = [f"fasttext:{files[name]}" for name in ("pieces.bin", "pieces.gensim")]
    assert "leave out all but one" in error_of(specs, corpus)


def test_forms_are_not_parted_by_commas(corpus):
    assert "embeddings are separated by blanks, not by commas: one-hot char" in error_of(["one-hot,char"], corpus)


@pytest.mark.parametrize(
    ("spec", "hint"),
    [
        ("glvoe", "did you mean glove"),
        ("words:x", "did you mean word:PATH"),
        ("fasttext", "did you mean fasttext:PATH"),
        ("flair:", "did you mean flair:NAME_OR_PATH"),
        ("char:50", "did you mean char"),
        ("", "known forms are glove, english, FOLDER of embed train, word:PATH"),
        ("bert-base-uncased", "known forms are glove, english, FOLDER of embed train, word:PATH"),
    ],
)
def test_an_unknown_form(corpus, spec, hint):
    message = error_of([spec], corpus)
    assert f"unknown embeddings {spec!r}" in message and hint in message


@pytest.mark.parametrize("spec", ["word:absent.gensim", "flair:absent.pt", "flair:no/such", "pooled-flair:absent.pt"])
def test_an_absent_file(corpus, spec):
    assert "does not exist; give a file of" in error_of([spec], corpus)


@pytest.mark.parametrize("kind", ["word", "flair", "pooled-flair"])
def test_a_folder(corpus, tmp_path, kind):
    assert "is a folder" in error_of([f"{kind}:{tmp_path}"], corpus)


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("word", "words.gensim"),
        ("word", "words.txt"),
        ("word", "words.bin"),
        ("fasttext", "pieces.bin"),
        ("flair", "forward.pt"),
    ],
)
def test_a_truncated_file(corpus, files, tmp_path, kind, name):
    content = Path(files[name]).read_bytes()
    (tmp_path / name).write_bytes(content[: len(content) // 2])
    assert f"{name} is cut short or not" in error_of([f"{kind}:{tmp_path / name}"], corpus)
    (tmp_path / name).write_bytes(b"")
    assert f"{name} is cut short or not" in error_of([f"{kind}:{tmp_path / name}"], corpus)


@pytest.mark.parametrize(
    ("kind", "name", "hint"),
    [
        ("word", "pieces.bin", "is a model of fastText; name it fasttext:"),
        ("fasttext", "words.gensim", "has vectors of words alone; name it word:"),
        ("fasttext", "words.bin", "word2vec's .bin: word:PATH"),
        ("fasttext", "words.txt", "other vectors, such as .vec or word2vec's .bin: word:PATH"),
    ],
)
def test_vectors_under_the_name_of_another_kind(corpus, files, kind, name, hint):
    assert hint in error_of([f"{kind}:{files[name]}"], corpus)


# Text as others publish it.


def rows_of(files) -> list[str]:
    return Path(files["words.txt"]).read_text(encoding="utf-8").splitlines()[1:]


PUBLISHED = {
    "glove.txt": lambda rows: rows,
    "glove.7d": lambda rows: rows,
    "cc.en.vec": lambda rows: [f"{len(rows)} 7", *(f"{row} " for row in rows)],
    "words.bin.txt": lambda rows: [f"{len(rows)} 7", *rows],
    "marked.txt": lambda rows: ["\ufeff" + rows[0], *rows[1:]],
    "marked.vec": lambda rows: [f"\ufeff{len(rows)} 7", *rows],
}


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("name", PUBLISHED)
def test_vectors_as_they_are_published(corpus, files, tmp_path, name, packed):
    path = tmp_path / f"{name}{'.gz' * packed}"
    content = "".join(f"{row}\n" for row in PUBLISHED[name](rows_of(files))).encode()
    path.write_bytes(gzip.compress(content) if packed else content)
    stack = build_embeddings([f"word:{path}"], corpus)
    expected = build_embeddings([f"word:{files['words.gensim']}"], corpus)
    text = "the Race of 1999 \u2603"
    assert torch.equal(embedded(stack, text), embedded(expected, text))
    assert stack.embeddings[0].vocab == expected.embeddings[0].vocab
    assert not stack.embeddings[0].embedding.weight.requires_grad and stack.get_names() == [f"0-{path}"]


def test_binary_vectors_may_be_packed_and_their_suffix_in_capitals(corpus, files, tmp_path):
    (tmp_path / "words.bin.gz").write_bytes(gzip.compress(Path(files["words.bin"]).read_bytes()))
    shutil.copy(files["words.bin"], tmp_path / "WORDS.BIN")
    paths = (tmp_path / "words.bin.gz", tmp_path / "WORDS.BIN", files["words.gensim"])
    first, *others = (embedded(build_embeddings([f"word:{path}"], corpus), "the race \u2603") for path in paths)
    assert all(torch.equal(first, other) for other in others)


def test_words_of_odd_characters_are_read_as_they_stand(corpus, tmp_path, caplog):
    words = [",", ". . .", "at name@domain.com", "\u00a0", "a\u0085b", "caf\u00e9", "", "1/2"]
    rows = [f"{word} {number} -{number}.5e-1 0.25\n".encode() for number, word in enumerate(words)]
    (tmp_path / "odd.txt").write_bytes(b"".join([*rows, b", 9 9 9\n", b"caf\xe9 7 7 7\n"]))
    (member,) = build_embeddings([f"word:{tmp_path / 'odd.txt'}"], corpus).embeddings
    assert list(member.vocab)[:-1] == words and list(member.vocab.values()) == list(range(len(words) + 1))
    expected = [[n, -float(f"{n}.5e-1"), 0.25] for n in range(len(words))] + [[7, 7, 7], [0, 0, 0]]
    assert torch.equal(member.embedding.weight, torch.tensor(expected))
    assert "of 10 words, 1 repeat an earlier one and are left out, and 1 are not UTF-8" in caplog.text


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("the 1 2 3\na 1 2 3\nof 1 2\n", "line 3 is not a word and 3 numbers, separated by blanks; get the file again"),
        ("the 1 2 3\na 1 2 3 4\n", "line 2 is not a word and 3 numbers"),
        ("the 1 2 3\na 1 2 x\n", "line 2 is not a word and 3 numbers"),
        ("2 3\nthe 1 2 3\na 1 2\n", "line 3 is not a word and 3 numbers"),
        ("the\t1\t2\n", "line 1 is not a word and its numbers, separated by blanks"),
        ("", "it has no rows; get the file again"),
        ("2 3\n", "it has no rows"),
    ],
)
def test_a_faulty_row_is_named(corpus, tmp_path, content, problem):
    (tmp_path / "x.txt").write_text(content)
    spec = f"word:{tmp_path / 'x.txt'}"
    message = f"embeddings {spec!r}: {tmp_path}/x.txt is cut short or not word vectors: {problem}"
    assert message in error_of([spec], corpus)


@pytest.mark.parametrize("number", ["nan", "inf", "-Infinity"])
def test_a_vector_that_is_not_finite_is_named(corpus, tmp_path, number):
    (tmp_path / "x.txt").write_text(f"the 1 2\na 1 {number}\n")
    assert "the vector of 'a' holds NaN or infinity" in error_of([f"word:{tmp_path / 'x.txt'}"], corpus)


@pytest.mark.parametrize(("word", "told"), [("lundi", True), ("THE", True), ("the", False)])
def test_vectors_that_know_hardly_a_word_of_the_corpus_are_told(corpus, tmp_path, caplog, word, told):
    (tmp_path / "x.txt").write_text(
        f"{word} 1 2\n" + ("" if told else "".join(f"{w} 1 2\n" for w in train_words(corpus)))
    )
    build_embeddings([f"word:{tmp_path / 'x.txt'}"], corpus)
    said = f"know 0 of {len(train_words(corpus))} different words of the corpus; are they of its language?"
    assert (said in caplog.text) == told


def train_words(corpus) -> set[str]:
    return {token.text for sentence in corpus.train for token in sentence}


def test_fewer_rows_than_the_first_line_tells_of_are_read_and_told(corpus, tmp_path, caplog):
    (tmp_path / "head.vec").write_text("9 3\nthe 1 2 3\na 1 2 3\n")
    assert build_embeddings([f"word:{tmp_path / 'head.vec'}"], corpus).embeddings[0].vocab == {"the": 0, "a": 1}
    assert "head.vec may be cut short: the first line tells of 9 words, and there are 2" in caplog.text


def test_what_is_packed_otherwise_or_read_by_another_form(corpus, files, tmp_path):
    (tmp_path / "glove.zip").write_bytes(b"PK\3\4")
    assert "glove.zip has to be unpacked" in error_of([f"word:{tmp_path / 'glove.zip'}"], corpus)
    (tmp_path / "cut.txt.gz").write_bytes(gzip.compress(Path(files["words.txt"]).read_bytes())[:-400])
    assert "cut.txt.gz is cut short" in error_of([f"word:{tmp_path / 'cut.txt.gz'}"], corpus)
    (tmp_path / "cc.vec").write_text("\n".join(rows_of(files)))
    assert "such as .vec or word2vec's .bin: word:PATH" in error_of([f"fasttext:{tmp_path / 'cc.vec'}"], corpus)


def test_a_file_of_the_wrong_kind(corpus, files, tmp_path):
    assert "or not word vectors" in error_of([f"word:{files['forward.pt']}"], corpus)
    assert "or not a character language model" in error_of([f"flair:{files['words.gensim']}"], corpus)
    torch.save({"state_dict": {}}, tmp_path / "other.pt")
    assert "or not a character language model" in error_of([f"flair:{tmp_path / 'other.pt'}"], corpus)


@pytest.mark.parametrize(
    ("spec", "form"),
    [
        ("glove", "word:PATH"),
        ("de-crawl", "word:PATH"),
        ("pooled-flair:news-forward", "pooled-flair:PATH"),
    ],
)
def test_a_download_that_fails(corpus, no_network, spec, form):
    message = error_of([spec], corpus)
    reason = "models.example, from where Flair downloads them, cannot be reached; check the network, or"
    assert f"{reason} give a local one as {form}" in message


@pytest.mark.parametrize("name", ["model.safetensors", "tokenizer.json", "config.json"])
@pytest.mark.parametrize("size", [None, 20])
def test_a_folder_that_is_no_whole_transformer(corpus, files, tmp_path, name, size):
    folder = shutil.copytree(files["bert"], tmp_path / "bert")
    (folder / "vocab.txt").unlink()  # a tokenizer, too
    whole = (folder / name).read_bytes()
    (folder / name).unlink()
    if size is not None:
        (folder / name).write_bytes(whole[:size])
    fault = f"{folder} lacks a file of a transformer for PyTorch (config, weights, tokenizer), or one is damaged"
    assert f"{fault}; copy or make it again (" in error_of([f"transformer:{folder},layers=last"], corpus)


@pytest.mark.parametrize(
    ("argument", "fault"),
    [
        ("/no/such/folder", "/no/such/folder is no folder; give the folder of a transformer, or a Hub name"),
        ("./no-such-folder", "no-such-folder is no folder; give the folder"),
        ("{bert}/config.json", "config.json is no folder; give the folder"),
        ("{bert},layers=first", "unknown option 'layers=first'; layers=last is the only one"),
        ("{bert},layer=last", "unknown option 'layer=last'; layers=last is the only one"),
    ],
)
def test_a_transformer_that_is_named_wrongly(corpus, files, argument, fault):
    assert fault in error_of([f"transformer:{argument.format(bert=files['bert'])}"], corpus)


def test_a_hub_name_without_a_network(corpus, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("transformers.utils.hub._is_offline_mode", True)
    message = error_of(["transformer:some/model"], corpus)
    assert "check the name and the network, or give a local one as transformer:PATH" in message


def test_a_name_that_flair_does_not_have(corpus):
    assert "is not available" in error_of(["flair:newsforward"], corpus)


def test_nothing_to_build_from():
    empty = Corpus(dev=[Sentence("a b")], sample_missing_splits=False)
    assert "the corpus has none" in error_of(["char"], empty)


def test_character_models_of_one_direction_are_warned_of(
    corpus: Corpus, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("forward", "other", "backward"):
        write_character_model(tmp_path / f"{name}.pt")
    build_embeddings([f"flair:{tmp_path}/forward.pt", f"pooled-flair:{tmp_path}/backward.pt"], corpus)
    assert "read forward" not in caplog.text
    build_embeddings([f"flair:{tmp_path}/forward.pt", f"pooled-flair:{tmp_path}/other.pt"], corpus)
    assert "all character models read forward" in caplog.text and "add a backward one" in caplog.text
