"""``slacktide calc numa_policy_admit``."""

from __future__ import annotations

from typing import Annotated

import msgspec

from slacktide.deploy.cli.calc.case import Amount, Calculated, Given
from slacktide.deploy.cli.calc.numa.numa_case import SETS_ZONES_MAX, GivenAmounts, amounts_of, key_of, terms_of
from slacktide.schemas.errors import CaseError
from slacktide.streams.decisions.because import Because
from slacktide.streams.decisions.numa.filter import lack_of
from slacktide.streams.decisions.numa.pod import Qos
from slacktide.streams.decisions.numa.policy_admit import policy_admit
from slacktide.streams.decisions.numa.topology import Kubelet, Policy, Zone

ZoneId = Annotated[int, msgspec.Meta(ge=0, le=1023)]


class GivenIdZone(Given, frozen=True, kw_only=True):
    """A zone, with distances by the id of the other zone."""

    id: ZoneId
    allocatable: GivenAmounts | None = None
    available: GivenAmounts | None = None
    distances: list[Amount] = []

    def zone(self, field: str) -> Zone:
        """Convert to the rule's type."""
        return Zone(
            id=self.id,
            available=amounts_of(self.available, f"{field}.available"),
            costs=dict(enumerate(self.distances)),
            allocatable=amounts_of(self.allocatable, f"{field}.allocatable"),
        )


class Input(Given, frozen=True, kw_only=True):
    """A request, the zones, and the kubelet's policies."""

    policy: Policy
    prefer_closest_numa_nodes: bool = False
    cpu_manager_static: bool = False
    memory_manager_static: bool = False
    kube_qos_class: Qos
    request: GivenAmounts | None = None
    zones: Annotated[list[GivenIdZone], msgspec.Meta(max_length=SETS_ZONES_MAX)]
    corrected: bool = False


def calculate(given: Input) -> Calculated:
    """Decide whether the kubelet admits a request, and to which zones."""
    zones = [one.zone(f"input.zones[{at}]") for at, one in enumerate(given.zones)]
    if len({zone.id for zone in zones}) < len(zones):
        raise CaseError("input.zones", "zone ids are not unique; accepted: each id once")
    answer = policy_admit(
        amounts_of(given.request, "input.request"),
        zones,
        Kubelet(
            policy=given.policy,
            cpu_static=given.cpu_manager_static,
            memory_static=given.memory_manager_static,
            prefer_closest=given.prefer_closest_numa_nodes,
        ),
        guaranteed=given.kube_qos_class == "Guaranteed",
        corrected=given.corrected,
    )
    asked = [(name, amount) for group in answer.groups for name, amount in group.items()]
    because = [
        Because(
            of=f"request/{key_of(name)}",
            bound="aligned" if answer.preferred else "not_aligned",
            terms=terms_of(lack_of(name, amount, zones, "not_aligned")),
        )
        for name, amount in asked
    ]
    output: dict[str, object] = {"admit": answer.admit, "preferred": answer.preferred, "zones": list(answer.zones)}
    return Calculated(output=output, because=because)
