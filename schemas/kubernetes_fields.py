"""Reads fields of Kubernetes objects as plain data, and computes a pod's requests, limits and QoS class from them.

Reading: kubernetes v1.34, component-helpers/resource/helpers.go (PodRequests, PodLimits) and
pkg/apis/core/v1/helper/qos/qos.go (ComputePodQOS).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import ROUND_CEILING, Decimal
from typing import Any, Literal

from slacktide.schemas.bounds import AMOUNT_MAX, COUNT_MAX, INT32_MAX
from slacktide.schemas.errors import Finding, QuantityError
from slacktide.schemas.inventory import IGNORED_CHARS_MAX, IGNORED_MAX, Resources
from slacktide.schemas.text import shown
from slacktide.schemas.units import quantity

Amounts = Mapping[str, Decimal]
"""Amounts by the field of ``Resources`` that holds them; CPU in cores, batch and mid CPU in millicores."""
_FIELDS = {
    "cpu": "cpu_milli",
    "memory": "mem_bytes",
    "kubernetes.io/batch-cpu": "batch_cpu_milli",
    "kubernetes.io/batch-memory": "batch_mem_bytes",
    "kubernetes.io/mid-cpu": "mid_cpu_milli",
    "kubernetes.io/mid-memory": "mid_mem_bytes",
    "kubernetes.io/free-cpu": "free_cpu_milli",
    "kubernetes.io/free-memory": "free_mem_bytes",
    "koordinator.sh/batch-cpu": "batch_cpu_milli",
    "koordinator.sh/batch-memory": "batch_mem_bytes",
    "koordinator.sh/mid-cpu": "mid_cpu_milli",
    "koordinator.sh/mid-memory": "mid_mem_bytes",
}
_QUANTITY = "a Kubernetes quantity, 0 or more, such as 500m, 2 or 4Gi"


class Reader:
    """Reads values at paths, gathering what is wrong with them."""

    def __init__(self, file: str, *, of_users: bool = False) -> None:
        """``of_users``: no amount may cost more than itself, so that a pod cannot hide by one beyond reason."""
        self.file = file
        self._of_users = of_users
        self.findings: list[Finding] = []
        self.notes: list[str] = []
        self.ignored: list[str] = []
        """Notes without the file."""

    def refuse(self, field: str, value: object, accepted: str) -> None:
        """Gather one thing that is wrong."""
        text = value if isinstance(value, str) else shown(value)
        self.findings.append(Finding(file=self.file, field=field, value=text[:80], accepted=accepted))

    def mapping(self, value: object, path: str) -> Mapping[str, Any]:
        """A map; absent is empty."""
        if value is None:
            return {}
        if not isinstance(value, dict):
            self.refuse(path, value, "a map")
            return {}
        return value

    def sequence(self, value: object, path: str) -> list[Any]:
        """A list; absent is empty."""
        if value is None:
            return []
        if not isinstance(value, list):
            self.refuse(path, value, "a list")
            return []
        return value

    def at(self, item: object, path: str, names: str) -> Mapping[str, Any]:
        """A map some levels down, e.g. ``status.capacity``; absent is empty."""
        for name in names.split("."):
            item, path = self.mapping(item, path).get(name), f"{path}.{name}"
        return self.mapping(item, path)

    def text(self, item: object, path: str) -> str:
        """The text at the path's last two names, such as ``metadata.name``; it has to be there."""
        where, parent, name = path.rsplit(".", 2)
        value = self.at(item, where, parent).get(name)
        if not isinstance(value, str) or not value:
            self.refuse(path, value, "a text")
            return ""
        return value

    def texts(self, value: Mapping[str, Any], path: str) -> dict[str, str]:
        """Labels or annotations."""
        for key, one in value.items():
            if not isinstance(one, str):
                self.refuse(f'{path}["{key}"]', one, "a text (in quotes)")
        return {str(key): one for key, one in value.items() if isinstance(one, str)}

    def whole(self, value: object, path: str) -> int | None:
        """A whole number of 32 bits, or none."""
        if value is None or (type(value) is int and -INT32_MAX - 1 <= value <= INT32_MAX):
            return value
        self.refuse(path, value, "a whole number")
        return None

    def note(self, path: str, text: str) -> None:
        """Report one thing that is not used, although it is accepted."""
        self.ignored.append(f"{path}: {text}")
        self.notes.append(f"{self.file}: {path}: {text}")

    def ignored_of(self, path: str, since: int = 0) -> list[str]:
        """Return notes from a number on, for a record: bounded, and by their paths within the object."""
        return [note.removeprefix(f"{path}.")[:IGNORED_CHARS_MAX] for note in self.ignored[since:]][:IGNORED_MAX]

    def amounts(self, value: Mapping[str, Any], path: str) -> Amounts:
        """Quantities of the resources that are read; the first name of a resource wins."""
        found: dict[str, Decimal] = {}
        for name, field in _FIELDS.items():
            if name not in value or field in found:
                continue
            try:
                amount = quantity(value[name])
            except QuantityError:
                amount = Decimal(-1)
            if amount >= COUNT_MAX and self._of_users:
                amount = Decimal(COUNT_MAX - 1)
                self.note(f"{path}.{name}", f"{shown(value[name])}: counts as {COUNT_MAX - 1}")
            if 0 <= amount < COUNT_MAX:
                found[field] = amount
            else:
                self.refuse(f"{path}.{name}", value[name], _QUANTITY)
        return found

    def report_twice(self, path: str, values: Sequence[str]) -> None:
        """Refuse what has to be there once only."""
        for value in sorted({value for value in values if value and values.count(value) > 1}):
            self.refuse(path, value, "each once")


def resources(amounts: Amounts) -> Resources:
    """Rounded up, as Kubernetes does; no more than any machine has."""

    def rounded(field: str) -> int | None:
        amount = amounts.get(field)
        scale = 1000 if field == "cpu_milli" else 1
        return None if amount is None else min(int((amount * scale).to_integral_value(ROUND_CEILING)), AMOUNT_MAX)

    return Resources(**{field: rounded(field) for field in dict.fromkeys(_FIELDS.values())})


@dataclass(frozen=True, slots=True, kw_only=True)
class Container:
    """What one container, or a pod as a whole, asks for."""

    name: str = ""
    requests: Amounts
    limits: Amounts
    sidecar: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Needs:
    """What a pod's spec asks for."""

    containers: list[Container]
    inits: list[Container]
    overhead: Amounts
    pod_level: Container | None
    """Resources of the pod as a whole: they stand above its containers' for CPU and memory."""


def _plus(one: Amounts, other: Amounts) -> Amounts:
    return {field: one.get(field, Decimal(0)) + other.get(field, Decimal(0)) for field in {**one, **other}}


def larger(one: Amounts, other: Amounts) -> Amounts:
    """Take the larger amount of each resource."""
    return {field: max(one.get(field, Decimal(0)), other.get(field, Decimal(0))) for field in {**one, **other}}


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What a pod's total is made of."""

    containers: Amounts
    sidecars: Amounts
    peak: Amounts
    """The most that an init container needs, the sidecars before it included."""
    pod_level: Amounts
    overhead: Amounts

    @property
    def total(self) -> Amounts:
        """The larger of what runs together in the end and of the peak, with no overhead yet."""
        return {**larger(_plus(self.containers, self.sidecars), self.peak), **self.pod_level}


def parts_of(needs: Needs, kind: Literal["requests", "limits"]) -> Parts:
    """Take a pod's requests or limits apart."""

    def of(container: Container) -> Amounts:
        return container.requests if kind == "requests" else container.limits

    containers: Amounts = {}
    sidecars: Amounts = {}
    peak: Amounts = {}
    for init in needs.inits:
        peak = larger(peak, _plus(sidecars, of(init)))
        if init.sidecar:
            sidecars = _plus(sidecars, of(init))
    for container in needs.containers:
        containers = _plus(containers, of(container))
    return Parts(
        containers=containers,
        sidecars=sidecars,
        peak=peak,
        pod_level={} if needs.pod_level is None else of(needs.pod_level),
        overhead=needs.overhead,
    )


def requests_of(needs: Needs) -> Amounts:
    """What the pod requests, its overhead included."""
    return _plus(parts_of(needs, "requests").total, needs.overhead)


def limits_of(needs: Needs) -> Amounts:
    """Overhead raises a limit that there is, and makes none."""
    limits = parts_of(needs, "limits").total
    return _plus(limits, {field: amount for field, amount in needs.overhead.items() if limits.get(field)})


def kube_qos(needs: Needs) -> str:
    """Guaranteed: every container limits CPU and memory to what it requests. BestEffort: none asks for either."""
    parts = [*needs.containers, *needs.inits] if needs.pod_level is None else [needs.pod_level]
    both = ("cpu_milli", "mem_bytes")
    asked = [{field: part.requests[field] for field in both if part.requests.get(field)} for part in parts]
    limited = [{field: part.limits[field] for field in both if part.limits.get(field)} for part in parts]
    if not any(asked) and not any(limited):
        return "BestEffort"
    return "Guaranteed" if asked == limited and all(len(one) == len(both) for one in limited) else "Burstable"
