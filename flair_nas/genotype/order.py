"""Orders of a transformer's sublayers, as layer specs name them: ``transformer:sandwich-2-4,heads=4``.

s is self-attention, f a feed-forward sublayer. The usual transformer is (sf)^n, and a sandwich s^k (sf)^(n-k) f^k
(Press, Smith and Levy, ACL 2020).
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field, replace
from typing import Any

from flair_nas.errors import FlairNasError, brief
from flair_nas.genotype.vocabulary import MAX_NODES, Json

ORDER_FORMAT = "flair-nas/order"
"""The format of the file of an order."""
_TRANSFORMER = "transformer"
_FORM = "transformer:ORDER, with the letters s and f, as ssfsff, or sandwich-K-N; options are heads and dropout"


@dataclass(frozen=True)
class Order:
    """A transformer by the order of its sublayers."""

    letters: str  # s and f
    heads: int = 4  # of self-attention
    dropout: float = 0.0  # of attention weights, and within feed-forward sublayers
    origin: dict[str, Any] = field(default_factory=dict, compare=False)  # provenance, as JSON data

    options = ""  # as of a genotype; all are in the spec

    def one_line(self) -> str:
        """Return the layer spec."""
        dropout = f",dropout={self.dropout:g}" if self.dropout else ""
        return f"{_TRANSFORMER}:{self.letters},heads={self.heads}{dropout}"

    spec = one_line

    def to_dict(self) -> dict[str, Json]:
        """Return the order as JSON data, with its provenance."""
        return {"format": ORDER_FORMAT, "version": 1, "order": self.one_line(), "origin": self.origin}

    def to_json(self) -> str:
        """Return the text of a file."""
        return json.dumps(self.to_dict(), indent=2) + "\n"


def read_order(data: Json) -> Order:
    """Return the order of a file's JSON data.

    Raises:
        FlairNasError: it is of another format.
    """
    kinds = {"order": str, "origin": dict}
    if not isinstance(data, dict) or not all(isinstance(data.get(key), kind) for key, kind in kinds.items()):
        raise FlairNasError("expected an order of a transformer's sublayers")
    return replace(parse_order(data["order"]), origin=dict(data["origin"]))


def is_order(text: str) -> bool:
    """Return True if a layer spec names a transformer."""
    return re.match(rf"{_TRANSFORMER}(?=[:,]|$)", text, re.IGNORECASE) is not None


def parse_order(text: str, name: str = "rnn_type") -> Order:
    """Return the transformer of a layer spec.

    Args:
        text: `transformer:ORDER`, then options, as in `transformer:sandwich-2-4,heads=4,dropout=0.1`.
        name: the setting of the text, for errors.

    Raises:
        FlairNasError: the order or an option is faulty.
    """
    place = f"{name} {brief(text)}"
    order, *options = text.lower().partition(":")[2].split(",")
    given: dict[str, str] = {}
    for option in options:
        key, _, value = option.strip().partition("=")
        if key in given or not re.fullmatch(r"heads=[1-9]\d{0,3}|dropout=(0|0?\.\d{1,4})", f"{key}={value}"):
            raise FlairNasError(f"{place}: expected {_FORM}; got {brief(option)}")
        given[key] = value
    letters = order.strip()
    if sandwich := re.fullmatch(r"sandwich-(\d{1,4})-(\d{1,4})", letters):
        k, n = map(int, sandwich.groups())
        if k >= n:
            raise FlairNasError(f"{place}: of sandwich-K-N, K must be below N, got {k} and {n}")
        letters = k * "s" + (n - k) * "sf" + k * "f"
    if not re.fullmatch("[sf]+", letters):
        raise FlairNasError(f"{place}: expected {_FORM}; got {brief(letters) if letters else 'no order'}")
    if len(letters) > MAX_NODES:
        raise FlairNasError(f"{place}: expected at most {MAX_NODES:,} sublayers, got {len(letters):,}")
    return Order(letters, int(given.get("heads", 4)), float(given.get("dropout", 0)))
