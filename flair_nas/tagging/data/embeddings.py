"""Embeddings by their spec, such as ``glove``, ``flair:news-forward`` or ``char``."""

from __future__ import annotations

import hashlib
import logging
import re
from collections.abc import Callable, Collection, Sequence
from typing import cast
from urllib.parse import urlsplit

import requests
from flair.data import Corpus, Dictionary, Sentence
from flair.embeddings import (
    CharacterEmbeddings,
    FlairEmbeddings,
    OneHotEmbeddings,
    PooledFlairEmbeddings,
    StackedEmbeddings,
    TokenEmbeddings,
    TransformerWordEmbeddings,
    WordEmbeddings,
)
from torch import nn

from flair_nas.errors import FlairNasError, brief, did_you_mean, shown
from flair_nas.runtime.word_table import WordTable
from flair_nas.storage.paths import user_path
from flair_nas.tagging.config import OF_THE_CORPUS
from flair_nas.tagging.data.character_embeddings import CharacterRNNEmbeddings
from flair_nas.tagging.data.character_models import find_contextual
from flair_nas.tagging.data.corpora import sentences_of
from flair_nas.tagging.data.embedding_folder import WORDS, expand_folder
from flair_nas.tagging.data.frozen_embeddings import describe_state, frozen_members
from flair_nas.tagging.data.table_embeddings import EnglishEmbeddings, SubwordEmbeddings
from flair_nas.tagging.data.word_vectors import read_fasttext, read_word_vectors
from flair_nas.tagging.quiet import OF_ALL_WORDS, no_flair_remarks
from flair_nas.tagging.registration import name_in_order
from flair_nas.tagging.safe_file import SUFFIX

log = logging.getLogger("flair_nas")

ENGLISH = "english"
# Names that Flair's WordEmbeddings downloads: these, and a language's code, alone or before -wiki or -crawl.
_ENGLISH = ("glove", "extvec", "crawl", "news", "twitter", "turian", "pubmed")
WORD_VECTORS = (*_ENGLISH, *(f"en-{name}" for name in _ENGLISH))
LANGUAGE_VECTORS = re.compile(r"[a-z]{2}(-wiki|-crawl)?")
LANGUAGE_MODELS = {"flair": FlairEmbeddings, "pooled-flair": PooledFlairEmbeddings}
FORMS = (
    *("glove", ENGLISH, "FOLDER of embed train", "word:PATH", "fasttext:PATH", "flair:NAME_OR_PATH"),
    *("pooled-flair:NAME_OR_PATH", "transformer:NAME_OR_PATH", *OF_THE_CORPUS),
)

FORMER_CHAR = "char of version 0.1"
"""Spec of Flair's `CharacterEmbeddings`, which runs that version 0.1 began go on with."""


def build_embeddings(specs: Sequence[str], corpus: Corpus[Sentence]) -> StackedEmbeddings:
    """Build a stack of embeddings, whose vectors are joined in the order of the specs.

    Flair's files of vectors and language models are pickles, which can run code: load only files that you trust.
    New weights (``char``, ``one-hot``) are drawn from torch's random state.

    Args:
        specs: any of
            ``glove`` or another name of Flair's word vectors (``twitter``, ``crawl``, ``en``, ``de``, ``de-crawl``),
            ``english``: English word vectors that come with the package,
            ``FOLDER``: all embeddings in a folder that `train_embeddings` made; ``FOLDER#words`` and
            ``FOLDER#characters`` are its word vectors and its character models,
            ``word:PATH``: word vectors of gensim, word2vec, fastText (``.vec``) or GloVe, also in gzip,
            ``fasttext:PATH``: a fastText model (.bin or gensim's), which has vectors of unknown words, too,
            ``transformer:NAME_OR_PATH``: a model of the Hugging Face Hub or in a folder, with fixed weights; vectors
            are the mean of all its layers, with ``,layers=last`` behind the name those of the last one,
            ``flair:NAME_OR_PATH``: a character language model of Flair's, or ``model.safetensors`` of `charlm train`,
            ``pooled-flair:NAME_OR_PATH``: such a model, pooled over all occurrences of a word,
            ``char``: `CharacterRNNEmbeddings`, trained with the tagger, with the alphabet of `corpus.train`,
            ``one-hot``: 100 trained weights for each word that `corpus.train` has twice or more.
        corpus: the source of the alphabet and the words.

    Raises:
        FlairNasError: a spec is unknown or repeated, there is none, or a file or download fails.

    Example:
        >>> from flair_nas import build_embeddings, load_corpus
        >>> embeddings = build_embeddings(["english", "char"], load_corpus("demo").corpus)
        >>> embeddings.embedding_length
        350
    """
    if not specs:
        raise FlairNasError(f"no embeddings: give one or more of {', '.join(FORMS)}")
    specs = [part for spec in specs for part in ([spec] if _is_named(spec) else expand_folder(spec))]
    for spec in specs:
        if specs.count(spec) > 1:
            raise FlairNasError(f"embeddings {brief(spec)} are given twice; leave one out")
    members = [_build(spec, corpus) for spec in specs]
    _warn_of_one_direction(members)
    name_in_order(members)
    stack = StackedEmbeddings(members, overwrite_names=False)
    for member in frozen_members(stack):
        member.requires_grad_(False)
    return stack


def _is_named(spec: str) -> bool:
    """Return True for the name of embeddings; ``./NAME`` is a folder of that name."""
    is_flairs = spec.lower() in WORD_VECTORS or LANGUAGE_VECTORS.fullmatch(spec.lower())
    return spec in (ENGLISH, *OF_THE_CORPUS) or bool(is_flairs)


def _build(spec: str, corpus: Corpus[Sentence]) -> TokenEmbeddings:
    kind, _, argument = spec.partition(":")
    if spec.endswith(WORDS):
        subwords = SubwordEmbeddings(spec.removesuffix(WORDS))
        _warn_of_unknown(spec, subwords.table, corpus, share=1 / 20)
        return subwords
    if spec in OF_THE_CORPUS and not corpus.train:
        raise FlairNasError(f"embeddings {brief(spec)} are built from training sentences, and the corpus has none")
    if spec == "char":
        return CharacterRNNEmbeddings.from_corpus(corpus)
    if spec == FORMER_CHAR:
        alphabet = Dictionary(add_unk=True)
        for character in sorted({c for s in sentences_of(corpus.train) for token in s for c in token.text}):
            alphabet.add_item(character)
        return CharacterEmbeddings(alphabet)
    if spec == "one-hot":
        with no_flair_remarks(*OF_ALL_WORDS):
            words: TokenEmbeddings = OneHotEmbeddings.from_corpus(corpus, min_freq=2, embedding_length=100)
            return words
    if spec == ENGLISH:
        english = EnglishEmbeddings()
        _warn_of_unknown(spec, english.table, corpus, share=2 / 3)  # French has 0.6, tweets and Pidgin have more
        return english
    if kind == "word" and argument:
        wanted = "word vectors: gensim's own, or those of word2vec, fastText or GloVe"
        vectors = cast(WordEmbeddings, _from_file(read_word_vectors, spec, argument, wanted))
        _warn_of_unknown(spec, vectors.vocab, corpus, share=1 / 20)
        return vectors
    if kind == "fasttext" and argument:
        wanted = "a fastText model: .bin, or gensim's own (other vectors, such as .vec or word2vec's .bin: word:PATH)"
        return _from_file(read_fasttext, spec, argument, wanted)
    if kind == "transformer" and argument:
        return _by_name(_read_transformer, spec, argument, file_form="transformer:PATH")
    if kind in LANGUAGE_MODELS and argument:
        path = user_path(argument)
        if path.exists() or len(path.parts) > 1 or path.suffix.lower() in (".pt", SUFFIX):
            return _from_file(LANGUAGE_MODELS[kind], spec, argument, wanted="a character language model of Flair's")
        return _by_name(LANGUAGE_MODELS[kind], spec, argument, file_form=f"{kind}:PATH")
    if _is_named(spec):
        return _by_name(WordEmbeddings, spec, spec.lower(), file_form="word:PATH")
    if "/" in spec and ":" not in spec:
        raise FlairNasError(f"embeddings {brief(spec)}: there is no folder {user_path(spec)}")
    if "," in spec and ":" not in spec:
        raise FlairNasError(f"embeddings are separated by blanks, not by commas: {' '.join(spec.split(','))}")
    hint = did_you_mean(kind, {form.partition(":")[0]: form for form in (*FORMS, *WORD_VECTORS)}, count=2)
    raise FlairNasError(f"unknown embeddings {brief(spec)}: {hint}known forms are {', '.join(FORMS)}")


def _warn_of_one_direction(members: Sequence[TokenEmbeddings]) -> None:
    """Warn of several character models that all read in one direction."""
    models = find_contextual(members)
    if len(models) > 1 and len({model.is_forward_lm for model in models}) == 1:
        way, other = ("forward", "backward") if models[0].is_forward_lm else ("backward", "forward")
        names = ", ".join(model.name for model in models)
        log.warning(
            "all character models read %s (%s), so no word knows the other side; add a %s one", way, names, other
        )


def _warn_of_unknown(
    spec: str, vocabulary: Collection[str] | WordTable, corpus: Corpus[Sentence], share: float
) -> None:
    """Warn of vectors for less than a share of the different words of a corpus."""
    words = {token.text for sentence in sentences_of(corpus.train)[:1000] for token in sentence}
    known = sum(word in vocabulary or word.lower() in vocabulary for word in words)
    if known < share * len(words):
        log.warning(
            "embeddings %s know %d of %d different words of the corpus; are they of its language?",
            *(spec, known, len(words)),
        )


def _from_file(make: Callable[[str], TokenEmbeddings], spec: str, argument: str, wanted: str) -> TokenEmbeddings:
    path = user_path(argument)
    if not path.is_file() or path.suffix.lower() == ".zip":
        what = "is a folder" if path.is_dir() else "has to be unpacked" if path.exists() else "does not exist"
        raise FlairNasError(f"embeddings {brief(spec)}: {path} {what}; give a file of {wanted}")
    try:
        absolute = str(path.resolve())  # so that it is none of Flair's names
        embeddings = make(absolute)
        if not path.is_absolute():  # saved models show their names
            for member in (embeddings, *find_contextual([embeddings])):
                member.name = member.name.replace(absolute, argument)
        return embeddings
    except FlairNasError as error:
        raise FlairNasError(f"embeddings {brief(spec)}: {error}") from None
    except Exception as error:  # unpickling can raise anything
        fault = f"{path} is cut short or not {wanted}; copy or make it again ({shown(error)})"
        raise FlairNasError(f"embeddings {brief(spec)}: {fault}") from error


def _by_name(make: Callable[[str], TokenEmbeddings], spec: str, name: str, file_form: str) -> TokenEmbeddings:
    local = f"or give a local one as {file_form}, or english, one-hot and char, which need none"
    try:
        return make(name)
    except FlairNasError as error:
        raise FlairNasError(f"embeddings {brief(spec)}: {error}") from None
    except (requests.ConnectionError, requests.Timeout) as error:
        server = urlsplit(getattr(error.request, "url", None) or "").hostname or "the server"
        fault = f"{server}, from where Flair downloads them, cannot be reached; check the network, {local}"
        raise FlairNasError(f"embeddings {brief(spec)}: {fault}") from error
    except Exception as error:  # an unknown name, no network, or a broken file in the cache
        fault = f"there is no {brief(name)}, or it cannot be loaded; check the name and the network, {local}"
        raise FlairNasError(f"embeddings {brief(spec)}: {fault} ({shown(error)})") from error


def _read_transformer(argument: str) -> TransformerWordEmbeddings:
    """Return a transformer with fixed weights, named after its folder and weights, or by its Hub name.

    Args:
        argument: a folder or a Hub name. Vectors are the mean of all layers, or those of the last one if
            ``,layers=last`` stands behind it.
    """
    match = None if user_path(argument).is_dir() else re.fullmatch(r"(.+),(\w+=.*)", argument)
    source, option = match.groups() if match else (argument, "")
    if option not in ("", "layers=last"):
        raise FlairNasError(f"unknown option {brief(option)}; layers=last is the only one")
    path = user_path(source)
    is_folder, layers = path.is_dir(), "-1" if option else "all"
    if not is_folder and (path.is_absolute() or source.startswith(".") or len(path.parts) > 2 or path.exists()):
        raise FlairNasError(f"{path} is no folder; give the folder of a transformer, or a Hub name")
    try:
        # a separator of contexts, which are not read here, would add a row of random weights
        member = TransformerWordEmbeddings(
            str(path) if is_folder else source, layers=layers, fine_tune=False, use_context_separator=False
        )
    except Exception as error:  # a damaged file can raise nearly anything
        if not is_folder:
            raise
        fault = f"{path} lacks a file of a transformer for PyTorch (config, weights, tokenizer), or one is damaged"
        raise FlairNasError(f"{fault}; copy or make it again ({shown(error)})") from error
    name = source
    if is_folder:
        member.base_model_name = member.model.config._name_or_path = path.resolve().name  # taggers show no more of it
        weights = repr(describe_state(member.model.state_dict())).encode()
        name = f"{member.base_model_name}-{hashlib.sha256(weights).hexdigest()[:6]}"  # others may be called alike
    member.name = f"transformer-{name}" + (f",{option}" if option else "")
    # taggers set all members to training, where a transformer has dropout
    member.model.register_forward_pre_hook(_evaluate)
    return member


def _evaluate(model: nn.Module, _: object) -> None:
    model.eval()
