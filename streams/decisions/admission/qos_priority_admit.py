"""Whether a pod is admitted by its QoS class, priority class and resources.

Reading: koordinator a7a1b76b, pkg/webhook/pod/validating/cluster_colocation_profile.go. ``strict`` is Slacktide's own:
the table that Koordinator PR #2270 proposes, CPU limits that equal requests, as kubelet's exclusive CPUs need them, and
no wish for CPUs that can never be bound.
"""

from collections.abc import Iterator

import msgspec

from slacktide.schemas.inventory import Resources
from slacktide.schemas.message import Terms
from slacktide.schemas.qos import BANDS, LABEL_QOS, LABEL_SUB_PRIORITY, band_of, raw_qos
from slacktide.streams.decisions.cores.schedule import OWNERS, RESOURCE_SPEC, Spec

_QOS_FIELD = f"labels.{LABEL_QOS}"
_WISH_FIELD = f"annotations.{RESOURCE_SPEC}"
_SUB_PRIORITY_FIELD = f"labels.{LABEL_SUB_PRIORITY}"
_REQUESTS_FIELD, _LIMITS_FIELD = (f"pod.spec.containers[*].resources.{kind}" for kind in ("requests", "limits"))
_ANY = frozenset({*BANDS, ""})
_LOW = frozenset({"koord-mid", "koord-batch", "koord-free"})
_PROD = frozenset({"koord-prod"})
ACCEPTED = {"LSE": _ANY, "LSR": _PROD, "LS": _ANY, "BE": _LOW, "SYSTEM": _ANY, "": _ANY}
"""Priority classes that each QoS class accepts, as in the reference; "": none."""
_STRICT = ACCEPTED | {"LSE": _PROD, "LS": _PROD | {"koord-mid", ""}, "SYSTEM": frozenset({""})}


class Claims(msgspec.Struct, frozen=True, kw_only=True):
    """What a pod claims to be; None: the label or field is absent."""

    qos_label: str | None = None
    priority_class_label: str | None = None
    priority: int | None = None
    sub_priority: str | None = None
    """Label koordinator.sh/priority as written."""
    requests: Resources = Resources()
    limits: Resources = Resources()
    cpu_wish: Spec = Spec()

    @property
    def qos(self) -> str:
        """The QoS class that the label names; "": none."""
        return raw_qos(self.qos_label)

    @property
    def priority_class(self) -> str:
        """The class of the label, which hides the priority even if it is unknown; else the priority's band."""
        label = self.priority_class_label
        return band_of(self.priority) if label is None else label if label in BANDS else ""


class FieldError(msgspec.Struct, frozen=True, kw_only=True):
    """One reason to refuse a pod, in the words of Kubernetes' field errors."""

    type: str
    field: str
    value: str = ""
    detail: str

    @property
    def text(self) -> str:
        """The message for who creates the pod."""
        return f"{self.field}: {_KINDS[self.type].format(self.value)}: {self.detail}"


_KINDS = {
    "FieldValueInvalid": 'Invalid value: "{}"',
    "FieldValueRequired": "Required value",
    "FieldValueForbidden": "Forbidden",
}


class QosAdmission(msgspec.Struct, frozen=True, kw_only=True):
    """Why a pod is refused; without errors it is admitted."""

    errors: tuple[FieldError, ...]
    bound: str
    terms: Terms

    @property
    def message(self) -> str:
        """All errors in one line; "": admitted."""
        texts = [one.text for one in self.errors]
        return f"[{', '.join(texts)}]" if len(texts) > 1 else "".join(texts)


def qos_priority_admit(
    pod: Claims, old: Claims | None, *, skip_validating_priority: bool = False, strict: bool = False
) -> QosAdmission:
    """Return all contradictions of a pod. ``old``: the pod before an update; None: it is new."""
    errors = []
    if old is not None:
        fixed = [(_QOS_FIELD, pod.qos, old.qos), ("spec.priority", pod.priority_class, old.priority_class)]
        if not skip_validating_priority:
            fixed.append((_SUB_PRIORITY_FIELD, pod.sub_priority or "", old.sub_priority or ""))
        errors += [_invalid(field, value, "field is immutable") for field, value, before in fixed if value != before]
    errors += _contradictions(pod, strict=strict)
    requests = pod.requests
    terms: Terms = {
        "cpu_milli": requests.cpu_milli or 0,
        "batch_cpu_milli": requests.batch_cpu_milli or 0,
        "batch_memory_bytes": requests.batch_mem_bytes or 0,
        "errors": len(errors),
    }
    return QosAdmission(errors=tuple(errors), bound=errors[0].field if errors else "admitted", terms=terms)


def _contradictions(pod: Claims, *, strict: bool) -> Iterator[FieldError]:
    qos, requests = pod.qos, pod.requests
    if (requests.batch_cpu_milli or requests.batch_mem_bytes) and qos != "BE":
        detail = "must specify koordinator QoS BE with koordinator colocation resources"
        yield FieldError(type="FieldValueRequired", field=_QOS_FIELD, detail=detail)
    if pod.priority_class not in (_STRICT if strict else ACCEPTED)[qos]:
        detail = f"{LABEL_QOS}={qos} and priorityClass={pod.priority_class} cannot be used in combination"
        yield FieldError(type="FieldValueForbidden", field="Pod", detail=detail)
    if qos in OWNERS:
        yield from _bound_cpus(pod, strict=strict)


def _bound_cpus(pod: Claims, *, strict: bool) -> Iterator[FieldError]:
    """Check the CPUs of LSE and LSR pods. The reference writes LSR for both."""
    request_milli, limit_milli = pod.requests.cpu_milli or 0, pod.limits.cpu_milli or 0
    if not request_milli:
        detail = "LSR Pod must declare the requested CPUs"
        yield FieldError(type="FieldValueRequired", field=_REQUESTS_FIELD, detail=detail)
    elif request_milli % 1000:
        yield _invalid(_REQUESTS_FIELD, f"{request_milli}m", "the requested CPUs of LSR Pod must be integer")
    if not strict:
        return
    if limit_milli != request_milli:
        yield _invalid(_LIMITS_FIELD, f"{limit_milli}m", f"the CPU limit must equal the request of {request_milli}m")
    # No node can bind these: the scheduler binds nothing by ConstrainedBurst, and an odd CPU is half a core.
    required, policy = pod.cpu_wish.required, pod.cpu_wish.required or pod.cpu_wish.preferred
    if policy == "ConstrainedBurst":
        yield _invalid(_WISH_FIELD, policy, "no CPUs are ever bound by this policy; accepted: FullPCPUs, SpreadByPCPUs")
    if required == "FullPCPUs" and request_milli % 2000:
        detail = "requiredCPUBindPolicy FullPCPUs binds whole cores of two CPUs each"
        yield _invalid(_REQUESTS_FIELD, f"{pod.requests.cpu_milli}m", detail)


def _invalid(field: str, value: str, detail: str) -> FieldError:
    return FieldError(type="FieldValueInvalid", field=field, value=value, detail=detail)
