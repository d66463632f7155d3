"""The elementwise work of all nodes of a level, as Triton kernels: one launch forward, one back (I-DARTS eq. 1 and 4).

A program has one block of elements [B, H], of each node of the level and of each of its pairs in turn. Which pairs
these are stands in tables, `flair_nas.kernels.levels.Tables`, so that one kernel serves all cells. Where states are
normalised over the batch, a block is a few whole columns. What is said of Triton in
`flair_nas.kernels.triton_elementwise` holds here, too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flair_nas.kernels import triton_elementwise
from flair_nas.kernels.triton_elementwise import _operate, _slope

if TYPE_CHECKING:  # kernels know it by this name once `launch` has imported it
    import triton.language as tl  # type: ignore[import-not-found, import-untyped, unused-ignore]


def places(size, height, ROWS: tl.constexpr, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """Which elements [B, H] a program has, and which of these exist; of whole columns, ROWS by BLOCK, those too."""
    column = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    place = column
    inside = place < size
    there = inside
    if ROWS > 0:
        column = column[None, :]
        there = column < height
        line = tl.arange(0, ROWS)[:, None]
        place = line * height + column
        inside = there & (line < size // height)
    return place, inside, column, there


def normalise(  # type: ignore[no-untyped-def]
    state, inside, column, there, deviations, mean, variance, batch,
    OF_BATCH: tl.constexpr, MOMENTUM: tl.constexpr, EPSILON: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """Normalises whole columns, brings running statistics up to date and keeps what columns are multiplied with."""
    if OF_BATCH:
        middle = tl.sum(tl.where(inside, state, 0.0), axis=0, keep_dims=True) / batch
        state -= middle
        spread = tl.sum(tl.where(inside, state * state, 0.0), axis=0, keep_dims=True) / batch
        if mean is not None:
            old = tl.load(mean + column, mask=there, other=0.0).to(WIDE)
            tl.store(mean + column, old + MOMENTUM * (middle - old), mask=there)
            old = tl.load(variance + column, mask=there, other=0.0).to(WIDE)
            tl.store(variance + column, old + MOMENTUM * (spread * batch / (batch - 1) - old), mask=there)
    else:
        state -= tl.load(mean + column, mask=there, other=0.0).to(WIDE)
        spread = tl.load(variance + column, mask=there, other=0.0).to(WIDE)
    deviation = 1 / tl.sqrt(spread + EPSILON)
    tl.store(deviations + column, deviation, mask=there)
    return state * deviation


def normalise_back(  # type: ignore[no-untyped-def]
    gradient, state, inside, column, there, deviations, batch, OF_BATCH: tl.constexpr, WIDE: tl.constexpr
):
    """The gradient of what `normalise` had, from that of the state which it gave; 0 where there is no element."""
    if OF_BATCH:
        along = tl.sum(gradient * state, axis=0, keep_dims=True) / batch
        gradient -= tl.sum(gradient, axis=0, keep_dims=True) / batch + state * along
        gradient = tl.where(inside, gradient, 0.0)
    return gradient * tl.load(deviations + column, mask=there, other=0.0).to(WIDE)


def read_pair(projected, pre, pair, apart, row, height, inside, WIDE: tl.constexpr):  # type: ignore[no-untyped-def]
    """The gate σ(c) of a pair and its z; those of pair 0 are with what the input gives."""
    gate = tl.load(pre + pair * apart + row, mask=inside, other=0.0).to(WIDE)
    z = tl.load(pre + pair * apart + height + row, mask=inside, other=0.0).to(WIDE)
    if pair == 0:
        gate += tl.load(projected + row, mask=inside, other=0.0).to(WIDE)
        z += tl.load(projected + height + row, mask=inside, other=0.0).to(WIDE)
    return tl.sigmoid(gate), z


SHARED = (*triton_elementwise.SHARED, places, normalise, normalise_back, read_pair)


def enter(  # type: ignore[no-untyped-def]
    last, factor, mask, alive, carry, entering, size, height,
    GATED: tl.constexpr, WIDE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """h_{t-1}, times what the state gate gives: as it is carried on, and as it enters its product."""
    place = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = place < size
    h = tl.load(last + place, mask=inside, other=0.0).to(WIDE)
    if alive is not None:
        h *= tl.load(alive + place // height, mask=inside, other=0.0).to(WIDE)
    gated = h
    if factor is not None:
        gated *= tl.load(factor + place, mask=inside, other=0.0).to(WIDE)
    if GATED:
        h = gated
    tl.store(carry + place, h, mask=inside)
    if mask is not None:
        gated *= tl.load(mask + place, mask=inside, other=0.0).to(WIDE)
    tl.store(entering + place, gated, mask=inside)


def level(  # type: ignore[no-untyped-def]
    projected, pre, states, entering, mask, output, shares, deviations, mean, variance,
    of_levels, of_pairs, into, first, factors, number, apart, stride, size, height,
    OPS: tl.constexpr, ROWS: tl.constexpr, OF_BATCH: tl.constexpr, MOMENTUM: tl.constexpr, EPSILON: tl.constexpr,
    WIDE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The states of one level, as they are and as they enter further products; after the last level h_t."""
    place, inside, column, there = places(size, height, ROWS, BLOCK)
    row = place + place // height * height  # in [B, 2 * H]
    h = tl.zeros(place.shape, dtype=WIDE)
    for node in range(tl.load(of_levels + 3 * number), tl.load(of_levels + 3 * number + 1)):
        total = tl.zeros(place.shape, dtype=WIDE)
        for way in range(tl.load(first + 3 * node), tl.load(first + 3 * node + 3)):
            pair = tl.load(into + way)
            tail = tl.load(of_pairs + 2 * pair)
            state = tl.load(states + tail * stride + place, mask=inside, other=0.0).to(WIDE)
            gate, z = read_pair(projected, pre, pair, apart, row, height, inside, WIDE)
            value = tl.zeros(place.shape, dtype=WIDE)
            carried = tl.zeros(place.shape, dtype=WIDE)
            for op in tl.static_range(1, OPS):
                share = tl.load(shares + OPS * pair + op).to(WIDE)
                value += share * _operate(z, op)
                carried += share
            carried *= state
            total += carried + gate * (value - carried)
        total *= tl.load(factors + 2 * node).to(WIDE)
        if ROWS > 0:
            total = normalise(
                total, inside, column, there, deviations + node * height, mean, variance, size // height,
                OF_BATCH, MOMENTUM, EPSILON, WIDE,
            )  # fmt: skip
        tl.store(states + node * stride + place, total, mask=inside)
        h += total * tl.load(factors + 2 * node + 1).to(WIDE)  # others cannot be sure to read what is stored here
        if mask is not None:
            total *= tl.load(mask + place, mask=inside, other=0.0).to(WIDE)
        for slot in range(tl.load(first + 3 * node + 2), tl.load(first + 3 * node + 5)):
            tl.store(entering + slot * stride + place, total, mask=inside)
    earlier = tl.load(of_levels + 3 * number + 2)  # 0 before the last level
    for node in range(0, earlier):
        share = tl.load(factors + 2 * node + 1).to(WIDE)
        if share != 0:
            h += share * tl.load(states + node * stride + place, mask=inside, other=0.0).to(WIDE)
    if earlier > 0:
        tl.store(output + place, h, mask=inside)


def level_back(  # type: ignore[no-untyped-def]
    projected, pre, states, mask, of_last, of_entering, of_projected, of_pre, of_states, parts, shares, deviations,
    of_levels, of_pairs, into, first, factors, number, apart, stride, size, height,
    OPS: tl.constexpr, ROWS: tl.constexpr, OF_BATCH: tl.constexpr, WIDE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Gradients of the sums of one level, from those of h_t and of later sums, and of the products into them.

    Of the shares of its pairs, each program has a part: they are added in a fixed order, not as programs end.
    """
    place, inside, column, there = places(size, height, ROWS, BLOCK)
    row = place + place // height * height
    of_h = tl.load(of_last + place, mask=inside, other=0.0).to(WIDE)
    for node in range(tl.load(of_levels + 3 * number), tl.load(of_levels + 3 * number + 1)):
        gradient = of_h * tl.load(factors + 2 * node + 1).to(WIDE)
        for pair in range(tl.load(first + 3 * node + 1), tl.load(first + 3 * node + 4)):
            head = tl.load(of_pairs + 2 * pair + 1)
            of_head = tl.load(of_states + head * size + place, mask=inside, other=0.0).to(WIDE)
            gate = tl.sigmoid(tl.load(pre + pair * apart + row, mask=inside, other=0.0).to(WIDE))
            carried = tl.zeros(place.shape, dtype=WIDE)
            for op in tl.static_range(1, OPS):
                carried += tl.load(shares + OPS * pair + op).to(WIDE)
            through = tl.load(of_entering + pair * size + place, mask=inside, other=0.0).to(WIDE)
            if mask is not None:
                through *= tl.load(mask + place, mask=inside, other=0.0).to(WIDE)
            gradient += through + carried * (1 - gate) * of_head
        if ROWS > 0:
            state = tl.load(states + node * stride + place, mask=inside, other=0.0).to(WIDE)
            gradient = normalise_back(
                gradient, state, inside, column, there, deviations + node * height, size // height, OF_BATCH, WIDE
            )
        gradient *= tl.load(factors + 2 * node).to(WIDE)
        tl.store(of_states + node * size + place, gradient, mask=inside)
        for way in range(tl.load(first + 3 * node), tl.load(first + 3 * node + 3)):
            pair = tl.load(into + way)
            tail = tl.load(of_pairs + 2 * pair)
            state = tl.load(states + tail * stride + place, mask=inside, other=0.0).to(WIDE)
            gate, z = read_pair(projected, pre, pair, apart, row, height, inside, WIDE)
            value = tl.zeros(place.shape, dtype=WIDE)
            slope = tl.zeros(place.shape, dtype=WIDE)
            through = gradient * gate
            for op in tl.static_range(1, OPS):
                share = tl.load(shares + OPS * pair + op).to(WIDE)
                own = _operate(z, op)
                value += share * (own - state)
                slope += share * _slope(z, own, op)
                if parts is not None:  # every operation but drop carries the state, too
                    part = tl.sum(gradient * state + through * (own - state))
                    tl.store(parts + (OPS * pair + op) * tl.num_programs(0) + tl.program_id(0), part)
            value *= through * (1 - gate)
            slope *= through
            tl.store(of_pre + pair * apart + row, value, mask=inside)
            tl.store(of_pre + pair * apart + height + row, slope, mask=inside)
            if pair == 0:
                tl.store(of_projected + row, value, mask=inside)
                tl.store(of_projected + height + row, slope, mask=inside)


def enter_back(  # type: ignore[no-untyped-def]
    projected, pre, last, factor, mask, alive, of_entering, of_first, of_factor, of_output, of_last, size, height,
    GATED: tl.constexpr, WIDE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The gradient of h_{t-1}, all in all, and of the state gate, from what enters the product and what s_0 keeps."""
    place = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = place < size
    row = place + place // height * height
    gate, _z = read_pair(projected, pre, 0, 0, row, height, inside, WIDE)
    kept = (1 - gate) * tl.load(of_first + place, mask=inside, other=0.0).to(WIDE)
    of_gated = tl.load(of_entering + place, mask=inside, other=0.0).to(WIDE)
    if mask is not None:
        of_gated *= tl.load(mask + place, mask=inside, other=0.0).to(WIDE)
    if GATED:
        of_gated += kept
    gradient = of_gated
    if factor is not None:
        gradient = of_gated * tl.load(factor + place, mask=inside, other=0.0).to(WIDE)
        h = tl.load(last + place, mask=inside, other=0.0).to(WIDE)
        if alive is not None:
            h *= tl.load(alive + place // height, mask=inside, other=0.0).to(WIDE)
        tl.store(of_factor + place, of_gated * h, mask=inside)
    if not GATED:
        gradient += kept
    if alive is not None:
        gradient *= tl.load(alive + place // height, mask=inside, other=0.0).to(WIDE)
    if of_output is not None:
        gradient += tl.load(of_output + place, mask=inside, other=0.0).to(WIDE)
    tl.store(of_last + place, gradient, mask=inside)
