"""Defines types shared by cases, and the result of a calculation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import msgspec

from slacktide.schemas.inventory import Pod, Resources
from slacktide.streams.decisions.because import Because

AMOUNT_MAX = 2**53
"""The rules compute with doubles, which are exact up to here."""
Amount = Annotated[int, msgspec.Meta(ge=0, le=AMOUNT_MAX)]
Whole = Annotated[int, msgspec.Meta(ge=-AMOUNT_MAX, le=AMOUNT_MAX)]
"""An integer that may be negative: a priority, a cost, a quota of -1."""
Percent = Annotated[int, msgspec.Meta(ge=-1_000_000, le=1_000_000)]
"""Rules handle percents below 0 or above 100; only absurd values are rejected."""
Cores = Annotated[float, msgspec.Meta(ge=0, le=1e9)]
Seconds = Annotated[int, msgspec.Meta(ge=-AMOUNT_MAX, le=AMOUNT_MAX)]


class Given(msgspec.Struct, frozen=True, kw_only=True):
    """The base of every input. Unknown fields are ignored."""


class GivenResources(
    Resources,
    frozen=True,
    kw_only=True,
    rename={
        "mem_bytes": "memory_bytes",
        "batch_mem_bytes": "batch_memory_bytes",
        "mid_mem_bytes": "mid_memory_bytes",
        "free_mem_bytes": "free_memory_bytes",
    },
):
    """A resource object. An absent amount is not declared and counts as 0."""

    cpu_milli: Amount | None = None
    mem_bytes: Amount | None = None
    batch_cpu_milli: Amount | None = None
    batch_mem_bytes: Amount | None = None
    mid_cpu_milli: Amount | None = None
    mid_mem_bytes: Amount | None = None
    free_cpu_milli: Amount | None = None
    free_mem_bytes: Amount | None = None


NO_AMOUNTS = GivenResources()


class GivenPod(
    Pod,
    frozen=True,
    kw_only=True,
    rename={"qos_label": "qos_class", "priority_class_label": "priority_class", "kube_qos": "kube_qos_class"},
):
    """A pod object. Subclasses add a rule's other fields. Only fields declared here are renamed."""

    uid: str = ""
    namespace: str = "default"
    name: str = ""
    qos_label: str | None = None
    priority_class_label: str | None = None
    priority: Whole | None = None
    sub_priority: Whole | None = None
    kube_qos: str = "BestEffort"
    requests: GivenResources | None = None  # type: ignore[assignment] # once read, never null
    limits: GivenResources | None = None  # type: ignore[assignment]

    def __post_init__(self) -> None:
        """Replace null by no amounts."""
        for field in ("requests", "limits"):
            if getattr(self, field) is None:
                msgspec.structs.force_setattr(self, field, NO_AMOUNTS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Calculated:
    """A case's result: the output in the format of its vector, and the arithmetic behind it."""

    output: dict[str, object]
    because: Sequence[Because]
