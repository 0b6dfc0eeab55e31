"""``slacktide calc cpu_suppress_cpuset``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated

import msgspec

from slacktide.deploy.cli.calc.case import Amount, Calculated, Given, Whole
from slacktide.deploy.cli.calc.suppress.cpu_suppress_processors import distinct
from slacktide.schemas.errors import CaseError
from slacktide.schemas.inventory import Processor
from slacktide.streams.decisions.because import Because
from slacktide.streams.decisions.cpu_list import CPU_ID_MAX, cpu_list
from slacktide.streams.decisions.suppress.cpu_suppress_cpuset import CPUS_MIN, NodeCpus, PinnedPod, next_be_cpuset


class GivenPinnedPod(Given, frozen=True, kw_only=True):
    """A pod's class and its CPU list."""

    qos_class: str | None = None
    cpuset: str | None = None


class Input(Given, frozen=True, kw_only=True):
    """The CPU limit, the CPU set in force, and the node's CPUs."""

    be_allowed_cpu_milli: Whole
    current_be_cpuset: list[Amount] | None = None
    processors: list[Processor] | None
    pods_with_cpuset: list[GivenPinnedPod] | None = None
    reserved_cpus: str | None = None
    system_qos_cpus: str | None = None
    system_qos_exclusive: bool | None = None
    cpus_min: Annotated[int, msgspec.Meta(ge=1, le=CPU_ID_MAX)] | None = None
    """The minimum number of CPUs; the reference always uses 2."""


def calculate(given: Input) -> Calculated:
    """Compute the next CPU set of the best-effort cgroup."""
    node = NodeCpus(
        processors=distinct(given.processors or ()),
        reserved=_cpus(given.reserved_cpus, "input.reserved_cpus"),
        system=_cpus(given.system_qos_cpus, "input.system_qos_cpus"),
        system_exclusive=given.system_qos_exclusive is not False,
    )
    step = next_be_cpuset(
        allowed_milli=given.be_allowed_cpu_milli,
        current=given.current_be_cpuset or (),
        node=node,
        pods=_pods(given.pods_with_cpuset or ()),
        cpus_min=CPUS_MIN if given.cpus_min is None else given.cpus_min,
    )
    return Calculated(
        output={"be_cpuset": list(step.cpus)}, because=[Because(of="be_cpuset", bound=step.bound, terms=step.terms)]
    )


def _pods(pods: Sequence[GivenPinnedPod]) -> Iterator[PinnedPod]:
    """Yield pods one by one, so that only one long list is in memory."""
    for at, pod in enumerate(pods):
        yield PinnedPod(qos_label=pod.qos_class, cpus=_cpus(pod.cpuset, f"input.pods_with_cpuset[{at}].cpuset"))


def _cpus(text: str | None, field: str) -> list[int]:
    cpus = cpu_list(text or "")
    if cpus is None:
        raise CaseError(field, f"not a CPU list such as 0-3,6 with ids up to {CPU_ID_MAX}")
    return cpus
