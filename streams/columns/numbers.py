"""Parses the lists of whole numbers of a fetch at once, without a Python object per number, and checks them."""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import simdjson

from slacktide.schemas.bounds import AMOUNT_MAX, TIME_MS_MAX
from slacktide.schemas.sample_columns import NODE_NUMBERS, NONE
from slacktide.streams.columns.rings import Bools, Ints

END: Final = -(2**63)
"""Ends each list, so that a list of the wrong length is detected."""
_BETWEEN: Final = b",%d," % END
SEQ_MAX: Final = 9_999_999_999
"""The largest sequence number that fits the ten digits of an id."""
_LEAST: Final = 0, 0, 0, 0, 0, NONE
_MOST: Final = SEQ_MAX, TIME_MS_MAX, TIME_MS_MAX, AMOUNT_MAX, AMOUNT_MAX, TIME_MS_MAX
_parser = simdjson.Parser()


class NoNumbersError(ValueError):
    """A text is not a list of 64-bit integers."""


def numbers(texts: Sequence[bytes]) -> Ints:
    """Parse the contents of some lists one after the other, with ``END`` behind each; none may be empty.

    Raises NoNumbersError if one of them has another content.
    """
    parsed: Any = None
    try:
        parsed = _parser.parse(b"[%b,%d]" % (_BETWEEN.join(texts), END))
        return np.frombuffer(bytes(parsed.as_buffer(of_type="i")), np.int64)
    except (ValueError, TypeError, RuntimeError) as exc:  # RuntimeError: a number has more than 64 bits
        parsed = None  # the parser refuses the next text while an error refers to this one
        raise NoNumbersError(str(exc)) from exc


class Columns(NamedTuple):
    """Numbers of samples, in order of the samples or of their pods."""

    node: Ints
    """int64 [n, 6], see ``sample_columns.NUMBERS``."""
    pods: Ints
    """int64 [N, 2]: CPU in millicores and memory in bytes of all pods, sample by sample."""
    counts: Ints
    """Pods of each sample."""


def columns(flat: Ints, counts: Ints) -> Columns:
    """Split the numbers of all lists into those of nodes and those of pods; ``counts``: pods of each sample.

    Raises NoNumbersError if a list is too long or too short.
    """
    width = NODE_NUMBERS + 2 * counts
    ends = np.cumsum(width + 1) - 1
    if len(flat) != ends[-1] + 1 or (flat[ends] != END).any():
        raise NoNumbersError("a list has not as many numbers as there are pods")
    if (counts == counts[0]).all():
        table = flat.reshape(len(counts), -1)
        return Columns(table[:, :NODE_NUMBERS], table[:, NODE_NUMBERS:-1].reshape(-1, 2), counts)
    places = (ends - width)[:, None] + np.arange(NODE_NUMBERS)
    of_pods = np.ones(len(flat), np.bool_)
    of_pods[places.ravel()] = of_pods[ends] = False
    return Columns(flat[places], flat[of_pods].reshape(-1, 2), counts)


def sums(values: Ints, counts: Ints) -> Ints:
    """Sum the values of each sample, exactly; ``values``: int64 [N] or [N, k]. ``counts``: how many each sample has."""
    ends = np.cumsum(counts)
    found: Ints
    if counts.min(initial=1) > 0:
        found = np.add.reduceat(values, ends - counts, 0) if len(values) else np.zeros_like(values)
    else:
        totals = np.zeros((len(values) + 1, *values.shape[1:]), np.int64)
        np.cumsum(values, 0, out=totals[1:])
        found = totals[ends] - totals[ends - counts]
    return found


def sound(its: Columns) -> Bools:
    """Find the samples whose figures are in range, by the same limits as ``sample_columns_codec``."""
    good: Bools = np.all((its.node >= _LEAST) & (its.node <= _MOST), 1)
    # As unsigned numbers, negative ones are large. One check of all numbers takes a tenth of the time of a check by
    # row.
    if its.pods.view(np.uint64).max(initial=0) <= AMOUNT_MAX:
        return good
    absent = (its.pods == NONE).all(1)
    of_pods = absent | ((its.pods >= 0) & (its.pods <= AMOUNT_MAX)).all(1)
    good &= sums((~of_pods).astype(np.int64), its.counts) == 0
    return good


def ages_ms(its: Columns, now_ms: int, without: Sequence[int]) -> list[int]:
    """Return the ages of all samples except ``without``: the worker's clock minus the node's."""
    found: list[int] = np.maximum(0, now_ms - np.delete(its.node[:, 1], without)).tolist()
    return found


def is_sound(numbers: Sequence[int]) -> bool:
    """Check the numbers of one sample in the same way. Their count must match its pods."""
    pods = numbers[NODE_NUMBERS:]
    if len(numbers) < NODE_NUMBERS or len(pods) % 2:
        return False
    if not all(least <= number <= most for least, number, most in zip(_LEAST, numbers, _MOST, strict=False)):
        return False
    if min(pods, default=0) >= 0 and max(pods, default=0) <= AMOUNT_MAX:
        return True
    pairs = zip(pods[::2], pods[1::2], strict=True)
    return all(NONE == cpu == mem or (0 <= cpu <= AMOUNT_MAX and 0 <= mem <= AMOUNT_MAX) for cpu, mem in pairs)
