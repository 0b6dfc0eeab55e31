"""An unknown name, with suggestions."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from slacktide.schemas.errors import SlacktideError

NEAR = 5


class NotFoundError(SlacktideError):
    """A name without records in Kafka."""


def near(name: str, known: Iterable[str]) -> str:
    """Return suggestions for a message."""
    names = sorted(known)
    found = difflib.get_close_matches(name, names, n=NEAR, cutoff=0.5) or names[:NEAR]
    more = f" and {len(names) - len(found)} more" if len(names) > len(found) else ""
    return f"known: {', '.join(found)}{more}" if found else "none is known"
