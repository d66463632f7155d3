"""The settings of a tagger's training: one place for names, defaults, help texts, presets and checks."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import yaml

from flair_nas.errors import FlairNasError
from flair_nas.library import resource_path


def _setting(default: Any, help: str) -> Any:
    factory = {"default_factory": lambda: list(default)} if isinstance(default, list) else {"default": default}
    return field(**factory, metadata={"help": help})


@dataclass
class TaggerConfig:
    """Settings of `train_taggers`; each is also a flag of ``flair-nas tag train`` and a key of a ``--config`` file.

    The defaults are Flair's, where Flair has one.

    Raises:
        FlairNasError: settings that cannot be used, all of them named at once.
    """

    corpus: str = _setting("demo", "wnut_17, conll_03, conll_2000, demo, or a folder of column files")
    label_type: str | None = _setting(None, "label to predict (the corpus' own: ner, or np for conll_2000)")
    columns: str | None = _setting(None, "columns of a folder's files, from 0: text=0,ner=3 (the last holds the label)")
    data_root: str | None = _setting(None, "folder with the named corpora (Flair's cache)")
    rnn: str = _setting(
        "i-darts-ptb", "lstm, gru, a genotype's name, a genotype file or a one-line genotype; options after commas"
    )
    embeddings: list[str] = _setting(
        ["glove", "pooled-flair:news-forward", "pooled-flair:news-backward"],
        "glove, word:PATH, flair:NAME_OR_PATH, pooled-flair:NAME_OR_PATH, char, one-hot",
    )
    hidden_size: int = _setting(256, "hidden size H of each direction")
    layers: int = _setting(1, "recurrent layers")
    dropout: float = _setting(0.0, "dropout before and after the recurrent layer")
    word_dropout: float = _setting(0.05, "probability of dropping a word's whole embedding")
    locked_dropout: float = _setting(0.5, "variational dropout of the recurrent layer's input and output")
    crf: bool = _setting(True, "decode with a CRF; otherwise a softmax per token")
    reproject: bool = _setting(True, "a linear map on top of the embeddings")
    learning_rate: float = _setting(0.1, "learning rate of SGD")
    anneal_factor: float = _setting(0.5, "the learning rate is multiplied by this on a plateau of dev F1")
    patience: int = _setting(3, "epochs without improvement that are still borne")
    min_learning_rate: float = _setting(1e-4, "training ends below this learning rate")
    clip: float = _setting(5.0, "gradient norm is clipped to this")
    batch_size: int = _setting(32, "sentences per batch")
    epochs: int = _setting(100, "epochs at most")
    seeds: list[int] = _setting([1], "each seed is trained; mean and standard deviation are reported")
    storage: str | None = _setting(
        None, "where embeddings are kept between epochs: none, cpu or gpu (cpu; none with pooled-flair, which changes)"
    )
    precision: str = _setting("float32", "float32 or bfloat16 (autocast)")
    device: str | None = _setting(None, "cpu, cuda or cuda:N (a GPU when there is one)")

    def __post_init__(self) -> None:
        problems = [problem for name in (f.name for f in dataclasses.fields(self)) if (problem := self._check(name))]
        if problems:
            raise FlairNasError("settings that cannot be used: " + "; ".join(problems))

    def _check(self, name: str) -> str:
        value = getattr(self, name)
        if name in _RANGES:
            kind, low, high = _RANGES[name]
            number = isinstance(value, int if kind is int else (int, float)) and not isinstance(value, bool)
            if not number or not low <= value <= high:
                what = "a whole number" if kind is int else "a number"
                return f"{name} must be {what} from {low:g} to {high:g}, got {value!r}"
        if name in _CHOICES and value is not None and value not in _CHOICES[name]:
            return f"{name} must be one of {', '.join(_CHOICES[name])}, got {value!r}"
        if name in ("crf", "reproject") and not isinstance(value, bool):
            return f"{name} must be true or false, got {value!r}"
        if name in ("corpus", "rnn") and not (isinstance(value, str) and value):
            return f"{name} must be text, got {value!r}"
        if name in _OPTIONAL and not (value is None or isinstance(value, str)):
            return f"{name} must be text, got {value!r}"
        if name == "seeds" and not (
            isinstance(value, list)
            and value
            and all(type(seed) is int and 0 <= seed < 2**32 for seed in value)
            and len(set(value)) == len(value)
        ):
            return f"seeds must be a list of different whole numbers from 0 to 2^32 - 1, as [1, 2], got {value!r}"
        if name == "embeddings" and not (isinstance(value, list) and value and all(isinstance(s, str) for s in value)):
            return f"embeddings must be a list with at least one entry, got {value!r}"
        return ""

    @property
    def embeddings_storage_mode(self) -> Literal["none", "cpu", "gpu"]:
        """Flair's setting of that name: `storage`, or what suits the embeddings.

        Flair takes what is stored for the final embedding of a word, but a pooled one changes as its memory grows.
        """
        pooled = any(spec.startswith("pooled-flair") for spec in self.embeddings)
        return self.storage or ("none" if pooled else "cpu")  # type: ignore[return-value]  # checked

    def to_yaml(self) -> str:
        """The settings as a ``--config`` file."""
        return yaml.safe_dump(dataclasses.asdict(self), sort_keys=False, allow_unicode=True)


_RANGES: dict[str, tuple[type, float, float]] = {
    "hidden_size": (int, 1, 1_000_000),
    "layers": (int, 1, 100),
    "dropout": (float, 0, 0.99),
    "word_dropout": (float, 0, 0.99),
    "locked_dropout": (float, 0, 0.99),
    "learning_rate": (float, 1e-12, 1e6),
    "anneal_factor": (float, 1e-6, 0.999999),
    "patience": (int, 0, 1_000_000),
    "min_learning_rate": (float, 0, 1e6),
    "clip": (float, 1e-12, 1e12),
    "batch_size": (int, 1, 1_000_000),
    "epochs": (int, 1, 1_000_000),
}
_OPTIONAL = ("label_type", "columns", "data_root", "device")
_CHOICES = {"storage": ("none", "cpu", "gpu"), "precision": ("float32", "bfloat16")}


def preset_names() -> tuple[str, ...]:
    """The names of the bundled presets."""
    return tuple(sorted(path.stem for path in resource_path("presets").glob("*.yaml")))


def load_preset(name: str) -> dict[str, Any]:
    """The settings of a bundled preset.

    Raises:
        FlairNasError: there is none by that name.
    """
    if name not in preset_names():
        raise FlairNasError(f"unknown preset {name!r}; there are {', '.join(preset_names())}")
    return read_settings(resource_path("presets", f"{name}.yaml"))


def read_settings(path: str | Path) -> dict[str, Any]:
    """Reads settings from a YAML file; not all need be there.

    Raises:
        FlairNasError: the file cannot be read, is no mapping, or has a key that is no setting.
    """
    try:
        data = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise FlairNasError(f"{path}: cannot read this file of settings ({error.strerror})") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise FlairNasError(f"{path}: not a YAML file: {error}") from None
    if not isinstance(data, dict):
        raise FlairNasError(f"{path}: expected settings as `name: value` lines")
    for name, (kind, _, _) in _RANGES.items():
        if kind is float and isinstance(data.get(name), str):  # YAML 1.1 reads 1e-5 as text
            with contextlib.suppress(ValueError):
                data[name] = float(data[name])
    known = [f.name for f in dataclasses.fields(TaggerConfig)]
    unknown = [str(key) for key in data if key not in known]
    if unknown:
        raise FlairNasError(f"{path}: unknown settings {', '.join(unknown)}; the settings are {', '.join(known)}")
    return data


def resolve_config(
    *, preset: str | None = None, file: str | Path | None = None, flags: Mapping[str, Any] | None = None
) -> TaggerConfig:
    """Puts settings together: defaults, then the preset, then the file, then flags; the later wins.

    Raises:
        FlairNasError: an unknown preset, a bad file, settings that cannot be used.
    """
    settings: dict[str, Any] = {}
    if preset is not None:
        settings |= load_preset(preset)
    if file is not None:
        given = read_settings(file)
        try:
            TaggerConfig(**given)
        except FlairNasError as error:
            raise FlairNasError(f"{file}: {error}") from None
        settings |= given
    return TaggerConfig(**{**settings, **(flags or {})})
