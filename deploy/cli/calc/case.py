"""Defines types shared by cases, and the result of a calculation."""

import inspect
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, Protocol, TypeVar, get_type_hints

import msgspec

from slacktide.deploy.cli.calc.forms import Amount, By, Form, Given, Nullable, Whole
from slacktide.schemas.errors import CaseError
from slacktide.schemas.inventory import Pod, Processor, Resources
from slacktide.schemas.message import Terms
from slacktide.streams.decisions.because import Because

T = TypeVar("T")


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


GivenResources = Annotated[Resources, Form()]
"""A resource object. An absent amount is not declared and counts as 0."""
NO_AMOUNTS = Resources()


_POD: dict[str, Any] = {
    "uid": (str, ""),
    "namespace": (str, "default"),
    "name": (str, ""),
    "qos_label": str | None,
    "priority_class_label": str | None,
    "priority": Whole | None,
    "sub_priority": Whole | None,
    "kube_qos": (str, "BestEffort"),
    "requests": Nullable[GivenResources],
    "limits": Nullable[GivenResources],
}
_AS_IN_RECORDS = {name: hint for name, hint in get_type_hints(Pod, include_extras=True).items() if name not in _POD}


def pod_form(*, names: Mapping[str, str] | None = None, **changed: Any) -> Form:
    """Return the form of a pod object, which may have more fields of a rule."""
    return Form(names={name: name for name in _AS_IN_RECORDS} | dict(names or {}), **_AS_IN_RECORDS | _POD | changed)


GivenPod = Annotated[Pod, pod_form()]


def _distinct(processors: Sequence[Processor] | None, path: str) -> Sequence[Processor]:
    unique((one.cpu for one in processors or ()), path + "[{}].cpu", "CPU {} is given twice")
    return processors or ()


Processors = Annotated[Sequence[Processor], By(_distinct, list[Processor] | None)]
"""A node's CPUs, each once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Calculated:
    """A case's result: the output in the format of its vector, and the arithmetic behind it."""

    output: dict[str, object]
    because: Sequence[Because]


class CpuAndMemory(Protocol):
    """A rule's amounts."""

    @property
    def cpu_milli(self) -> int:
        """CPU in millicores."""

    @property
    def mem_bytes(self) -> int:
        """Memory in bytes."""


def amounts_out(amounts: CpuAndMemory) -> dict[str, int]:
    """Return the amounts in the result's format."""
    return {"cpu_milli": amounts.cpu_milli, "memory_bytes": amounts.mem_bytes}


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
