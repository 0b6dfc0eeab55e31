"""Base of all records: immutable and compact. Each repeats frozen and kw_only, as msgspec requires."""

import msgspec

from slacktide.schemas.bounds import Term

Terms = dict[str, Term]
"""Named numbers in the order of the arithmetic. Each name ends with the unit."""


class Message(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A record's body or a part of it. Unknown fields are ignored, defaults left out.

    Fields without default are always written, so that important values such as an unlimited quota (null) are visible.
    Messages have no reference cycles, so that the garbage collector can skip thousands of them per second.
    """
