"""What to do next for one Reservation: its placeholder, its status, and the pod that it was opened for.

Slacktide's own. A placeholder is a pod of no use that holds the room until it is opened for an owner.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from slacktide.streams.decisions.gang.membership import SCHEDULER
from slacktide.streams.decisions.reservation.match import AVAILABLE, expired
from slacktide.streams.decisions.reservation.objects import LABEL, PRIORITY_CLASS, TTL_S, Amounts, Reservation

Json = dict[str, Any]
PENDING, SUCCEEDED, FAILED = "Pending", "Succeeded", "Failed"
ENDED = (SUCCEEDED, FAILED)
_KEPT_LABELS = ("koordinator.sh/qosClass", "koordinator.sh/priority-class", "koordinator.sh/priority")
PREFIX = "reservation-"
"""Of placeholders' names."""
_KEPT_ANNOTATIONS = ("scheduling.koordinator.sh/resource-spec", "slacktide.io/reservation-count")
_COPIED = ("nodeSelector", "affinity", "tolerations", "topologySpreadConstraints", "overhead", "runtimeClassName")


@dataclass(frozen=True, slots=True, kw_only=True)
class Placeholder:
    """The pod that holds the room."""

    uid: str
    namespace: str
    name: str
    node: str = ""
    ended: bool = False
    leaving: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """The pod for which a reservation was opened, as the API server has it."""

    pod_uid: str
    namespace: str
    name: str
    there: bool
    """Whether the pod exists, and has not ended."""
    node: str
    """"": it is not bound."""
    on: str
    """The reservation's node."""
    marked: bool
    """Whether the pod names the reservation already."""


Kind = Literal["create", "delete", "mark", "status", "forget"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Act:
    """A write: create or delete the placeholder, mark the pod, write the status, or delete the Reservation."""

    kind: Kind
    body: Json


def steps(
    reservation: Reservation, placeholder: Placeholder | None, opened: Opened | None, image: str, now_s: float
) -> list[Act]:
    """Return the next writes, in order; the next call sees what they did."""
    if not reservation.ours:
        return []
    end = _end_of(reservation, opened, now_s)
    if end is not None:
        return [*end, *_without(placeholder)]
    if opened is None:
        return _held(reservation, placeholder, image)
    if not opened.there:
        return []  # the scheduler ends this
    mark = [] if opened.marked else [Act(kind="mark", body={"name": reservation.name, "uid": reservation.uid})]
    return [*mark, *_without(placeholder)]


def _end_of(reservation: Reservation, opened: Opened | None, now_s: float) -> list[Act] | None:
    """Return what follows when no placeholder is needed any more; None: one is."""
    if reservation.phase in ENDED:
        over = reservation.ended_s is not None and now_s > reservation.ended_s + TTL_S
        return [Act(kind="forget", body={})] if over else []
    if reservation.refused:
        return [_status(PENDING, _condition("Scheduled", "False", "Unsupported", reservation.refused))]
    if opened is not None and opened.there and opened.node == opened.on:
        return [_succeeded(reservation, opened)]
    if expired(reservation, now_s):
        return [_status(FAILED, _condition("Ready", "False", "Expired", "its time is over"))]
    return None


def _held(reservation: Reservation, placeholder: Placeholder | None, image: str) -> list[Act]:
    """Return how the placeholder is kept, and the status for it."""
    if placeholder is None:
        return [Act(kind="create", body=manifest(reservation, image)), WAITS]
    if placeholder.ended:
        return [*_without(placeholder), WAITS]
    if placeholder.node and not placeholder.leaving:
        return [] if reservation.phase == AVAILABLE else [_available(reservation, placeholder.node)]
    return [WAITS] if reservation.phase == AVAILABLE else []


def _without(placeholder: Placeholder | None) -> list[Act]:
    if placeholder is None or placeholder.leaving:
        return []
    return [Act(kind="delete", body={"preconditions": {"uid": placeholder.uid}, "gracePeriodSeconds": 1})]


def _condition(kind: str, status: str, reason: str, message: str = "") -> Json:
    return {"type": kind, "status": status, "reason": reason, "message": message}


def _status(phase: str, *conditions: Json, **fields: Any) -> Act:
    return Act(kind="status", body={"phase": phase, "conditions": list(conditions), **fields})


WAITS = _status(PENDING, _condition("Scheduled", "False", "Pending", "no node has room for it yet"), nodeName="")


def _available(reservation: Reservation, node: str) -> Act:
    ready = (_condition(kind, "True", reason) for kind, reason in (("Scheduled", "Scheduled"), ("Ready", "Available")))
    return _status(AVAILABLE, *ready, nodeName=node, allocatable=written(reservation.requests))


def _succeeded(reservation: Reservation, opened: Opened) -> Act:
    owner = {"namespace": opened.namespace, "name": opened.name, "uid": opened.pod_uid}
    conditions = _condition("Scheduled", "True", "Scheduled"), _condition("Ready", "False", "Succeeded")
    return _status(SUCCEEDED, *conditions, currentOwners=[owner], allocated=written(reservation.requests))


def written(amounts: Amounts) -> dict[str, str]:
    """Return amounts in Kubernetes' notation."""
    return {name: f"{amount}m" if name == "cpu" else str(amount) for name, amount in amounts.items()}


def name_of(uid: str) -> str:
    """Return the name of the placeholder of a Reservation with this uid."""
    return f"{PREFIX}{uid}"


def namespace_of(reservation: Reservation) -> str:
    """Return the placeholder's namespace."""
    return str((reservation.template.get("metadata") or {}).get("namespace") or "default")


def manifest(reservation: Reservation, image: str) -> Json:
    """Return the placeholder. It has no label of the template, which Services or owners would select."""
    metadata, spec = (reservation.template.get(key) or {} for key in ("metadata", "spec"))
    kept = {"labels": _KEPT_LABELS, "annotations": _KEPT_ANNOTATIONS}
    labels, annotations = (_some(metadata.get(key) or {}, names) for key, names in kept.items())
    container = {
        "name": "pause",
        "image": image,
        "resources": {"requests": written(reservation.requests), "limits": written(reservation.limits)},
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name_of(reservation.uid),
            "namespace": namespace_of(reservation),
            "labels": {**labels, LABEL: reservation.uid},
            "annotations": {**annotations, LABEL: reservation.name},
            "ownerReferences": [
                {
                    "apiVersion": "scheduling.koordinator.sh/v1alpha1",
                    "kind": "Reservation",
                    "name": reservation.name,
                    "uid": reservation.uid,
                    "controller": True,
                }
            ],
        },
        "spec": {
            **{key: spec[key] for key in _COPIED if key in spec},
            **_pinned(spec),
            "schedulerName": SCHEDULER,
            "priorityClassName": spec.get("priorityClassName") or PRIORITY_CLASS,
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "terminationGracePeriodSeconds": 1,
            "securityContext": {
                "runAsNonRoot": True,
                "runAsUser": 65_535,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "containers": [container],
        },
    }


def _some(given: Mapping[str, Any], names: tuple[str, ...]) -> dict[str, str]:
    return {name: str(given[name]) for name in names if name in given}


def _pinned(spec: Json) -> Json:
    """The node that a template names, as a rule of affinity: kube-scheduler is to place the pod."""
    if not spec.get("nodeName"):
        return {}
    only = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [spec["nodeName"]]}]}
    return {
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [only]}}}
    }
