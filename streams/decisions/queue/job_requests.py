"""Computes the requests of one pod of a Job, with the defaults that admission to the cluster sets.

Reading: kueue v0.19.2, pkg/workload/resources.go, AdjustResources; pkg/util/limitrange; kubernetes v1.34,
component-helpers/resource/helpers.go, PodRequests. Amounts are by the name of the resource; CPU is in millicores.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import NamedTuple

from slacktide.schemas.pod_resources import Amounts, Container, Needs, requests_of

NOTHING: Amounts = {}


class Defaults(NamedTuple):
    """Defaults of a namespace and a RuntimeClass."""

    limits: Amounts = NOTHING
    """Per container, by a LimitRange."""
    requests: Amounts = NOTHING
    overhead: Amounts = NOTHING
    """Of the RuntimeClass, for pods without overhead."""


class PodRequest(NamedTuple):
    """The request of one pod."""

    requests: Mapping[str, int]
    valid: bool
    """No container requests more than its limit."""


def pod_request(needs: Needs, defaults: Defaults) -> PodRequest:
    """Apply the defaults and sum up."""
    containers = [_filled(one, defaults) for one in needs.containers]
    inits = [_filled(one, defaults) for one in needs.inits]
    pod_level = None if needs.pod_level is None else _filled(needs.pod_level, Defaults())
    whole = Needs(
        containers=containers,
        inits=inits,
        overhead=needs.overhead or defaults.overhead,
        pod_level=None if pod_level is None else Container(requests=_of_pods(pod_level.requests), limits={}),
    )
    parts = [*containers, *inits, *([] if pod_level is None else [pod_level])]
    requests = {resource: max(0, int(amount)) for resource, amount in requests_of(whole).items()}
    return PodRequest(requests, all(map(_within_limits, parts)))


def _filled(one: Container, defaults: Defaults) -> Container:
    """Use the default for a missing request, else the limit."""
    limits = {**defaults.limits, **one.limits}
    requests = {**limits, **defaults.requests, **one.requests}
    return Container(name=one.name, requests=requests, limits=limits, sidecar=one.sidecar)


def _of_pods(requests: Amounts) -> dict[str, Decimal]:
    return {
        resource: amount
        for resource, amount in requests.items()
        if resource in {"cpu", "memory"} or resource.startswith("hugepages-")
    }


def _within_limits(one: Container) -> bool:
    return all(one.requests[resource] <= limit for resource, limit in one.limits.items() if resource in one.requests)
