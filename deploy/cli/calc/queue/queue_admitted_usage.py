"""``slacktide calc queue_admitted_usage``."""

from __future__ import annotations

from slacktide.deploy.cli.calc.case import Calculated, Given
from slacktide.deploy.cli.calc.queue.queue_case import GivenUsage, QueueAmount, known, unique, written
from slacktide.streams.decisions.because import Because
from slacktide.streams.decisions.queue.admitted_usage import AdmittedPodSet, admitted_usage, pod_set_usage


class GivenPodSet(Given, frozen=True, kw_only=True):
    """A pod set as the workload requests it."""

    name: str
    count: QueueAmount
    reclaimable: QueueAmount = 0


class Input(Given, frozen=True, kw_only=True):
    """Pod sets and their admission."""

    pod_sets: list[GivenPodSet]
    admission: list[GivenUsage]


def calculate(given: Input) -> Calculated:
    """Compute the usage of an admitted workload."""
    unique((one.name for one in given.pod_sets), "input.pod_sets")
    unique((one.name for one in given.admission), "input.admission")
    by_name = {one.name: one for one in given.pod_sets}
    sets = [pod_set_usage(_admitted(one, by_name, f"input.admission[{at}]")) for at, one in enumerate(given.admission)]
    return Calculated(
        output={
            "usage": {written(of): amount for of, amount in admitted_usage(sets).items()},
            "pod_sets": [{"name": one.name, "count": one.pods} for one in sets],
        },
        because=[
            Because(
                of=f"pod_sets/{one.name}/count",
                bound="reclaimed" if one.pods < one.admitted_pods else "admitted",
                terms={"admitted_count": one.admitted_pods, "count": one.pods},
            )
            for one in sets
        ],
    )


def _admitted(one: GivenUsage, pod_sets: dict[str, GivenPodSet], field: str) -> AdmittedPodSet:
    spec = known(pod_sets, one.name, f"{field}.name")
    of = one.flavor_resources(f"{field}.usage")
    return AdmittedPodSet(
        name=one.name,
        spec_count=spec.count,
        reclaimable=spec.reclaimable,
        admitted_count=one.count,
        usage={of[key]: amount for key, amount in one.usage.items()},
    )
