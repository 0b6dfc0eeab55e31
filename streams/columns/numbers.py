"""Many lists of whole numbers, read at once.

One parse of all lists of a fetch hands the numbers over as an array: no Python number is made of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import simdjson

from slacktide.streams.columns.rings import Ints

END: Final = -(2**63)
"""Stands behind each list: a list of another length than it should have shows by it."""
_BETWEEN: Final = b",%d," % END
_parser = simdjson.Parser()


class NoNumbersError(ValueError):
    """A text is no list of whole numbers of 64 bits."""


def numbers(texts: Sequence[bytes]) -> Ints:
    """Read what stands between the brackets of some lists, one after the other, ``END`` behind each.

    Args:
        texts: each not empty.

    Raises:
        NoNumbersError: one of them holds anything else.

    """
    try:
        parsed: Any = _parser.parse(b"[%b,%d]" % (_BETWEEN.join(texts), END))
        return np.frombuffer(bytes(parsed.as_buffer(of_type="i")), np.int64)
    except (ValueError, TypeError, RuntimeError) as exc:  # the last one where a number has more than 64 bits
        raise NoNumbersError(str(exc)) from exc
