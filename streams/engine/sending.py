"""How a worker's records go out: rendered and by partition, as long as their partition is known."""

from __future__ import annotations

from collections.abc import Sequence

from slacktide.streams.kafka import Refused, Rendered, Sender
from slacktide.streams.records import Out
from slacktide.streams.rendering import RenderedOut, record_of


async def sent(sender: Sender, outs: Sequence[Out]) -> list[Refused]:
    """Write records, each partition's in order; which of them Kafka refused.

    Those without a partition, which are few, go after the others.

    Raises:
        LogError: a write failed.

    """
    if not any(isinstance(out, RenderedOut) for out in outs):  # the client puts headers together faster
        return [one for one in await sender.send_each(outs) if isinstance(one, Refused)]
    by_place: dict[tuple[str, int], list[Out]] = {}
    placeless: list[Out] = []
    for out in outs:
        if out.partition is None:
            placeless.append(out)
        else:
            by_place.setdefault((out.topic, out.partition), []).append(out)
    refused: list[Refused] = []
    if by_place:
        batches = [Rendered(*place, list(map(record_of, its))) for place, its in by_place.items()]
        results = await sender.send_rendered(batches)
        in_order = (out for its in by_place.values() for out in its)
        refused += [Refused(out, one.why) for out, one in zip(in_order, results, strict=True) if one is not None]
    if placeless:
        refused += [one for one in await sender.send_each(placeless) if isinstance(one, Refused)]
    return refused
