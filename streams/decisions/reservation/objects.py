"""Reads Reservations, and what they read of a pending pod.

Reading: koordinator a7a1b76b, apis/scheduling/v1alpha1/reservation_types.go; apis/extension/reservation.go.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from slacktide.schemas.errors import CaseError, QuantityError, TextError
from slacktide.schemas.policy.keys import seconds_of
from slacktide.schemas.policy.selector import Selector
from slacktide.schemas.text import integer_of, json_of, time_ms_of
from slacktide.schemas.units import cpu_milli, whole
from slacktide.streams.decisions.admission.label_selector import Expression, InvalidSelector, selector_of
from slacktide.streams.decisions.gang.membership import SCHEDULER
from slacktide.streams.decisions.queue.kinds.manifest import Json, Part, dotted

Amounts = Mapping[str, int]
"""By resource: CPU in millicores, others as they are."""
LABEL, PRIORITY_CLASS = "slacktide.io/reservation", "slacktide-reservation"
ORDER = "scheduling.koordinator.sh/reservation-order"
AFFINITY = "scheduling.koordinator.sh/reservation-affinity"
EXACT = "scheduling.koordinator.sh/exact-match-reservation"
ALLOCATED = "scheduling.koordinator.sh/reservation-allocated"
TTL_S = 24 * 3_600
"""The default in Koordinator's definition of the kind."""
_DEVICES = "scheduling.koordinator.sh/device-"
_ONCE = "one Reservation per pod: what is left of a larger one cannot be held"
_NOT_READ = "accepted: absent"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ref:
    """An object that a pod is, or is controlled by. Absent fields match all."""

    controller: bool | None = None
    uid: str = ""
    name: str = ""
    namespace: str = ""
    kind: str = ""
    api_version: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """Who may use a reservation: all that is given must match."""

    object: Ref | None = None
    controller: Ref | None = None
    selector: Selector | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Claimant:
    """A pending pod, as reservations see it."""

    uid: str
    namespace: str
    name: str
    labels: Mapping[str, str]
    owners: tuple[Ref, ...]
    requests: Amounts
    affinity: str | None = None
    exact: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Affinity:
    """What a pod demands of its reservation."""

    name: str = ""
    selectors: tuple[Selector, ...] = ()
    """One of them must match the reservation's labels; empty: any does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reservation:
    """A Reservation, with its status."""

    name: str
    uid: str
    ours: bool
    """Whether its template names Slacktide's scheduler."""
    refused: str
    """The first field that Slacktide does not support, and what is accepted; "": all are."""
    labels: Mapping[str, str]
    created_s: float
    owners: tuple[Owner, ...]
    requests: Amounts
    limits: Amounts
    """Of resources that each container limits."""
    template: Json = field(repr=False)
    restricted: bool = False
    order: int = 0
    ttl_s: int | None = None
    """None: absent. 0: it never expires."""
    expires_s: float | None = None
    phase: str = ""
    node: str = ""
    ended_s: float | None = None
    """When it ended, by its conditions."""


def reservation_of(item: Mapping[str, Any]) -> Reservation:
    """Read a Reservation. Raises CaseError if a field has the wrong type."""
    part = Part(dict(item))
    metadata, spec, status = part["metadata"], part["spec"], part["status"]
    template = spec["template"]
    labels = metadata["labels"].texts()
    refused = _refused(spec, template)
    owners: tuple[Owner, ...] = ()
    requests: Amounts = {}
    limits: Amounts = {}
    if not refused:
        try:
            owners = tuple(_owner(one) for one in spec["owners"].parts())
            requests, limits = requests_of(template["spec"]), limits_of(template["spec"])
        except (CaseError, QuantityError, TextError) as exc:
            refused = str(exc)
    times = [_time_s(one, "lastTransitionTime") for one in status["conditions"].parts()]
    return Reservation(
        name=metadata["name"].text(),
        uid=metadata["uid"].text(),
        ours=template["spec.schedulerName"].text() == SCHEDULER,
        refused=refused,
        labels=labels,
        created_s=_time_s(metadata, "creationTimestamp") or 0.0,
        owners=owners,
        requests=requests,
        limits=limits,
        template=dict(template.map()),
        restricted=spec["allocatePolicy"].text() == "Restricted",
        order=_order(labels.get(ORDER)),
        ttl_s=_ttl_s(spec["ttl"].text()),
        expires_s=_time_s(spec, "expires"),
        phase=status["phase"].text(),
        node=status["nodeName"].text(),
        ended_s=max((one for one in times if one is not None), default=None),
    )


def _refused(spec: Part, template: Part) -> str:
    """Return the first field that is not supported."""
    if spec["allocateOnce"].value is False:
        return f"{dotted(spec['allocateOnce'].keys)}: false; accepted: true ({_ONCE})"
    for name in ("preAllocation", "preAllocationPolicy", "unschedulable", "taints"):
        if spec[name].value:
            return f"{dotted(spec[name].keys)}: is not supported; {_NOT_READ}"
    pod = template["spec"]
    for one in pod["volumes"].parts():
        if "emptyDir" not in one.map():
            return f"{dotted(one.keys)}: accepted: emptyDir"
    if pod["resourceClaims"].parts():
        return f"{dotted(pod['resourceClaims'].keys)}: is not supported; {_NOT_READ}"
    for one in pod["containers"].parts():
        if any(port["hostPort"].value for port in one["ports"].parts()):
            return f"{dotted(one['ports'].keys)}: hostPort is not supported; {_NOT_READ}"
    device = next((key for key in template["metadata.annotations"].texts() if key.startswith(_DEVICES)), "")
    return f"{dotted(template.keys)}: annotation {device} is not supported; {_NOT_READ}" if device else ""


def _owner(part: Part) -> Owner:
    selector = part["labelSelector"]
    return Owner(
        object=_ref(part["object"]) if part["object"].there else None,
        controller=_ref(part["controller"]) if part["controller"].there else None,
        selector=label_selector(selector) if selector.there else None,
    )


def _ref(part: Part) -> Ref:
    return Ref(
        controller=part["controller"].flag() if part["controller"].there else None,
        **{key: part[name].text() for key, name in _REF.items()},
    )


_REF = {"uid": "uid", "name": "name", "namespace": "namespace", "kind": "kind", "api_version": "apiVersion"}


def label_selector(part: Part) -> Selector:
    """Read a label selector of a manifest. Raises CaseError if Kubernetes would reject it."""
    expressions = [
        Expression(
            key=one["key"].text(),
            operator=one["operator"].text(),
            values=tuple(value.text() for value in one["values"].parts()),
        )
        for one in part["matchExpressions"].parts()
    ]
    found = selector_of(part["matchLabels"].texts(), expressions)
    if isinstance(found, InvalidSelector):
        raise CaseError(dotted(part.keys), found.why)
    return found


def requests_of(spec: Part) -> dict[str, int]:
    """Return what a pod requests: the containers' sum, or an init container's amount if that is larger."""
    total: Counter[str] = Counter()
    for one in spec["containers"].parts():
        total.update(_amounts(one, "limits") | _amounts(one, "requests"))
    for one in spec["initContainers"].parts():
        total |= Counter(_amounts(one, "limits") | _amounts(one, "requests"))  # the larger one
    return dict(total)


def limits_of(spec: Part) -> dict[str, int]:
    """Return the limits of a pod, of resources that each of its containers limits."""
    each = [_amounts(one, "limits") for one in spec["containers"].parts()]
    names = set.intersection(*map(set, each)) if each else set()
    return {name: sum(one[name] for one in each) for name in sorted(names)}


def _amounts(container: Part, kind: str) -> dict[str, int]:
    given = container[f"resources.{kind}"].map()
    return {name: cpu_milli(text) if name == "cpu" else whole(text) for name, text in given.items()}


def affinity_of(text: str) -> Affinity:
    """Read the annotation of a pod. Raises CaseError or TextError."""
    part = Part(json_of(text, dict[str, Any], where=f"annotation {AFFINITY}"), (f"annotation {AFFINITY}",))
    terms = part["requiredDuringSchedulingIgnoredDuringExecution.reservationSelectorTerms"].parts()
    selectors = [label_selector(one) for one in terms]
    if wanted := part["reservationSelector"].texts():
        selectors = [Selector(match_labels=wanted | one.match_labels, match_expressions=one.match_expressions)
                     for one in selectors or [Selector()]]  # fmt: skip
    return Affinity(name=part["name"].text(), selectors=tuple(selectors))


def exact_names(text: str) -> list[str]:
    """Read the resources of which pod and reservation must have equal amounts. Raises CaseError or TextError."""
    part = Part(json_of(text, dict[str, Any], where=f"annotation {EXACT}"), (f"annotation {EXACT}",))
    return [one.text() for one in part["resourceNames"].parts()]


def _order(text: str | None) -> int:
    """The order above 0; unreadable: none."""
    try:
        return integer_of(text or "", where=ORDER, least=1)
    except TextError:
        return 0


def _ttl_s(text: str) -> int | None:
    if not text:
        return None
    try:
        return seconds_of(text)
    except ValueError:
        return 0


def _time_s(part: Part, name: str) -> float | None:
    text = part[name].text()
    return time_ms_of(text, where=dotted(part[name].keys)) / 1_000 if text else None
