"""Repeats the decisions of recorded topics: each must be equal, byte for byte."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from slacktide.schemas.codec import encode
from slacktide.schemas.queue import QueueDecision
from slacktide.streams.queue.decider import Decider
from slacktide.streams.queue.ledger import Inputs, Ledger, decision_of, inputs_of
from slacktide.streams.records import Record


class Replayed(NamedTuple):
    """A recorded decision and the repeated one."""

    recorded: QueueDecision
    again: QueueDecision
    equal: bool


def replay(records: Iterable[Record]) -> Iterator[Replayed]:
    """Repeat the decisions, from spec, workload, outcome and decision topics, each from its start and in order.

    Records lost by retention or compaction cause differences.
    """
    records = list(records)
    inputs = inputs_of(records)
    ledger = Ledger()
    decider: Decider | None = None
    for record in records:
        one = decision_of(record)
        if one is None or not ledger.counts(one):
            continue
        if one.turn == 0:
            decider = Decider(one.process, ledger.copy(), fair_sharing=one.fair_sharing, pods_ready=one.pods_ready)
            again = decider.begin(one.epoch, one.decided_ms)
        elif decider is not None:
            begin, end = decider.ledger.read, one.read
            new = Inputs(
                [each for each in inputs.specs if begin.spec <= each.offset < end.spec],
                [each for each in inputs.workloads if begin.workload <= each.offset < end.workload],
                [each for each in inputs.outcomes if begin.outcome <= each.offset < end.outcome],
            )
            again = decider.turn(new, one.decided_ms, one.allowed).decision
        else:
            continue  # its term began before the records
        ledger.decided(one)
        yield Replayed(one, again, encode(one) == (record.value or b"") == encode(again))
