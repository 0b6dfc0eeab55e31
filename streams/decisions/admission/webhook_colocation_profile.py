"""Applies ClusterColocationProfiles to new pods before they are stored.

Reading: koordinator a7a1b76b, pkg/webhook/pod/mutating/cluster_colocation_profile.go,
clusterColocationProfileMutatingPod and doMutateByColocationProfile. Unlike the reference, an invalid selector or
an unreadable namespace matches nothing, and ``probability: 30%`` means 30 of 100 draws.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

from slacktide.schemas.errors import BadMessageError, SlacktideError
from slacktide.schemas.policy.selector import Selector, matches
from slacktide.schemas.qos import LABEL_QOS, LABEL_SUB_PRIORITY
from slacktide.streams.decisions.admission.admitted_pod import (
    AdmittedPod,
    object_of,
    pod_of,
    recorded,
    translated,
)
from slacktide.streams.decisions.admission.label_selector import InvalidSelector, is_empty
from slacktide.streams.decisions.admission.strategic_merge_patch import PatchError, patched
from slacktide.streams.decisions.because import Because

_PERCENT = re.compile(r"([+-]?[0-9]{1,18})%")


@dataclass(frozen=True, slots=True, kw_only=True)
class PriorityClass:
    """The PriorityClass fields that pods inherit."""

    value: int
    preemption_policy: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """A ClusterColocationProfile: the pods that it selects, and its changes to them."""

    name: str
    namespace_selector: Selector | InvalidSelector = field(default_factory=Selector)
    selector: Selector | InvalidSelector = field(default_factory=Selector)
    probability: int | str = 100
    """How many of 100 draws apply the profile: a number, or ``30%``."""
    skip_update_resources: bool = False
    """Selected pods keep native CPU and memory, regardless of other profiles and draws."""
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    label_keys_mapping: Mapping[str, str] = field(default_factory=dict)
    """Source label -> target label of the copied value."""
    annotation_keys_mapping: Mapping[str, str] = field(default_factory=dict)
    label_suffixes: Mapping[str, str] = field(default_factory=dict)
    """Label -> suffix for its value, if the pod has the label."""
    scheduler_name: str = ""
    qos_class: str = ""
    priority_class_name: str = ""
    koordinator_priority: int | None = None
    patch: object = None
    """A strategic merge patch for the Kubernetes object."""
    dry_run: bool = False
    """Slacktide's own: report the changes without applying them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """The cluster state that profiles read."""

    namespace_labels: Mapping[str, str] | None
    """Labels of the pod's namespace; None if unreadable."""
    priority_classes: Mapping[str, PriorityClass]
    draw: Callable[[str], int]
    """Returns a number from 0 to 99 for a profile's name."""
    free_class_enable: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutation:
    """The pod to store, or None if refused. ``because`` contains each profile in order, then each amount."""

    pod: AdmittedPod | None
    refused: str = ""
    because: tuple[Because, ...] = ()


class _RefusedError(SlacktideError):
    def __init__(self, because: Because, why: str) -> None:
        self.because = because
        super().__init__(why)


def mutated(pod: AdmittedPod, operation: str, profiles: Iterable[Profile], cluster: Cluster) -> Mutation:
    """Apply matching profiles in order of name, translate resources and record batch resources.

    Profiles match the pod's original labels. Only a CREATE changes the pod.
    """
    if operation != "CREATE":
        return Mutation(pod=pod, because=(Because(of="pod", bound="not_created", terms={}),))
    because: list[Because] = []
    try:
        changed = _profiled(pod, sorted(profiles, key=lambda profile: profile.name), cluster, because)
    except _RefusedError as exc:
        return Mutation(pod=None, refused=str(exc), because=(*because, exc.because))
    try:
        spec = recorded(changed)
    except BadMessageError as exc:
        because.append(Because(of="extended_resource_spec", bound="invalid_annotation", terms={}))
        return Mutation(pod=None, refused=str(exc), because=tuple(because))
    return Mutation(pod=spec.pod, because=(*because, spec.because))


def _profiled(pod: AdmittedPod, profiles: Iterable[Profile], cluster: Cluster, because: list[Because]) -> AdmittedPod:
    """Apply profiles and translate. A profile that its draw skips still affects the translation."""
    changed, matched = pod, []
    for profile in profiles:
        of = f"profiles/{profile.name}"
        if unmatched := _unmatched(profile, pod.labels, cluster.namespace_labels):
            because.append(Because(of=of, bound=unmatched, terms={}))
            continue
        matched.append(profile)
        terms = {"probability_pct": _percent(profile), "drawn_pct": cluster.draw(profile.name)}
        drawn = terms["drawn_pct"] < terms["probability_pct"]
        if drawn:
            changed = _applied(changed, profile, cluster.priority_classes)
        because.append(Because(of=of, bound="applied" if drawn else "probability", terms=dict(terms)))
    skips = any(profile.skip_update_resources for profile in matched)
    if skips or not matched:
        bound = "skip_update_resources" if skips else "no_profile"
        because.append(Because(of="resources", bound=bound, terms={}))
        return changed
    done = translated(changed, free_class_enable=cluster.free_class_enable)
    because.extend(done.because)
    return done.pod


def _unmatched(profile: Profile, labels: Mapping[str, str], namespace_labels: Mapping[str, str] | None) -> str:
    """Return why the profile does not match, or ""; the namespace is checked first."""
    namespace, own = profile.namespace_selector, profile.selector
    if isinstance(namespace, InvalidSelector) or isinstance(own, InvalidSelector):
        return "invalid_selector"
    if not is_empty(namespace) and namespace_labels is None:
        return "namespace_unreadable"
    if not matches(namespace, namespace_labels or {}):
        return "namespace_selector"
    return "" if matches(own, labels) else "selector"


def _percent(profile: Profile) -> int:
    if isinstance(profile.probability, int):
        return profile.probability
    match = _PERCENT.fullmatch(profile.probability)
    if match is None:
        why = f"probability {profile.probability!r} is neither a whole number nor a percent such as 30%"
        raise _refused(profile, "invalid_probability", why)
    return int(match[1])


def _refused(profile: Profile, bound: str, why: str) -> _RefusedError:
    because = Because(of=f"profiles/{profile.name}", bound=bound, terms={})
    return _RefusedError(because, f"ClusterColocationProfile {profile.name}: {why}")


def _applied(pod: AdmittedPod, profile: Profile, classes: Mapping[str, PriorityClass]) -> AdmittedPod:
    labels = _copied({**pod.labels, **profile.labels}, profile.label_keys_mapping)
    for key, suffix in profile.label_suffixes.items():
        if key in labels:
            labels[key] += suffix
    # QoS class and priority last.
    if profile.qos_class:
        labels[LABEL_QOS] = profile.qos_class
    if profile.koordinator_priority is not None:
        labels[LABEL_SUB_PRIORITY] = str(profile.koordinator_priority)
    changed = replace(
        pod,
        labels=labels,
        annotations=_copied({**pod.annotations, **profile.annotations}, profile.annotation_keys_mapping),
        scheduler_name=profile.scheduler_name or pod.scheduler_name,
    )
    if name := profile.priority_class_name:
        found = classes.get(name)
        if found is None:
            raise _refused(profile, "unknown_priority_class", f"there is no PriorityClass {name}")
        changed = replace(
            changed, priority_class_name=name, priority=found.value, preemption_policy=found.preemption_policy
        )
    if profile.patch is None:
        return changed
    try:
        return pod_of(patched(object_of(changed), profile.patch))
    except (PatchError, BadMessageError) as exc:
        raise _refused(profile, "invalid_patch", str(exc)) from None


def _copied(texts: dict[str, str], mapping: Mapping[str, str]) -> dict[str, str]:
    """Copy values to other keys, in order of source key. A missing source copies an empty value."""
    for source, target in sorted(mapping.items()):
        texts[target] = texts.get(source, "")
    return texts
