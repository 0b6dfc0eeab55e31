"""Parses the lists of whole numbers of a fetch at once, without a Python object per number."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import simdjson

from slacktide.streams.columns.rings import Ints

END: Final = -(2**63)
"""Ends each list, so that a list of the wrong length is detected."""
_BETWEEN: Final = b",%d," % END
_parser = simdjson.Parser()


class NoNumbersError(ValueError):
    """A text is not a list of 64-bit integers."""


def numbers(texts: Sequence[bytes]) -> Ints:
    """Parse the contents of some lists one after the other, with ``END`` behind each; none may be empty.

    Raises:
        NoNumbersError: one of them has another content.
    """
    try:
        parsed: Any = _parser.parse(b"[%b,%d]" % (_BETWEEN.join(texts), END))
        return np.frombuffer(bytes(parsed.as_buffer(of_type="i")), np.int64)
    except (ValueError, TypeError, RuntimeError) as exc:  # RuntimeError: a number has more than 64 bits
        raise NoNumbersError(str(exc)) from exc
