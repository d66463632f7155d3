"""A transformer that runs its sublayers in any order, for the search of orders."""

from __future__ import annotations

import dataclasses
from typing import Any

from flair_nas.genotype.order import Order
from flair_nas.nn.sublayers import SublayerTransformer
from flair_nas.supernet.base import Relaxed, SupernetBase


class OrderSupernet(SublayerTransformer, SupernetBase):
    """Sublayers that run in the order that was chosen, at first in that of its arguments.

    The k-th s of every order is the same sublayer, and so is the k-th f. There are no architecture weights.

    Args are those of `SublayerTransformer`.
    """

    def __init__(self, input_size: int, hidden_size: int, order: Order, *directions: bool) -> None:
        letters = "".join(sorted(order.letters, reverse=True))
        super().__init__(input_size, hidden_size, dataclasses.replace(order, letters=letters), *directions)
        self.choose(order)

    def relaxed(self) -> list[Relaxed]:
        """Return no matrix."""
        return []

    def choose(self, genotype: Any) -> None:
        """Run an order with as many s and f."""
        letters = genotype.letters
        assert sorted(letters) == sorted(self.order.letters)
        first = letters.count("s")  # of the sublayers f
        places = [letters[:at].count(letter) + first * (letter == "f") for at, letter in enumerate(letters)]
        self.sublayers.layers_execute_order = tuple(places)
        self.order = genotype
