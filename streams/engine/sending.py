"""Sends a worker's records: rendered and grouped by partition, if their partition is known."""

from __future__ import annotations

from collections.abc import Sequence

from slacktide.streams.kafka import Refused, Rendered, Sender
from slacktide.streams.records import Out
from slacktide.streams.rendering import RenderedAnswers, RenderedOut, record_of


async def sent(sender: Sender, outs: Sequence[Out]) -> list[Refused]:
    """Write records, ordered within each partition; return those that Kafka rejected.

    The few records without a partition go last.

    Raises:
        LogError: a write failed.
    """
    if isinstance(outs, RenderedAnswers):
        batches, placeless = [Rendered(*place, its) for place, its in outs.by_place.items()], outs.placeless
    elif any(isinstance(out, RenderedOut) for out in outs):
        by_place = _by_place(outs)
        batches = [Rendered(*place, list(map(record_of, its))) for place, its in by_place.items()]
        placeless = [out for out in outs if out.partition is None]
    else:  # the client encodes headers faster
        batches, placeless = [], list(outs)
    refused: list[Refused] = []
    if batches:
        results = await sender.send_rendered(batches)
        if any(results):
            in_order = [out for its in _by_place(outs).values() for out in its]
            refused += [Refused(out, one.why) for out, one in zip(in_order, results, strict=True) if one is not None]
    if placeless:
        refused += [one for one in await sender.send_each(placeless) if isinstance(one, Refused)]
    return refused


def _by_place(outs: Sequence[Out]) -> dict[tuple[str, int], list[Out]]:
    found: dict[tuple[str, int], list[Out]] = {}
    for out in outs:
        if out.partition is not None:
            found.setdefault((out.topic, out.partition), []).append(out)
    return found
