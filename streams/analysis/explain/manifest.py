"""Parses a pod's manifest, as from ``kubectl get pod -o yaml``, and checks a best-effort pod."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from msgspec.structs import replace

from slacktide.schemas.errors import ConfigError
from slacktide.schemas.inventory import Container, Pod
from slacktide.schemas.kubernetes_fields import Reader
from slacktide.schemas.kubernetes_pod import pod_of
from slacktide.schemas.metric import Use
from slacktide.schemas.policy.selector import Selector
from slacktide.schemas.qos import (
    BANDS,
    OVERRULED_ADVICE,
    VAIN_ADVICE,
    band_of,
    claims_in_vain,
    effective_priority_class,
    effective_qos,
    is_best_effort,
    overruled,
    overruling,
    vain_claim,
)
from slacktide.streams.analysis.explain.evidence import Finding
from slacktide.streams.analysis.explain.offered import amount, resource_name
from slacktide.streams.decisions.admission.label_selector import Expression, InvalidSelector, selector_of
from slacktide.streams.decisions.known_pods import is_spared

NOT_CREATED = "(not created yet)"
"""Replaces the uid of a pod that only exists as a manifest."""
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_TERMS = f"affinity.nodeAffinity.{_REQUIRED}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """One pod and related objects of its file."""

    pod: Pod
    node: str
    """The bound node; "": none."""
    scheduler: str
    node_selector: Mapping[str, str]
    affinity: tuple[Selector, ...] | None
    """Required node affinity: one of these must match; None: any node."""
    not_judged: tuple[str, ...]
    """Constraints that Kafka has no data for."""
    owner_kind: str
    owner_name: str
    """The controller; "": none."""
    scheduling: str
    """The message of its condition PodScheduled."""
    unserved: bool
    """No scheduler has tried the stored pod."""
    services: tuple[str, ...]
    """Services in the same file that select it."""


def manifest_of(document: object, file: str, namespace: str, name: str) -> Manifest:
    """Read a pod from plain data: a Pod, or a List that may also hold Services. ``file``: its name, for messages.

    Raises ConfigError: the pod is missing or invalid.
    """
    reader = Reader(file)
    body = reader.mapping(document, "(document)")
    items = [("", body)]
    if body.get("kind") == "List":
        listed = enumerate(reader.sequence(body.get("items"), "items"))
        items = [(f"items[{index}].", reader.mapping(item, f"items[{index}]")) for index, item in listed]
    pods = {_named(item): (path, item) for path, item in reversed(items) if item.get("kind") == "Pod"}
    if (namespace, name) not in pods:
        names = ", ".join("/".join(_named(item)) for _, item in items if item.get("kind") == "Pod")
        reader.refuse("kind", names or "no Pod", f"Pod {namespace}/{name}, alone or in a List")
        raise ConfigError(reader.findings)
    path, item = pods[namespace, name]
    labels = reader.texts(reader.at(item, "pod", "metadata.labels"), "metadata.labels")
    services = []
    for where, one in items:
        if one.get("kind") == "Service" and _named(one)[0] == namespace:
            selector = reader.at(one, where, "spec.selector")
            if selector and all(labels.get(key) == value for key, value in selector.items()):
                services.append(_named(one)[1])
    manifest = _manifest(path.removesuffix(".") or "pod", item, reader, services)
    if reader.findings:
        raise ConfigError(reader.findings)
    return manifest


def _metadata(item: Mapping[str, Any]) -> Mapping[str, Any]:
    metadata = item.get("metadata")
    return metadata if isinstance(metadata, dict) else {}


def _named(item: Mapping[str, Any]) -> tuple[str, str]:
    """Return namespace and name."""
    return str(_metadata(item).get("namespace") or "default"), str(_metadata(item).get("name"))


def _manifest(where: str, item: Mapping[str, Any], reader: Reader, services: Sequence[str]) -> Manifest:
    spec = reader.at(item, where, "spec")
    created = bool(_metadata(item).get("uid")) and bool(reader.at(item, where, "status"))
    # The API server sets a uid, and the priority of one of the four classes.
    if not _metadata(item).get("uid"):
        item = {**item, "metadata": {**_metadata(item), "uid": NOT_CREATED}}
    band = BANDS.get(str(spec.get("priorityClassName")))
    if band is not None and spec.get("priority") is None:
        spec = {**spec, "priority": band[0]}
        item = {**item, "spec": spec}
    affinity, not_judged = _affinity(spec, where, reader)
    listed = reader.sequence(_metadata(item).get("ownerReferences"), f"{where}.metadata.ownerReferences")
    owners = [one for one in listed if isinstance(one, dict)]
    owner = next((one for one in owners if one.get("controller")), owners[0] if owners else {})
    conditions = reader.sequence(reader.at(item, where, "status").get("conditions"), f"{where}.status.conditions")
    scheduled = [one for one in conditions if isinstance(one, dict) and one.get("type") == "PodScheduled"]
    failed = next((one for one in scheduled if one.get("status") == "False"), {})
    return Manifest(
        pod=pod_of(where, item, reader),
        node=str(spec.get("nodeName") or ""),
        scheduler=str(spec.get("schedulerName") or "default-scheduler"),
        node_selector=reader.texts(reader.at(spec, f"{where}.spec", "nodeSelector"), f"{where}.spec.nodeSelector"),
        affinity=affinity,
        not_judged=tuple(not_judged),
        owner_kind=str(owner.get("kind") or ""),
        owner_name=str(owner.get("name") or ""),
        scheduling=str(failed.get("message") or failed.get("reason") or ""),
        unserved=created and not scheduled,  # the first attempt, or a scheduling gate, sets PodScheduled
        services=tuple(services),
    )


def _affinity(spec: Mapping[str, Any], where: str, reader: Reader) -> tuple[tuple[Selector, ...] | None, list[str]]:
    """Return the terms of required node affinity, and the constraints that cannot be checked."""
    terms = reader.sequence(
        reader.at(spec, f"{where}.spec", _TERMS).get("nodeSelectorTerms"), f"{where}.spec.{_TERMS}.nodeSelectorTerms"
    )
    selectors, not_judged = [], []
    for term in terms:
        listed = reader.mapping(term, "nodeSelectorTerms")
        expressions = []
        for one in reader.sequence(listed.get("matchExpressions"), "matchExpressions"):
            wanted = reader.mapping(one, "matchExpressions")
            values = reader.sequence(wanted.get("values"), "matchExpressions.values")
            key, operator = str(wanted.get("key")), str(wanted.get("operator"))
            expressions.append(Expression(key=key, operator=operator, values=tuple(map(str, values))))
        selector = selector_of({}, expressions)
        if isinstance(selector, InvalidSelector):
            not_judged.append(f"node affinity: {selector.why}")
        elif listed.get("matchFields"):
            not_judged.append("node affinity by matchFields")
        elif expressions:  # an empty term matches no node
            selectors.append(selector)
    # If one of several terms is unknown, it may match any node.
    known = tuple(selectors) if terms and not not_judged else None
    affinity = spec.get("affinity")
    if isinstance(affinity, dict):
        not_judged += [kind for kind in ("podAffinity", "podAntiAffinity") if affinity.get(kind)]
    if spec.get("topologySpreadConstraints"):
        not_judged.append("topologySpreadConstraints")
    return known, not_judged


NATIVE = ("cpu_milli", "mem_bytes")
IDLE_PCT = 30
"""A pod that uses less of its request blocks resources."""
_TIERS = {"koord-batch": "batch", "koord-mid": "mid", "koord-free": "free"}
_SPLIT = {
    "BE": frozenset({"koord-prod"}),
    "LSR": frozenset({"koord-mid", "koord-batch", "koord-free"}),
    "LSE": frozenset({"koord-mid", "koord-batch", "koord-free"}),
}
"""The priority classes that Koordinator's webhook rejects, by QoS label."""


def lint(pod: Pod, use: Use | None, manifest: Manifest | None, *, held: bool = False) -> Iterator[Finding]:
    """Report likely problems of a pod.

    ``use``: its average over the policy's window; None: unknown. Without a manifest its checks are skipped. ``held``:
    Slacktide limits its CPU, so its use does not show its demand.
    """
    pod = overruled(pod)
    if pod.overruled:
        yield Finding("lint.overruled", overruling(pod), advice=OVERRULED_ADVICE)
    if is_spared(pod):
        text = "critical and without requests: it is in the best-effort tier, but is not suppressed"
        yield Finding("tier.critical", text, advice="give it CPU requests")
        return
    if claims_in_vain(pod):
        yield Finding("lint.unheld", vain_claim(pod), advice=VAIN_ADVICE)
        pod = replace(pod, unheld=False)  # the rest judges the claimed class
    yield from _classes(pod)
    named = effective_priority_class(pod)
    if named not in _TIERS and not is_best_effort(pod):
        return
    # Free resources are off by default; then a free pod requests nothing.
    if named != "koord-free" or pod.requests.free_cpu_milli or pod.requests.free_mem_bytes:
        tier = _TIERS.get(named, "batch")
        for part in pod.containers or [Container(name=pod.name, requests=pod.requests, limits=pod.limits)]:
            yield from _bounds(part, tier)
        if use is not None:
            yield from _realistic(pod, use, tier, held=held)
    if manifest is not None:
        yield from _controller(manifest)


def _classes(pod: Pod) -> Iterator[Finding]:
    """Report QoS and priority classes that contradict each other, or are derived from each other."""
    qos, named = effective_qos(pod.qos_label, pod.kube_qos), effective_priority_class(pod)
    if named in _SPLIT.get(pod.qos_label or "", ()):
        priority = "no priority" if pod.priority is None else f"priority {pod.priority}"
        yield Finding(
            "lint.class",
            f"QoS class {qos} and priority class {named} ({priority}) contradict each other",
            advice="for best-effort pods, set qosClass BE and koord-batch; for others, LS and koord-prod",
        )
    elif pod.priority is not None and not band_of(pod.priority) and pod.priority_class_label is None:
        bands = ", ".join(f"{name} {low}-{high}" for name, (low, high) in BANDS.items())
        counts = f"the pod counts as {named}, because of its QoS class"
        yield Finding(
            "lint.band",
            f"priority {pod.priority} is in no priority band ({bands}): {counts}",
            advice="set the priorityClassName of one of these bands",
        )
    elif is_best_effort(pod) and pod.priority is None and pod.priority_class_label is None:
        text = f"no priority: the pod counts as {named} because its QoS class is {qos}"
        yield Finding("lint.no-priority", text, advice="set priorityClassName: koord-batch")


def _bounds(part: Container, tier: str) -> Iterator[Finding]:
    """Report missing and differing requests and limits of a container in its tier's resources."""
    name = part.name
    for kind in NATIVE:
        field = f"{tier}_{kind}"
        shown = resource_name(field)
        request, limit = getattr(part.requests, field), getattr(part.limits, field)
        if request is None and limit is None:
            native = getattr(part.requests, kind) or getattr(part.limits, kind)
            other = f"; it requests native {resource_name(kind)} instead" if native else ""
            yield Finding(
                "lint.native" if native else "lint.requests",
                f"{name}: neither a request nor a limit for {shown}{other}",
                advice=f"set kubernetes.io/{shown} in requests and limits, or let a ClusterColocationProfile set it",
            )
        elif limit is None:
            text = f"{name}: requests {shown} {amount(request, kind)}, but has no limit"
            yield Finding("lint.limits", text, advice="set the limit to the value of the request")
        elif request != limit:
            text = f"{name}: {shown} request {amount(request or 0, kind)} and limit {amount(limit, kind)} differ"
            yield Finding("lint.equal", text, advice="set both to the same value")


def _realistic(pod: Pod, use: Use, tier: str, *, held: bool) -> Iterator[Finding]:
    """Report requests that are far from the use."""
    for kind in NATIVE:
        field = f"{tier}_{kind}"
        asked, used = getattr(pod.requests, field), getattr(use, kind)
        if not asked:
            continue
        amounts = f"{resource_name(field)}: requests {amount(asked, kind)}, uses {amount(used, kind)}"
        text = f"{amounts}, {used * 100 // asked}%: it"
        if used * 100 < asked * IDLE_PCT and not held:
            yield Finding("lint.idle", f"{text} reserves more than it uses", advice="request less")
        elif kind == "mem_bytes" and used > asked:
            text = f"{text} can be placed on a node without that much memory"
            yield Finding("lint.over", text, advice="request what it uses")


def _controller(manifest: Manifest) -> Iterator[Finding]:
    """Report best-effort pods of a StatefulSet, of a Service, or without a controller."""
    if manifest.owner_kind == "StatefulSet":
        yield Finding(
            "lint.stateful",
            f"it is best-effort, but StatefulSet {manifest.owner_name} created it: each eviction interrupts the "
            "StatefulSet",
            advice="run it as LS with koord-prod, or as a Job that saves its progress",
        )
    if manifest.services:
        yield Finding(
            "lint.service",
            f"it is best-effort, but serves Service {', '.join(manifest.services)}: clients wait while it is throttled",
            advice="run pods that serve requests as LS with koord-prod",
        )
    if not manifest.owner_kind:
        text = "it has no controller: after an eviction it is not recreated"
        yield Finding("lint.bare", text, advice="create it by a Job with a backoffLimit")
