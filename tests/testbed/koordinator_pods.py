"""Pods on their way into a cluster with profiles, by a seed; what Slacktide's webhook makes of them; and differences.

What Koordinator's webhook made of them lies in `tests/replay/koordinator_pods.jsonl.gz`.
"""

import base64
import json
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from slacktide.agents.cluster.webhook.mutation import admission, in_accord, new_pod, priority_class_of, profile_of
from slacktide.agents.cluster.webhook.review import Request
from slacktide.agents.cluster.webhook.review import difference as changes
from slacktide.streams.decisions.admission.admitted_pod import amount_of
from testbed.dice import Dice
from testbed.json_patch import applied

Json = dict[str, Any]
GROUP = "config.koordinator.sh/v1alpha1"
CLASSES = {"koord-prod": 9000, "koord-mid": 7000, "koord-batch": 5000, "koord-free": 3000}
QOS, PRIORITY_CLASS, PRIORITY = (f"koordinator.sh/{name}" for name in ("qosClass", "priority-class", "priority"))
COLOCATION = "koordinator.sh/enable-colocation"
SKIP = "config.koordinator.sh/skip-update-resources"
SPEC = "node.koordinator.sh/extended-resource-spec"
PODS = 50
"""Of a world."""


class World(msgspec.Struct, frozen=True):
    """The cluster that pods come into."""

    namespaces: dict[str, dict[str, str]]
    """Labels by name."""
    profiles: list[Json]


class Answer(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a webhook made of a pod."""

    pod: Json = {}
    """Empty if it refused the pod."""
    refused: str = ""


class Asked(msgspec.Struct, frozen=True):
    """A pod, and Koordinator's answer."""

    world: int
    namespace: str
    pod: Json
    answer: Answer


class Recorded(msgspec.Struct, frozen=True):
    """All of a recording."""

    worlds: dict[int, World]
    asked: list[Asked]


def world(seed: int) -> World:
    """Three namespaces and up to six profiles; none draws."""
    dice = Dice(seed)
    named = {
        f"w{seed}-{name}": {
            "kubernetes.io/metadata.name": f"w{seed}-{name}",
            **({"team": dice.of("data", "web")} if dice.below(0.7) else {}),
            **({COLOCATION: "true"} if dice.below(0.5) else {}),
        }
        for name in ("a", "b", "c")
    }
    count = dice.whole(1, 6)
    return World(named, [_profile(dice, f"w{seed}-{at}") for at in range(count)])


def _profile(dice: Dice, name: str) -> Json:
    spec: Json = {}
    if dice.below(0.5):
        spec["namespaceSelector"] = _selector(dice, {"team": ("data", "web"), COLOCATION: ("true",)})
    if dice.below(0.75):
        spec["selector"] = _selector(dice, {"app": ("spark", "web", "batch"), "tier": ("x", "y")})
    qos, priority_class = _claims(dice)
    for key, value in {
        "labels": {"mutated": name, "x": dice.of("a", "b", "")},
        "annotations": {"note": name},
        "labelKeysMapping": {dice.of("app", "missing"): "copied"},
        "annotationKeysMapping": {dice.of("given", "missing"): "copied"},
        "labelSuffixes": {dice.of("app", "tier"): "-suffix"},
        "schedulerName": "koord-scheduler",
        "qosClass": qos if qos not in {"odd", ""} else "BE",
        "priorityClassName": priority_class,
        "koordinatorPriority": dice.whole(0, 9999),
        "probability": dice.of(0, 100, "0%", "100%"),
        "patch": dice.of(
            {"spec": {"terminationGracePeriodSeconds": 5}},
            {"metadata": {"labels": {"patched": "true", "tier": None}}},
            {"spec": {"containers": [{"name": "main", "env": [{"name": "A", "value": "1"}]}]}},
            {"spec": {"containers": [{"name": "beside", "image": "i", "resources": {"requests": {"cpu": "100m"}}}]}},
            {"spec": {"tolerations": [{"key": "batch", "operator": "Exists"}]}},
            {"spec": {"nodeSelector": {"pool": "batch"}, "priority": 5500}},
        ),
    }.items():
        likely = {"qosClass": 0.8, "priorityClassName": 0.9, "labels": 0.5, "schedulerName": 0.4}
        if dice.below(likely.get(key, 0.2)):
            spec[key] = value
    annotations = {"annotations": {SKIP: "true"}} if dice.below(0.1) else {}
    kind = {"apiVersion": GROUP, "kind": "ClusterColocationProfile"}
    return {**kind, "metadata": {"name": name, **annotations}, "spec": spec}


CLAIMS = (
    *[("BE", name) for name in ("koord-batch", "koord-batch", "koord-batch", "koord-mid", "koord-free")],
    *[("LS", "koord-prod"), ("LS", "koord-mid"), ("LSR", "koord-prod"), ("LSE", "koord-prod")],
)
QOS_CLASSES = ("BE", "LS", "LSR", "LSE", "SYSTEM", "odd", "")


def _claims(dice: Dice) -> tuple[str, str]:
    """A QoS class and a priority class, which mostly go together."""
    return dice.of(*CLAIMS) if dice.below(0.85) else (dice.of(*QOS_CLASSES), dice.of(*CLASSES))


def _selector(dice: Dice, keys: Mapping[str, Sequence[str]]) -> Json:
    key = dice.of(*keys)
    if dice.below(0.5):
        return {"matchLabels": {key: dice.of(*keys[key])}}
    operator = dice.of("In", "NotIn", "Exists", "DoesNotExist")
    values = {"values": list(keys[key])[: dice.whole(1, len(keys[key]))]} if operator in {"In", "NotIn"} else {}
    return {"matchExpressions": [{"key": key, "operator": operator, **values}]} if dice.below(0.9) else {}


def pods(seed: int) -> list[tuple[str, Json]]:
    """Pods of a world, each with its namespace, as the API server sends them to webhooks."""
    dice, of = Dice(seed + 1_000_000), world(seed)
    return [(dice.of(*of.namespaces), _pod(dice, f"p{seed}-{at}")) for at in range(PODS)]


def _pod(dice: Dice, name: str) -> Json:
    labels = {"app": dice.of("spark", "web", "batch")}
    labels |= {"tier": dice.of("x", "y")} if dice.below(0.5) else {}
    qos, of = _claims(dice)
    claims = dice.below(0.6)
    labels |= {QOS: qos} if claims else {}
    labels |= {PRIORITY_CLASS: dice.of(*CLASSES, "odd")} if dice.below(0.1) else {}
    labels |= {PRIORITY: dice.of("5", "9999", "x")} if dice.below(0.1) else {}
    annotations = {"given": "1"} if dice.below(0.3) else {}
    annotations |= {SPEC: dice.of("{}", '{"containers":{"main":{}}}', "none")} if dice.below(0.05) else {}
    spec: Json = {"schedulerName": "default-scheduler", "restartPolicy": dice.of("Always", "Never")}
    if dice.below(0.95 if claims else 0.2):
        spec |= {"priorityClassName": of, "priority": CLASSES[of], "preemptionPolicy": "PreemptLowerPriority"}
    else:
        spec |= {"priority": dice.of(0, 0, 0, 5500, 9999), "preemptionPolicy": "PreemptLowerPriority"}
    more = dice.some("second", "third", share=0.3)
    batch = 0.3 if claims and qos == "BE" else 0.02
    spec["containers"] = [_container(dice, each, batch) for each in ("main", *more)]
    if dice.below(0.3):
        first = _container(dice, "init", batch)
        spec["initContainers"] = [first | ({"restartPolicy": "Always"} if dice.below(0.4) else {})]
    if dice.below(0.1):
        spec |= {"runtimeClassName": "kata", "overhead": {"cpu": "250m", "memory": "120Mi"}}
    if dice.below(0.05):
        spec["resources"] = {"requests": {"cpu": "3"}, "limits": {"cpu": "4"}}
    metadata: Json = {"name": name, "labels": labels} | ({"annotations": annotations} if annotations else {})
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


AMOUNTS = {
    "cpu": ("1", "2", "500m", "1500m", "0", "100m", "1.5", "2e0"),
    "memory": ("1Gi", "64Mi", "1G", "1500M", "0", "1073741824", "1.5Gi", "128e6"),
    "kubernetes.io/batch-cpu": ("1000", "1k", "250", "0"),
    "kubernetes.io/batch-memory": ("2Gi", "1G", "134217728"),
    "kubernetes.io/mid-cpu": ("500", "2k"),
    "koordinator.sh/batch-cpu": ("700",),
    "ephemeral-storage": ("1Gi",),
    "example.com/gpu": ("1",),
}


def _container(dice: Dice, name: str, batch: float) -> Json:
    likely = {"cpu": 0.75, "memory": 0.75, "kubernetes.io/batch-cpu": batch, "kubernetes.io/batch-memory": batch}
    names = [key for key in AMOUNTS if dice.below(likely.get(key, 0.04))]
    chosen = {key: dice.of(*AMOUNTS[key]) for key in names}
    limits = {key: one for key, one in chosen.items() if dice.below(0.8)}
    # The API server sets requests that are not given to the limits, before it asks webhooks.
    requests = chosen if dice.below(0.8) else dict(limits)
    resources = {kind: amounts for kind, amounts in (("requests", requests), ("limits", limits)) if amounts}
    return {"name": name, "image": "i", "resources": resources}


def review_of(namespace: str, pod: Json) -> Json:
    """An AdmissionReview that asks about its creation."""
    kinds = {"kind": {"group": "", "version": "v1", "kind": "Pod"}}
    kinds |= {"resource": {"group": "", "version": "v1", "resource": "pods"}}
    metadata = pod["metadata"] | {"namespace": namespace}
    request = {
        "uid": pod["metadata"]["name"],
        **kinds,
        "name": pod["metadata"]["name"],
        "namespace": namespace,
        "operation": "CREATE",
        "userInfo": {"username": "tests"},
        "object": pod | {"metadata": metadata},
        "dryRun": False,
    }
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}


def answer_of(asked: Json, reviewed: Json) -> Answer:
    """The answer to an AdmissionReview, with its patch applied."""
    response = reviewed["response"]
    if not response["allowed"]:
        return Answer(refused=response["status"]["message"])
    patch = json.loads(base64.b64decode(response["patch"])) if response.get("patch") else []
    return Answer(pod=applied(asked["request"]["object"], patch))


def ours(of: World, namespace: str, pod: Json) -> Answer:
    """What Slacktide's webhook makes of a pod, with its defaults."""
    asked = review_of(namespace, pod)["request"]
    request = Request(uid=asked["uid"], operation="CREATE", namespace=namespace, object=asked["object"])
    preempts = {"preemptionPolicy": "PreemptLowerPriority"}
    classes = {name: priority_class_of(preempts | {"value": value}) for name, value in CLASSES.items()}
    done = admission(request, map(profile_of, of.profiles), classes, of.namespaces[namespace])
    if done.result != "refused":
        done = in_accord(done, new_pod(done.pod), strict=False)
    return Answer(refused=done.refused) if done.refused else Answer(pod=dict(done.pod))


DIFFERENCES = {
    "pod-level": "a pod with CPU or memory for the pod as a whole is not translated: it would request both",
    "overhead": "overhead of a runtime class stays native: the API server rejects any other",
    "older names": "koordinator.sh/batch-* is a batch resource, too, so the pod must be BE",
}
"""What is different on purpose, and why; docs/differences.md lists it."""


def difference(pod: Json, theirs: Answer, own: Answer) -> str:
    """How the answers about a pod differ: a listed difference, or what differs; "": they are equal."""
    paths = _unequal(theirs, own)
    if not paths:
        return ""
    spec = pod["spec"]
    if "resources" in spec:
        return "pod-level"
    if "overhead" in spec and not _unequal(_without_overhead(theirs), _without_overhead(own)):
        return "overhead"
    if "koordinator.sh/batch-" in json.dumps(spec) and "must specify koordinator QoS BE" in own.refused:
        return "older names"
    return paths


def _unequal(theirs: Answer, own: Answer) -> str:
    if bool(theirs.refused) != bool(own.refused):
        return f"Koordinator: {theirs.refused or 'admitted'}; Slacktide: {own.refused or 'admitted'}"
    paths = [f"{one['op']} {one['path']} {one.get('value')}" for one in changes(bare(theirs.pod), bare(own.pod))]
    return "; ".join(paths)


def _without_overhead(answer: Answer) -> Answer:
    spec = {key: one for key, one in answer.pod.get("spec", {}).items() if key != "overhead"}
    return Answer(pod=answer.pod | {"spec": spec}, refused=answer.refused)


def bare(value: Any) -> Any:
    """Without what is empty, which Koordinator writes and Kubernetes reads as absent."""
    if isinstance(value, list):
        return [bare(one) for one in value]
    if not isinstance(value, dict):
        return value
    kept = {key: _amount(key, one) or bare(one) for key, one in value.items()}
    return {key: one for key, one in kept.items() if one not in ({}, [], None)}


def _amount(key: str, value: Any) -> Any:
    """The amounts of a list of resources, however they are written; None: it is no such list."""
    if key == SPEC and value.startswith("{"):
        return bare(json.loads(value))
    if key in {"requests", "limits", "overhead"}:
        return {name: amount_of(name, one) for name, one in value.items()}
    return None
