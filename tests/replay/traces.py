"""Traces to try a replay on: what a simulated world's log ever held, in the order in which it is read."""

from collections.abc import Iterable, Sequence

from sim.world import Parts, World

from slacktide.schemas.topics import COMMAND, POLICY
from slacktide.streams.analysis.replay.lines import REPLAYED
from slacktide.streams.analysis.replay.policies import Policies
from slacktide.streams.analysis.replay.replay import Replay, Result
from slacktide.streams.records import Out, Record
from slacktide.streams.worker import Worker


class Honest(Worker):
    """Remembers what it says: the simulated trouble forges answers, which no worker said."""

    said: set[bytes | None]

    def samples(self, records: Iterable[Record], now_ms: int) -> list[Out]:
        outs = super().samples(records, now_ms)
        self.said |= {out.value for out in outs}
        return outs


def world_trace(seed: int) -> list[Record]:
    """What workers and agents of the world wrote, whatever happened to the log; forged answers left out."""
    said: set[bytes | None] = set()

    def worker(name: str) -> Worker:
        made = Honest(name)
        made.said = said
        return made

    world = World(seed, Parts(worker=worker)).run()
    records = [record for topic in REPLAYED for record in world.log.ever[topic]]
    return in_order(one for one in records if one.topic != COMMAND.name or one.value in said)


def in_order(records: Iterable[Record]) -> list[Record]:
    """What a replay needs of them, by time, then as an export has them."""
    known = (one for one in records if one.topic in REPLAYED)
    return sorted(known, key=lambda one: (one.timestamp_ms, REPLAYED.index(one.topic), one.partition))


def replayed(records: Sequence[Record], **options) -> Result:
    """The trace replayed."""
    replay = Replay(Policies(one for one in records if one.topic == POLICY.name), **options)
    for record in records:
        if record.topic != POLICY.name:
            replay.take(record)
    return replay.finish()
