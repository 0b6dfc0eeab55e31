"""CloudEvents binary mode headers, and one trace per sample."""

import hashlib
from datetime import UTC, datetime
from functools import lru_cache

from slacktide.schemas.bounds import clamped_ms

Header = tuple[str, bytes]
Headers = tuple[Header, ...]

_VERSION = ("ce_specversion", b"1.0")
_JSON = ("content-type", b"application/json")


def headers(*, kind: str, source: str, subject: str, event_id: str, event_ms: int, trace: str = "") -> Headers:
    """Headers of one record.

    Args:
        kind: the topic's name, which is also the event's type.
        source: the writer, such as ``agent/node-1``.
        subject: the record's key.
        event_id: unique together with the source.
        event_ms: event time, UTC epoch milliseconds; clamped to valid dates.
        trace: ``node/boot_id/seq`` of the sample, so that sample, command and outcome are in one trace.
    """
    of_type, of_source, of_schema = _of(kind, source)
    lines = (
        _VERSION,
        ("ce_id", event_id.encode()),
        of_type,
        of_source,
        ("ce_subject", subject.encode()),
        ("ce_time", _when(event_ms)),
        of_schema,
        _JSON,
    )
    if not trace:
        return lines
    boot, _, seq = trace.rpartition("/")
    return (*lines, ("traceparent", traceparent(boot, kind, source) % (int(seq), int(seq) & 0xFFFFFFFF)))


@lru_cache(maxsize=4_096)
def traceparent(boot: str, kind: str, source: str) -> bytes:
    """The ``traceparent`` template of one part's records about a node's boot.

    Args:
        boot: ``node/boot_id``.
        kind: of the record.
        source: who wrote it.

    Returns:
        A template for the whole sequence number, and for its last 32 bits.
    """
    trace, span = _hash(boot)[:16], _hash(f"{kind}/{source}/{boot}")[:8]
    return f"00-{trace}%016x-{span}%08x-01".encode()


@lru_cache(maxsize=256)
def _of(kind: str, source: str) -> tuple[Header, Header, Header]:
    """Headers that all records of one part on one topic share."""
    return (("ce_type", kind.encode()), ("ce_source", source.encode()), ("ce_dataschema", f"{kind}.json".encode()))


def _when(event_ms: int) -> bytes:
    seconds, ms = divmod(clamped_ms(event_ms), 1_000)
    return b"%b.%03dZ" % (_second(seconds), ms)


@lru_cache(maxsize=256)
def _second(epoch_s: int) -> bytes:
    return datetime.fromtimestamp(epoch_s, UTC).strftime("%Y-%m-%dT%H:%M:%S").encode()


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
