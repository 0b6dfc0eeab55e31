"""Cases of the rules of admission: requests of a pod, ClusterColocationProfiles, and classes that go together."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Annotated, Any, Literal

import msgspec

from slacktide.deploy.cli.calc.case import Calculated, GivenResources, amounts_out, because, kubernetes_names
from slacktide.deploy.cli.calc.forms import Amount, By, Form, Given, Nullable, Whole
from slacktide.schemas import kubernetes_fields
from slacktide.schemas.errors import BadMessageError
from slacktide.schemas.inventory import Resources
from slacktide.schemas.policy.selector import Selector
from slacktide.streams.decisions.admission.admitted_pod import ANNOTATION, AdmittedPod, Amounts, Container, read
from slacktide.streams.decisions.admission.label_selector import Expression, InvalidSelector, selector_of
from slacktide.streams.decisions.admission.qos_priority_admit import Claims, qos_priority_admit
from slacktide.streams.decisions.admission.webhook_colocation_profile import Cluster, PriorityClass, Profile, mutated
from slacktide.streams.decisions.cores.schedule import Spec
from slacktide.streams.decisions.resources.node_load import pod_requests


def _decimals(resources: Resources, _: str) -> kubernetes_fields.Amounts:
    return {field: Decimal(amount) for field, amount in msgspec.structs.asdict(resources).items() if amount is not None}


Decimals = Annotated[kubernetes_fields.Amounts, By(_decimals, GivenResources)]
"""Amounts as decimals, CPU in millicores; an absent amount is not declared."""
Need = Annotated[
    kubernetes_fields.Container,
    Form("requests limits sidecar", requests=(Nullable[Decimals], {}), limits=(Nullable[Decimals], {})),
]


class _PodRequestsInput(Given, frozen=True, kw_only=True):
    init_containers: Nullable[list[Need]] = []
    containers: list[Need]
    overhead: Nullable[Decimals] = {}

    def needs(self) -> kubernetes_fields.Needs:
        return kubernetes_fields.Needs(
            containers=self.containers, inits=self.init_containers, overhead=self.overhead, pod_level=None
        )


def calc_pod_requests(given: _PodRequestsInput) -> Calculated:
    """Compute the requests of a pod with several containers."""
    asked = pod_requests(given.needs())
    return Calculated(output={**amounts_out(asked)}, because=asked.because)


class _Claims(_PodRequestsInput, frozen=True, kw_only=True):
    qos_class: str | None = None
    priority_class: str | None = None
    koordinator_priority: str | None = None
    priority: Whole | None = None
    required_cpu_bind_policy: Nullable[str] = ""
    preferred_cpu_bind_policy: Nullable[str] = ""

    def claims(self) -> Claims:
        needs = self.needs()
        return Claims(
            qos_label=self.qos_class,
            priority_class_label=self.priority_class,
            priority=self.priority,
            sub_priority=self.koordinator_priority,
            requests=_resources(kubernetes_fields.requests_of(needs)),
            limits=_resources(kubernetes_fields.limits_of(needs)),
            cpu_wish=Spec(required=self.required_cpu_bind_policy, preferred=self.preferred_cpu_bind_policy),
        )


def calc_qos_priority_admit(
    *,
    operation: Literal["CREATE", "UPDATE"],
    pod: _Claims,
    old_pod: _Claims | None = None,
    skip_validating_priority: Nullable[bool] = False,
    strict: Nullable[bool] = False,
) -> Calculated:
    """Check whether a new or updated pod's QoS class, priority class and resources go together."""
    old = old_pod.claims() if old_pod is not None and operation == "UPDATE" else None
    found = qos_priority_admit(pod.claims(), old, skip_validating_priority=skip_validating_priority, strict=strict)
    errors = [msgspec.to_builtins(one) | {"text": one.text} for one in found.errors]
    output: dict[str, object] = {"allowed": not errors, "message": found.message, "errors": errors}
    return Calculated(output=output, because=[because("errors", found)])


def _resources(amounts: kubernetes_fields.Amounts) -> Resources:
    return Resources(**{field: int(amount) for field, amount in amounts.items()})


NEVER_PREEMPTS_BELOW = 6000
"""Cases have only a class's value. Classes below this value never preempt."""

_GPU = "example.com/gpu"
_RESOURCES = kubernetes_names("batch", "mid", "free") | {_GPU: _GPU}
_FIELDS = {resource: field for field, resource in _RESOURCES.items()}
_Declared = msgspec.defstruct(
    "_Declared", [(name.replace(_GPU, "gpu"), Amount | None, None) for name in _RESOURCES], rename={"gpu": _GPU}
)


def _amounts(declared: msgspec.Struct, _: str) -> Amounts:
    amounts = msgspec.to_builtins(declared)
    return {_RESOURCES[name]: amount for name, amount in amounts.items() if amount is not None}


GivenAmounts = Nullable[Annotated[Amounts, By(_amounts, _Declared)]]
GivenContainers = tuple[
    Annotated[Container, Form("name requests limits", name=(str, ""), requests=GivenAmounts, limits=GivenAmounts)], ...
]


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedPod(AdmittedPod):
    """A pod to admit."""

    namespace: str = ""
    name: str = ""


GivenPod = Annotated[
    NamedPod,
    Form(
        "namespace name labels annotations scheduler_name priority_class_name priority preemption_policy"
        " init_containers containers overhead",
        init_containers=Nullable[GivenContainers],
        containers=Nullable[GivenContainers],
        overhead=GivenAmounts,
    ),
]


_EXPRESSIONS = list[Annotated[Expression, Form(key="", operator="")]]
_SELECTOR = Form(
    make=selector_of,
    names={"expressions": "match_expressions"},
    match_labels=(Nullable[dict[str, str]], {}),
    expressions=(Nullable[_EXPRESSIONS], []),
)
GivenSelector = Nullable[Annotated[Selector | InvalidSelector, _SELECTOR]]
"""A label selector. An unknown operator makes the selector invalid, not the case."""
GivenProfile = Annotated[
    Profile,
    Form(
        "name namespace_selector selector probability skip_update_resources labels annotations label_keys_mapping"
        " annotation_keys_mapping label_suffixes scheduler_name qos_class priority_class_name koordinator_priority"
        " patch",
        name=(str, ""),
        namespace_selector=GivenSelector,
        selector=GivenSelector,
        probability=Nullable[Whole | str],
        patch=Any,
    ),
]


def calc_webhook_colocation_profile(
    *,
    operation: Nullable[str] = "",
    namespace_labels: dict[str, dict[str, str] | None] | None = None,
    priority_classes: dict[str, Whole] | None = None,
    random_number_0_to_99: Nullable[Annotated[int, msgspec.Meta(ge=0, le=99)]] = 0,
    profiles: Nullable[Sequence[GivenProfile]] = (),
    pod: GivenPod,
    free_class_enable: Nullable[bool] = False,
) -> Calculated:
    """Apply ClusterColocationProfiles to a new pod; return the admitted pod or the refusal."""
    namespaces = namespace_labels or {}
    cluster = Cluster(
        namespace_labels=(namespaces[pod.namespace] or {}) if pod.namespace in namespaces else None,
        priority_classes={
            name: PriorityClass(value=value, preemption_policy="Never" if value < NEVER_PREEMPTS_BELOW else "")
            for name, value in (priority_classes or {}).items()
        },
        draw=lambda _: random_number_0_to_99,
        free_class_enable=free_class_enable,
    )
    metadata = {key: text for key, text in (("namespace", pod.namespace), ("name", pod.name)) if text}
    mutation = mutated(replace(pod, kept={"metadata": metadata}), operation or "CREATE", profiles, cluster)
    if mutation.pod is None:
        return Calculated(output={"admission": "error"}, because=mutation.because)
    output = {"admission": "allowed", "pod": _shown(mutation.pod), **_shown_spec(mutation.pod)}
    return Calculated(output=output, because=mutation.because)


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
