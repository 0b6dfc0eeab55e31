"""Cases of the rules of admission: requests of a pod, ClusterColocationProfiles, and classes that go together."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Annotated, Any, Literal

import msgspec

from slacktide.deploy.cli.calc.case import (
    Amount,
    Calculated,
    Given,
    GivenResources,
    Whole,
    because,
    into,
    kubernetes_names,
)
from slacktide.schemas import kubernetes_fields
from slacktide.schemas.errors import BadMessageError
from slacktide.schemas.inventory import Resources
from slacktide.schemas.policy.selector import Selector
from slacktide.streams.decisions.admission.admitted_pod import ANNOTATION, AdmittedPod, Amounts, Container, read
from slacktide.streams.decisions.admission.label_selector import Expression, InvalidSelector, selector_of
from slacktide.streams.decisions.admission.qos_priority_admit import Claims, CpuWish, qos_priority_admit
from slacktide.streams.decisions.admission.webhook_colocation_profile import Cluster, PriorityClass, Profile, mutated
from slacktide.streams.decisions.resources.node_load import pod_requests


class GivenNeed(Given, frozen=True, kw_only=True):
    """A container's requests; ``restart_policy_always``: an init container that is a sidecar."""

    requests: GivenResources | None = None
    limits: GivenResources | None = None
    restart_policy_always: bool | None = None

    def container(self) -> kubernetes_fields.Container:
        """Convert to the rule's type."""
        sidecar = bool(self.restart_policy_always)
        requests, limits = _decimals(self.requests), _decimals(self.limits)
        return kubernetes_fields.Container(requests=requests, limits=limits, sidecar=sidecar)


class PodRequestsInput(Given, frozen=True, kw_only=True):
    """A pod's containers."""

    init_containers: list[GivenNeed] | None = None
    containers: list[GivenNeed]
    overhead: GivenResources | None = None

    def needs(self) -> kubernetes_fields.Needs:
        """Convert to the rule's type."""
        return kubernetes_fields.Needs(
            containers=[one.container() for one in self.containers],
            inits=[one.container() for one in self.init_containers or ()],
            overhead=_decimals(self.overhead),
            pod_level=None,
        )


def calc_pod_requests(given: PodRequestsInput) -> Calculated:
    """Compute the requests of a pod with several containers."""
    asked = pod_requests(given.needs())
    return Calculated(output={"cpu_milli": asked.cpu_milli, "memory_bytes": asked.mem_bytes}, because=asked.because)


def _decimals(resources: GivenResources | None) -> kubernetes_fields.Amounts:
    """Convert amounts to decimals. CPU is in millicores."""
    fields = {} if resources is None else msgspec.structs.asdict(resources)
    return {field: Decimal(amount) for field, amount in fields.items() if amount is not None}


class GivenClaims(PodRequestsInput, frozen=True, kw_only=True):
    """A pod's claims; an absent label is null."""

    qos_class: str | None = None
    priority_class: str | None = None
    koordinator_priority: str | None = None
    priority: Whole | None = None
    required_cpu_bind_policy: str | None = None
    preferred_cpu_bind_policy: str | None = None

    def claims(self) -> Claims:
        """Convert to the rule's type."""
        needs = self.needs()
        return Claims(
            qos_label=self.qos_class,
            priority_class_label=self.priority_class,
            priority=self.priority,
            sub_priority=self.koordinator_priority,
            requests=_resources(kubernetes_fields.requests_of(needs)),
            limits=_resources(kubernetes_fields.limits_of(needs)),
            cpu_wish=CpuWish(self.required_cpu_bind_policy or "", self.preferred_cpu_bind_policy or ""),
        )


class QosPriorityAdmitInput(Given, frozen=True, kw_only=True):
    """A pod to create, or to update from ``old_pod``."""

    operation: Literal["CREATE", "UPDATE"]
    pod: GivenClaims
    old_pod: GivenClaims | None = None
    skip_validating_priority: bool | None = None
    strict: bool | None = None


def calc_qos_priority_admit(given: QosPriorityAdmitInput) -> Calculated:
    """Return all reasons to refuse the pod."""
    old = given.old_pod if given.operation == "UPDATE" else None
    found = qos_priority_admit(
        given.pod.claims(),
        None if old is None else old.claims(),
        skip_validating_priority=bool(given.skip_validating_priority),
        strict=bool(given.strict),
    )
    errors = [msgspec.to_builtins(one) | {"text": one.text} for one in found.errors]
    output: dict[str, object] = {"allowed": not errors, "message": found.message, "errors": errors}
    return Calculated(output=output, because=[because("errors", found)])


def _resources(amounts: kubernetes_fields.Amounts) -> Resources:
    return Resources(**{field: int(amount) for field, amount in amounts.items()})


Texts = dict[str, str]
NEVER_PREEMPTS_BELOW = 6000
"""Cases have only a class's value. Classes below this value never preempt."""

_GPU = "example.com/gpu"
_RESOURCES = kubernetes_names("batch", "mid", "free") | {_GPU: _GPU}
_FIELDS = {resource: field for field, resource in _RESOURCES.items()}


class GivenAmounts(GivenResources, frozen=True, kw_only=True, rename={"gpu": _GPU}):
    """A resource object; an absent amount is not declared."""

    gpu: Amount | None = None


class GivenContainer(Given, frozen=True, kw_only=True):
    """A container or init container."""

    name: str = ""
    requests: GivenAmounts | None = None
    limits: GivenAmounts | None = None


class GivenPod(Given, frozen=True, kw_only=True):
    """The pod to admit."""

    namespace: str | None = None
    name: str | None = None
    labels: Texts | None = None
    annotations: Texts | None = None
    scheduler_name: str | None = None
    priority_class_name: str | None = None
    priority: Whole | None = None
    preemption_policy: str | None = None
    init_containers: list[GivenContainer] | None = None
    containers: list[GivenContainer] | None = None
    overhead: GivenAmounts | None = None


class GivenExpression(Given, frozen=True, kw_only=True):
    """A requirement on one label. An unknown operator makes the selector invalid, not the case."""

    key: str | None = None
    operator: str | None = None
    values: list[str] | None = None


class GivenSelector(Given, frozen=True, kw_only=True):
    """A label selector."""

    match_labels: Texts | None = None
    match_expressions: list[GivenExpression] | None = None


class GivenProfile(Given, frozen=True, kw_only=True):
    """A ClusterColocationProfile."""

    name: str = ""
    skip_update_resources: bool | None = None
    namespace_selector: GivenSelector | None = None
    selector: GivenSelector | None = None
    probability: Whole | str | None = None
    qos_class: str | None = None
    priority_class_name: str | None = None
    koordinator_priority: Whole | None = None
    labels: Texts | None = None
    annotations: Texts | None = None
    label_keys_mapping: Texts | None = None
    annotation_keys_mapping: Texts | None = None
    label_suffixes: Texts | None = None
    scheduler_name: str | None = None
    patch: Any = None


class WebhookColocationProfileInput(Given, frozen=True, kw_only=True):
    """A pod, the profiles, and the cluster around it."""

    operation: str | None = None
    namespace_labels: dict[str, Texts | None] | None = None
    priority_classes: dict[str, Whole] | None = None
    random_number_0_to_99: Annotated[int, msgspec.Meta(ge=0, le=99)] | None = None
    profiles: list[GivenProfile] | None = None
    pod: GivenPod
    free_class_enable: bool | None = None


def calc_webhook_colocation_profile(given: WebhookColocationProfileInput) -> Calculated:
    """Apply the profiles; return the admitted pod or the refusal."""
    drawn = given.random_number_0_to_99 or 0
    cluster = Cluster(
        namespace_labels=_namespace_labels(given),
        priority_classes={
            name: PriorityClass(value=value, preemption_policy="Never" if value < NEVER_PREEMPTS_BELOW else "")
            for name, value in (given.priority_classes or {}).items()
        },
        draw=lambda _: drawn,
        free_class_enable=bool(given.free_class_enable),
    )
    profiles = [_profile(profile) for profile in given.profiles or ()]
    mutation = mutated(_pod(given.pod), given.operation or "CREATE", profiles, cluster)
    if mutation.pod is None:
        return Calculated(output={"admission": "error"}, because=mutation.because)
    output = {"admission": "allowed", "pod": _shown(mutation.pod), **_shown_spec(mutation.pod)}
    return Calculated(output=output, because=mutation.because)


def _namespace_labels(given: WebhookColocationProfileInput) -> Texts | None:
    """Return the labels of the pod's namespace; None: it does not exist."""
    namespaces = given.namespace_labels or {}
    name = given.pod.namespace or ""
    return (namespaces[name] or {}) if name in namespaces else None


def _profile(given: GivenProfile) -> Profile:
    selectors = {"namespace_selector": _selector(given.namespace_selector), "selector": _selector(given.selector)}
    return into(Profile, given, **selectors)


def _selector(given: GivenSelector | None) -> Selector | InvalidSelector:
    if given is None:
        return Selector()
    expressions = [
        Expression(key=one.key or "", operator=one.operator or "", values=tuple(one.values or ()))
        for one in given.match_expressions or ()
    ]
    return selector_of(given.match_labels or {}, expressions)


def _pod(given: GivenPod) -> AdmittedPod:
    metadata = {key: text for key, text in (("namespace", given.namespace), ("name", given.name)) if text}
    return into(
        AdmittedPod,
        given,
        init_containers=_containers(given.init_containers),
        containers=_containers(given.containers),
        overhead=_amounts(given.overhead),
        kept={"metadata": metadata},
    )


def _containers(given: list[GivenContainer] | None) -> tuple[Container, ...]:
    return tuple(
        Container(name=one.name, requests=_amounts(one.requests), limits=_amounts(one.limits)) for one in given or ()
    )


def _amounts(given: GivenAmounts | None) -> Amounts:
    amounts = msgspec.to_builtins(given) if given is not None else {}
    return {_RESOURCES[name]: amount for name, amount in amounts.items() if amount is not None}


def _shown(pod: AdmittedPod) -> dict[str, object]:
    """Return the pod in the case's format, without empty fields and without fields that the format lacks."""
    metadata = pod.kept.get("metadata") or {}
    shown = {
        "namespace": metadata.get("namespace"),
        "name": metadata.get("name"),
        "labels": dict(pod.labels),
        "annotations": {key: text for key, text in pod.annotations.items() if key != ANNOTATION},
        "scheduler_name": pod.scheduler_name,
        "priority_class_name": pod.priority_class_name,
        "priority": pod.priority,
        "preemption_policy": pod.preemption_policy,
        "init_containers": [
            {"name": one.name, **_shown_kinds(one.requests, one.limits)} for one in pod.init_containers
        ],
        "containers": [{"name": one.name, **_shown_kinds(one.requests, one.limits)} for one in pod.containers],
        "overhead": _shown_amounts(pod.overhead),
    }
    return {name: value for name, value in shown.items() if value or value == 0}


def _shown_kinds(requests: Mapping[str, int], limits: Mapping[str, int]) -> dict[str, dict[str, int]]:
    amounts = {"requests": _shown_amounts(requests), "limits": _shown_amounts(limits)}
    return {kind: shown for kind, shown in amounts.items() if shown}


def _shown_amounts(amounts: Mapping[str, int]) -> dict[str, int]:
    return {_FIELDS[name]: amount for name, amount in amounts.items() if name in _FIELDS}


def _shown_spec(pod: AdmittedPod) -> dict[str, object]:
    """Return the annotation as text and decoded. Only a pod that is not created can have an invalid one."""
    text = pod.annotations.get(ANNOTATION)
    if text is None:
        return {"extended_resource_spec": None}
    try:
        asked = read(text)
    except BadMessageError:
        return {"extended_resource_spec": None, "extended_resource_spec_annotation_text": text}
    decoded = {name: kinds for name, one in asked.items() if (kinds := _shown_kinds(one.requests, one.limits))}
    return {"extended_resource_spec": decoded, "extended_resource_spec_annotation_text": text}
