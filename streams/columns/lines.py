"""Templates of records: a message is encoded once with marks, which texts and numbers then replace.

A filled template has the same bytes as the codec writes. Texts are filled in first, which yields a template of numbers.
All nodes share one template of answers, which is filled once per pod list with a node's texts.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import count
from operator import itemgetter
from typing import Final

import msgspec

from slacktide.schemas.codec import encode
from slacktide.schemas.command import Hold, NodeCommand, Origin, command_id
from slacktide.schemas.headers import headers, traceparent
from slacktide.schemas.proof import Verdict
from slacktide.schemas.sample import Limits
from slacktide.streams.columns.screen import BOUNDS, MINIMUM, VARYING, case_of, names
from slacktide.streams.decisions.suppress.cpu_suppress import RULE, TARGET
from slacktide.streams.rendering import rendered_headers, rendered_key

FIRST: Final = 7_000_000_001
"""The first mark of a number. Ten digits, because ids pad numbers to ten."""
_BEGIN: Final = b"70000"
_DIGITS: Final = 10


class MarksError(ValueError):
    """A text of the message looks like a mark, so that no template can be built."""


def mark(number: int) -> str:
    """Return the mark of a text. No name, id or revision contains this character."""
    return f"\x7f{number}\x7f"


def text(value: str) -> bytes:
    """Encode a text as JSON and escape it for a template of numbers."""
    return escaped(msgspec.json.encode(value))


def escaped(raw: bytes) -> bytes:
    """Escape bytes for a template of numbers."""
    return raw.replace(b"%", b"%%")


def template(raw: bytes, texts: Sequence[bytes], numbers: int, *, again: int | None = None) -> bytes:
    """Return a template of texts, which yields a template of numbers.

    ``texts``: what ``%b`` replaces, in order; each occurs once. ``numbers``: how many number marks there are, in order
    of the fields. ``again``: the mark that occurs more than once. Raises MarksError if the marks found are others.
    """
    pieces: list[bytes] = []
    found: list[int] = []
    rest = raw
    for one in texts:
        before, there, rest = rest.partition(one)
        if not there:
            raise MarksError(raw.decode(errors="replace"))
        pieces += _numbers(before, found, numbers), b"%b"
    pieces.append(_numbers(rest, found, numbers))
    once = [one for place, one in enumerate(found) if one != again or one not in found[:place]]
    if once != list(range(numbers)):
        raise MarksError(raw.decode(errors="replace"))
    return b"".join(pieces)


def _numbers(raw: bytes, found: list[int], count: int) -> bytes:
    """Replace each mark by ``%%d``, or by ``%%010d`` behind the ``-`` of an id."""
    pieces: list[bytes] = []
    begin = 0
    raw = raw.replace(b"%", b"%%%%")
    at = raw.find(_BEGIN)
    while at >= 0:
        digits = raw[at : at + _DIGITS]
        if not digits.isdigit() or not 0 <= (number := int(digits) - FIRST) < count:
            at = raw.find(_BEGIN, at + 1)
            continue
        found.append(number)
        pieces += raw[begin:at], b"%%010d" if raw[at - 1 : at] == b"-" else b"%%d"
        begin = at + _DIGITS
        at = raw.find(_BEGIN, begin)
    return b"".join((*pieces, raw[begin:]))


_SEQ: Final = 0
"""The sequence number is always the first mark."""
_FIXED: Final = 7_100_000_001
"""Fixed terms have marks from here on, in order of their columns: no number mark begins in this way."""
_TIME: Final = b"2026-01-01T00:00:00.000Z"


@dataclass(frozen=True, slots=True, eq=False)
class Boot:
    """A boot of a node, as JSON texts."""

    node: bytes
    boot_id: bytes
    answer_id: bytes
    """The constant part of the ids of its answers."""
    hold_id: bytes
    key: bytes
    answered: bytes
    """A template of what its answers that keep name: takes seq."""
    tails: dict[str, bytes] = field(default_factory=dict)
    """Templates of headers, by topic."""


def boot_of(node: str, boot_id: str, policy_version: str) -> Boot:
    """Build a boot's texts."""
    its_node, its_boot = text(node), text(boot_id)
    return Boot(
        node=its_node,
        boot_id=its_boot,
        answer_id=_id_of(node, boot_id, "answer", node, policy_version),
        hold_id=_id_of(node, boot_id, RULE, TARGET, policy_version),
        key=rendered_key(node.encode()),
        answered=b"[%b,%b,%%d]" % (its_node, its_boot),
    )


def _id_of(node: str, boot_id: str, rule: str, target: str, policy_version: str) -> bytes:
    return command_id(node, boot_id, 0, rule, target, policy_version).partition("-")[0].encode()


class Line:
    """A template of one node's answers, which takes numbers."""

    __slots__ = ("line", "shown")

    def __init__(self, line: bytes, columns: Sequence[int]) -> None:
        self.line = line
        """Takes seq each time it occurs, observed_ms, quota, varying terms, decided_ms, offset."""
        self.shown: Callable[[Sequence[int]], Sequence[int]] = itemgetter(*columns) if columns else tuple
        """Picks the terms to show from the ``VARYING`` ones."""


@lru_cache(maxsize=256)
def _shared(
    case: int, worker: str, topic: str, partition: int, proof: Verdict
) -> tuple[bytes, Sequence[int], Sequence[int]]:
    """Return the template of a case, the columns of its fixed terms, and the places of others in ``VARYING``."""
    bound, minimum, limited = case_of(case)
    columns = names(bound, minimum=minimum, limited=limited)
    seq, observed, quota = FIRST, FIRST + 1, FIRST + 2
    first_term = FIRST + 3
    fixed = [column for column in columns.values() if column not in VARYING]
    shown = [VARYING.index(column) for column in columns.values() if column in VARYING]
    decided = first_term + len(shown)
    marks = count(first_term)
    id_, node, boot, policy, facts, pods, hold_id = map(mark, range(7))
    hold = Hold(
        id=f"{hold_id}-{seq}",
        rule=RULE,
        target=TARGET,
        limits=Limits(be_cfs_quota_us=quota),
        bound=MINIMUM if minimum else BOUNDS.get(bound, ""),
        terms={name: next(marks) if column in VARYING else _FIXED + column for name, column in columns.items()},
    )
    command = NodeCommand(
        id=f"{id_}-{seq}",
        node=node,
        boot_id=boot,
        seq=seq,
        observed_ms=observed,
        policy_version=policy,
        facts_revision=facts,
        pods_revision=pods,
        answer="set",
        hold=[hold],
        decided_ms=decided,
        worker=worker,
        sample=Origin(topic=topic, partition=partition, offset=decided + 1),
        proof=proof,
    )
    texts = [id_.encode(), *(f'"{one}"'.encode() for one in (node, boot, policy, facts, pods))]
    texts += (hold_id.encode(), *(b"%d" % (_FIXED + column) for column in fixed))
    return template(encode(command), texts, decided + 2 - FIRST, again=_SEQ), fixed, shown


def line_of(
    case: int,
    boot: Boot,
    revisions: Sequence[bytes],
    terms: Sequence[int],
    *,
    worker: str,
    topic: str,
    partition: int,
    proof: Verdict,
) -> Line:
    """Return a node's template of one kind of answer that sets a limit.

    ``revisions``: policy version, facts and pods revision, as JSON texts. ``terms``: a row of ``Screened.terms`` with
    the fixed ones. Raises MarksError if the worker's name looks like a mark.
    """
    shared, fixed, shown = _shared(case, worker, topic, partition, proof)
    texts = [boot.answer_id, boot.node, boot.boot_id, *revisions]
    texts += (boot.hold_id, *(b"%d" % terms[column] for column in fixed))
    return Line(shared % tuple(texts), shown)


def tail_line(kind: str, source: str, node: str, boot_id: str, event_id: str) -> bytes:
    """Return the template of the headers of one boot's records in a topic, see ``rendered_headers``.

    It takes seq for the event's id, the seconds and milliseconds of its time, seq, and seq's last 32 bits. ``event_id``
    ends with ``FIRST``.
    """
    boot = f"{node}/{boot_id}"
    lines = headers(kind=kind, source=source, subject=node, event_id=event_id, event_ms=0, trace=f"{boot}/{FIRST}")
    parent = traceparent(boot, kind, source)
    written = parent % (FIRST, FIRST & 0xFFFFFFFF)
    raw = rendered_headers([(name, _TIME if name == "ce_time" else value) for name, value in lines])
    id_ = event_id.encode()
    places = {id_: escaped(id_.removesuffix(b"%d" % FIRST)) + b"%010d", _TIME: b"%b.%03dZ", written: parent}
    pieces: list[bytes] = []
    for one, line in places.items():
        before, _, raw = raw.partition(one)
        pieces += escaped(before), line
    return b"".join((*pieces, escaped(raw)))
