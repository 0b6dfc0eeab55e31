"""``slacktide calc load_aware_assign_cache``."""

from __future__ import annotations

from typing import Literal

from slacktide.deploy.cli.calc.case import Calculated, Given, Seconds
from slacktide.deploy.cli.calc.load.load_aware_case import (
    GivenArgs,
    GivenLoadAwarePod,
    GivenReport,
    below,
    existing_out,
)
from slacktide.schemas.errors import CaseError
from slacktide.streams.decisions.because import Because
from slacktide.streams.decisions.load.load_aware_existing import AssignCache


class Event(Given, frozen=True, kw_only=True):
    """An event on the node."""

    at_seconds: Seconds
    type: Literal["assign", "unassign", "pod_update", "node_metric", "delete_node_metric"]
    pod: GivenLoadAwarePod | None = None
    node_metric: GivenReport | None = None


class Input(Given, frozen=True, kw_only=True):
    """The settings, and events in the order of time."""

    args: GivenArgs | None = None
    events: list[Event]


def calculate(given: Input) -> Calculated:
    """Compute the load of a node as pods are assigned between two reports."""
    cache = AssignCache(args=(given.args or GivenArgs()).args)
    after: list[dict[str, object]] = []
    because: list[Because] = []
    for index, event in enumerate(given.events):
        _happen(cache, event, f"input.events[{index}]")
        load = cache.load()
        after.append(existing_out(load))
        because += below(f"after_each_event/{index}", load.because if load else ())
    return Calculated(output={"after_each_event": after}, because=because)


def _happen(cache: AssignCache, event: Event, path: str) -> None:
    if event.type == "delete_node_metric":
        cache.measured(None)
    elif event.type == "node_metric":
        if event.node_metric is None:
            raise CaseError(f"{path}.node_metric", "missing: an event of type node_metric requires it")
        cache.measured(event.node_metric.report)
    elif event.pod is None:
        raise CaseError(f"{path}.pod", f"missing: an event of type {event.type} requires it")
    elif event.type == "assign":
        cache.assign(event.pod.asked, at_s=event.at_seconds)
    elif event.type == "unassign":
        cache.unassign(event.pod.asked)
    else:
        cache.update(event.pod.asked, at_s=event.at_seconds)
