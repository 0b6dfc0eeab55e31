"""The base of all records: immutable, lean on the wire; each repeats frozen and kw_only, as msgspec asks."""

from __future__ import annotations

import msgspec

from slacktide.schemas.bounds import Term

Terms = dict[str, Term]
"""Named numbers in the order of the arithmetic; the unit is the end of each name."""


class Message(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A record's body or a part of it. Unknown fields are ignored, defaults left out.

    A field without a default is always written, so that what a reader must see
    (an unlimited quota, for example: null) is visible. A message holds no message that holds it, so that
    the garbage collector need not look at it: there are thousands of them a second.
    """
