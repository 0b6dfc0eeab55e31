"""What other schedulers, such as YARN, hold of a node's batch resources, from the node's annotation.

Reading: koordinator a7a1b76b, apis/slo/v1alpha1 and apis/extension, GetThirdPartyAllocations.
"""

from collections.abc import Mapping

import msgspec

from slacktide.schemas.errors import BadMessageError, TextError
from slacktide.schemas.inventory import Resources
from slacktide.schemas.kubernetes_fields import Reader, resources
from slacktide.schemas.text import json_of

ANNOTATION = "node.koordinator.sh/thirdPartyAllocations"
_ACCEPTED = '{"allocations": [{"name": "hadoop-yarn", "priority": "koord-batch", "resources": {...}}]}'


class _Allocation(msgspec.Struct, frozen=True):
    name: str = ""
    priority: str = ""
    resources: dict[str, str | int | float] = {}


class _Body(msgspec.Struct, frozen=True):
    allocations: list[_Allocation] = []


class ThirdParty(msgspec.Struct, frozen=True, kw_only=True):
    """Batch resources that others hold, and their names."""

    names: tuple[str, ...] = ()
    cpu_milli: int = 0
    mem_bytes: int = 0


NOBODY = ThirdParty()


def third_party(annotations: Mapping[str, str]) -> ThirdParty:
    """Sum the allocations of class koord-batch.

    Raises:
        BadMessageError: the annotation cannot be read.
    """
    text = annotations.get(ANNOTATION)
    if not text:
        return NOBODY
    try:
        body: _Body = json_of(text, _Body, where="")
    except TextError as exc:
        raise BadMessageError(ANNOTATION, f"{exc}; accepted: {_ACCEPTED}") from None
    held = [(one.name, _amounts(one)) for one in body.allocations if one.priority == "koord-batch"]
    return ThirdParty(
        names=tuple(name for name, _ in held),
        cpu_milli=sum(one.batch_cpu_milli or 0 for _, one in held),
        mem_bytes=sum(one.batch_mem_bytes or 0 for _, one in held),
    )


def _amounts(allocation: _Allocation) -> Resources:
    reader = Reader(ANNOTATION)
    amounts = reader.amounts(allocation.resources, f"allocations.{allocation.name}.resources")
    if reader.findings:
        raise BadMessageError(ANNOTATION, "; ".join(map(str, reader.findings)))
    return resources(amounts)
