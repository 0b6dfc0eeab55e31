"""Checks a best-effort pod: requests, use, QoS class, controller."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from slacktide.schemas.inventory import Container, Pod
from slacktide.schemas.metric import Use
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
from slacktide.streams.decisions.known_pods import is_spared
from slacktide.streams.explain.evidence import Finding
from slacktide.streams.explain.manifest import Manifest
from slacktide.streams.explain.placement import NATIVE
from slacktide.streams.explain.selling import amount, resource_name
from slacktide.streams.explain.tier import critical_findings

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

    Args:
        pod: the parsed pod.
        use: its average over the policy's window; None: unknown.
        manifest: its manifest; None: checks of the manifest are skipped.
        held: Slacktide limits its CPU, so its use does not show its demand.
    """
    pod = overruled(pod)
    if pod.overruled:
        yield Finding(name="lint.overruled", text=overruling(pod), advice=OVERRULED_ADVICE)
    if is_spared(pod):
        yield from critical_findings(pod)
        return
    if claims_in_vain(pod):
        yield Finding(name="lint.unheld", text=vain_claim(pod), advice=VAIN_ADVICE)
        pod = replace(pod, unheld=False)  # the rest judges the claimed class
    yield from _accord(pod)
    named = effective_priority_class(pod)
    if named not in _TIERS and not is_best_effort(pod):
        return
    # Free resources are off by default; then a free pod requests nothing.
    requests = pod.requests
    if named != "koord-free" or requests.free_cpu_milli or requests.free_mem_bytes:
        yield from _amounts(pod)
        if use is not None:
            yield from _realistic(pod, use, held=held)
    if manifest is not None:
        yield from _made_by(manifest)


def _accord(pod: Pod) -> Iterator[Finding]:
    qos, named = effective_qos(pod.qos_label, pod.kube_qos), effective_priority_class(pod)
    priority = "no priority" if pod.priority is None else f"priority {pod.priority}"
    if named in _SPLIT.get(pod.qos_label or "", ()):
        yield Finding(
            name="lint.class",
            text=f"QoS class {qos} and priority class {named} ({priority}) contradict each other",
            advice="for best-effort pods, set qosClass BE and koord-batch; for others, LS and koord-prod",
        )
    elif pod.priority is not None and not band_of(pod.priority) and pod.priority_class_label is None:
        bands = ", ".join(f"{name} {low}-{high}" for name, (low, high) in BANDS.items())
        text = (
            f"priority {pod.priority} is in no priority band ({bands}): the pod counts as {named}, because of its "
            "QoS class"
        )
        yield Finding(name="lint.band", text=text, advice="set the priorityClassName of one of these bands")
    elif is_best_effort(pod) and pod.priority is None and pod.priority_class_label is None:
        text = f"no priority: the pod counts as {named} because its QoS class is {qos}"
        yield Finding(name="lint.no-priority", text=text, advice="set priorityClassName: koord-batch")


def _amounts(pod: Pod) -> Iterator[Finding]:
    tier = _TIERS.get(effective_priority_class(pod), "batch")
    whole = Container(name=pod.name, requests=pod.requests, limits=pod.limits)
    for part in pod.containers or [whole]:
        yield from _of_container(part.name, part, tier)


def _of_container(name: str, part: Container, tier: str) -> Iterator[Finding]:
    for kind in NATIVE:
        field = f"{tier}_{kind}"
        shown = resource_name(field)
        request, limit = getattr(part.requests, field), getattr(part.limits, field)
        native = getattr(part.requests, kind) or getattr(part.limits, kind)
        if request is None and limit is None:
            other = f"; it requests native {resource_name(kind)} instead" if native else ""
            yield Finding(
                name="lint.native" if native else "lint.requests",
                text=f"{name}: neither a request nor a limit for {shown}{other}",
                advice=f"set kubernetes.io/{shown} in requests and limits, or let a ClusterColocationProfile set it",
            )
        elif limit is None:
            text = f"{name}: requests {shown} {amount(request, kind)}, but has no limit"
            yield Finding(name="lint.limits", text=text, advice="set the limit to the value of the request")
        elif request != limit:
            text = f"{name}: {shown} request {amount(request or 0, kind)} and limit {amount(limit, kind)} differ"
            yield Finding(name="lint.equal", text=text, advice="set both to the same value")


def _realistic(pod: Pod, use: Use, *, held: bool) -> Iterator[Finding]:
    tier = _TIERS.get(effective_priority_class(pod), "batch")
    for kind in NATIVE:
        field = f"{tier}_{kind}"
        asked, used = getattr(pod.requests, field), getattr(use, kind)
        if not asked:
            continue
        amounts = f"{resource_name(field)}: requests {amount(asked, kind)}, uses {amount(used, kind)}"
        if used * 100 < asked * IDLE_PCT and not held:
            text = f"{amounts}, {used * 100 // asked}%: it reserves more than it uses"
            yield Finding(name="lint.idle", text=text, advice="request less")
        elif kind == "mem_bytes" and used > asked:
            text = f"{amounts}, {used * 100 // asked}%: it can be placed on a node without that much memory"
            yield Finding(name="lint.over", text=text, advice="request what it uses")


def _made_by(manifest: Manifest) -> Iterator[Finding]:
    if manifest.owner_kind == "StatefulSet":
        yield Finding(
            name="lint.stateful",
            text=f"it is best-effort, but StatefulSet {manifest.owner_name} created it: each eviction interrupts the "
            "StatefulSet",
            advice="run it as LS with koord-prod, or as a Job that saves its progress",
        )
    if manifest.services:
        yield Finding(
            name="lint.service",
            text=f"it is best-effort, but serves Service {', '.join(manifest.services)}: clients wait while it is "
            "throttled",
            advice="run pods that serve requests as LS with koord-prod",
        )
    if not manifest.owner_kind:
        text = "it has no controller: after an eviction it is not recreated"
        yield Finding(name="lint.bare", text=text, advice="create it by a Job with a backoffLimit")
