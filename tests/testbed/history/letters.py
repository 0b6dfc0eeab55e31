"""Dead letters name bad records. Each comes at least once: who restarts or governs anew may read a bad record again."""

from __future__ import annotations

from collections.abc import Mapping

from slacktide.schemas.codec import decode
from slacktide.schemas.dead_letter import DeadLetter
from slacktide.schemas.errors import BadMessageError
from slacktide.schemas.topics import BY_NAME, DEAD_LETTER
from testbed.history.records import History, Kept
from testbed.history.verdict import Verdict, verdict

Place = tuple[str, int, int]


def place_of(record: Kept | DeadLetter) -> Place:
    """Topic, partition and offset."""
    return record.topic, record.partition, record.offset


def only_bad_records_buried(history: History) -> Verdict:
    """Of honest nodes' samples: what decodes under its own key is no dead letter."""
    by_place: Mapping[Place, Kept] = {place_of(record): record for record in history.records}
    letters = [entry.body for entry in history.of(DEAD_LETTER, DeadLetter)]
    broken = [
        f"{place_of(letter)} is good, and was refused: {letter.reason}"
        for letter in letters
        if (record := by_place.get(place_of(letter))) is not None and _is_good(record, history)
    ]
    return verdict("only bad records are dead letters", len(letters), broken)


def _is_good(record: Kept, history: History) -> bool:
    try:
        body = decode(record.value, BY_NAME[record.topic].message)
    except BadMessageError:
        return False
    node = getattr(body, "node", "")
    return record.key == node.encode() and (not history.nodes or node in history.nodes)
