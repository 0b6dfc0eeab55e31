"""Defines types shared by cases, and the result of a calculation."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, Protocol, TypeVar

import msgspec

from slacktide.schemas.errors import CaseError
from slacktide.schemas.inventory import Pod, Resources
from slacktide.schemas.message import Terms
from slacktide.schemas.metric import Use
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


T = TypeVar("T")
_IN_FULL = {"_s": "_seconds", "_pct": "_percent", "_time_min": "_time_minutes"}


def name_in_cases(field: str) -> str:
    """Return the name of a rule's field in cases, which write units and memory in full."""
    for unit, in_full in _IN_FULL.items():
        if field.endswith(unit):
            field = field.removesuffix(unit) + in_full
    return field.replace("mem_", "memory_")


class Given(msgspec.Struct, frozen=True, kw_only=True, rename=name_in_cases):
    """The base of every input. Unknown fields are ignored."""


def into(kind: Callable[..., T], given: msgspec.Struct, **more: Any) -> T:
    """Create a rule's type from the fields that it shares with the input; null means the rule's default."""
    values = {name: getattr(given, name) for name in given.__struct_fields__ if name in _fields_of(kind)}
    return kind(**{name: value for name, value in values.items() if value is not None} | more)


@cache
def _fields_of(kind: Callable[..., object]) -> frozenset[str]:
    return frozenset(inspect.signature(kind).parameters)


def unique(values: Iterable[object], field: str, why: str = "{}: accepted: a unique name") -> None:
    """Check that no value occurs twice.

    Raises:
        CaseError: one does. Its index completes ``field``, the value completes ``why``.
    """
    seen = set[object]()
    for at, value in enumerate(values):
        if value in seen:
            raise CaseError(field.format(at), why.format(value))
        seen.add(value)


def unique_ids(uids: Collection[str], field: str) -> None:
    """Check that no uid occurs twice. Raises CaseError if one does."""
    if len(set(uids)) < len(uids):
        raise CaseError(field, "uids are not unique; accepted: each uid once")


def kubernetes_names(*tiers: str) -> dict[str, str]:
    """Return the Kubernetes name of each key of a resource in cases."""
    names = {"cpu_milli": "cpu", "memory_bytes": "memory"}
    for tier in tiers:
        names |= {f"{tier}_cpu_milli": f"kubernetes.io/{tier}-cpu"}
        names |= {f"{tier}_memory_bytes": f"kubernetes.io/{tier}-memory"}
    return names


class GivenUse(Given, frozen=True, kw_only=True):
    """A use; an absent amount was not measured."""

    cpu_milli: Amount | None = None
    mem_bytes: Amount | None = None

    def use(self) -> Use:
        """Convert to the rule's type; absent amounts are 0."""
        return Use(cpu_milli=self.cpu_milli or 0, mem_bytes=self.mem_bytes or 0)


class GivenResources(Resources, frozen=True, kw_only=True, rename=name_in_cases):
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


class Step(Protocol):
    """A rule's result with its arithmetic."""

    @property
    def bound(self) -> str:
        """The step that determined the result."""

    @property
    def terms(self) -> Terms:
        """The numbers of the arithmetic, in order."""


def because(of: str, step: Step) -> Because:
    """Name the arithmetic of a result."""
    return Because(of=of, bound=step.bound, terms=step.terms)


def figure(of: str, value: object, step: Step) -> Calculated:
    """Return the result of a rule that computes one figure."""
    return Calculated(output={of: value}, because=[because(of, step)])
