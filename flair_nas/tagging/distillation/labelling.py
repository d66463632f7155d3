"""Labelling of a raw text by teachers, for a student of a corpus."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

from flair_nas.errors import FlairNasError
from flair_nas.settings.fields import get_kinds
from flair_nas.tagging.config import TaggerConfig
from flair_nas.tagging.data.corpora import check_labelled, load_corpus_of
from flair_nas.tagging.distillation.targets import ABOUT, describe_targets, read_lines, write_targets
from flair_nas.tagging.distillation.teachers import describe_teacher, is_soft, name_tags
from flair_nas.tagging.evaluation import NO_TAGS
from flair_nas.tagging.prediction import load_tagger
from flair_nas.tagging.quiet import flair_device
from flair_nas.tagging.training import build_tagger

log = logging.getLogger("flair_nas")


def label_text(config: Any, accept: Callable[[], object], is_over: Callable[[], bool], progress: bool) -> None:
    """Let the teachers of a `DistilConfig` label its text, and write that to its folder `taught`.

    Args:
        config: the settings.
        accept: function that is called once all that can be wrong with the settings is checked.
        is_over: function that tells if there is no more time.
        progress: draw a progress bar.

    Raises:
        FlairNasError: a teacher or the text cannot be used, or the teachers find nothing.
        OSError: a file cannot be written, or the disk is full.
    """
    if (Path(config.taught) / ABOUT).exists():
        return
    with flair_device(config.device):
        corpus = load_corpus_of(config)
        check_labelled(corpus)
        plain = {name: getattr(config, name) for name in get_kinds(TaggerConfig)} | {"taught": None}
        student = dataclasses.replace(TaggerConfig(**plain), embeddings=["one-hot"], hidden_size=1)  # for its tags
        names = [name for name in name_tags(build_tagger(student, corpus)) if name not in NO_TAGS]
        teachers = [load_tagger(name) for name in config.teacher]
        for name, teacher in zip(config.teacher, teachers):
            if "O" not in names and not is_soft(teacher, names):
                fault = "has other labels than the corpus, in which each word has one; take one with the same labels"
                raise FlairNasError(f"teacher {name} {fault}")
            log.info("teacher %s %s", name, describe_teacher(teacher, names))
        if not any(map(str.strip, read_lines(config.text))):
            raise FlairNasError(f"text {config.text}: it has no words")
        accept()
        about = write_targets(teachers, config.text, names, Path(config.taught), is_over=is_over, progress=progress)
    log.info("%s", describe_targets(about))
    if not about["labelled"]:
        raise FlairNasError(f"the teachers find nothing in {config.text}; is it text of the kind that they know?")
