"""``slacktide calc pod_requests``."""

from __future__ import annotations

from decimal import Decimal

import msgspec

from slacktide.deploy.cli.calc.case import Calculated, Given, GivenResources
from slacktide.schemas.pod_resources import Amounts, Container, Needs
from slacktide.streams.decisions.pod_requests import pod_requests


class GivenContainer(Given, frozen=True, kw_only=True):
    """A container's requests; ``restart_policy_always``: an init container that is a sidecar."""

    requests: GivenResources | None = None
    restart_policy_always: bool | None = None

    def container(self) -> Container:
        """Convert to the rule's type."""
        return Container(requests=_amounts(self.requests), limits={}, sidecar=bool(self.restart_policy_always))


class Input(Given, frozen=True, kw_only=True):
    """A pod's containers."""

    init_containers: list[GivenContainer] | None = None
    containers: list[GivenContainer]
    overhead: GivenResources | None = None


def calculate(given: Input) -> Calculated:
    """Compute the requests of a pod with several containers."""
    needs = Needs(
        containers=[one.container() for one in given.containers],
        inits=[one.container() for one in given.init_containers or ()],
        overhead=_amounts(given.overhead),
        pod_level=None,
    )
    asked = pod_requests(needs)
    return Calculated(output={"cpu_milli": asked.cpu_milli, "memory_bytes": asked.mem_bytes}, because=asked.because)


def _amounts(resources: GivenResources | None) -> Amounts:
    """Convert amounts to decimals. CPU is in millicores."""
    fields = {} if resources is None else msgspec.structs.asdict(resources)
    return {field: Decimal(amount) for field, amount in fields.items() if amount is not None}
