"""``slacktide calc queue_order``."""

from __future__ import annotations

from slacktide.deploy.cli.calc.case import Calculated, Given
from slacktide.deploy.cli.calc.queue.queue_case import GivenWorkload, unique
from slacktide.streams.decisions.because import Because
from slacktide.streams.decisions.queue.queue_order import RequeuingTimestamp, place


class Input(Given, frozen=True, kw_only=True):
    """Workloads of a ClusterQueue."""

    requeuing_timestamp: RequeuingTimestamp = "Eviction"
    workloads: list[GivenWorkload]


def calculate(given: Input) -> Calculated:
    """Sort the workloads of a ClusterQueue; the first is next."""
    unique((one.name for one in given.workloads), "input.workloads")
    places = [(place(one.queued(), given.requeuing_timestamp), one) for one in given.workloads]
    places.sort(key=lambda each: each[0])
    because = [
        Because(
            of=f"order/{one.name}",
            bound="created" if at.queue_time_s == one.created_seconds else "evicted",
            terms={"priority": -at.priority_negated, "queue_time_s": at.queue_time_s},
        )
        for at, one in places
    ]
    return Calculated(output={"order": [one.name for _, one in places]}, because=because)
