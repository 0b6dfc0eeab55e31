"""Nodes with pods and changing load, by a seed: as cases of `slacktide calc batch_resource`, and as objects.

What koord-manager made of them lies in `tests/replay/koordinator_nodes.jsonl.gz`.
"""

import json
from datetime import UTC, datetime
from typing import Any

from testbed.dice import Dice
from testbed.koordinator_pods import CLASSES, PRIORITY_CLASS, QOS

Json = dict[str, Any]
MIB, GIB = 1 << 20, 1 << 30
NAMESPACE = "loads"
STRATEGY = "node.koordinator.sh/colocation-strategy"
RATIOS = ("node.koordinator.sh/cpu-reclaim-ratio", "node.koordinator.sh/memory-reclaim-ratio")
RESERVATION = "node.koordinator.sh/reservation"
STEPS = 5
"""NodeMetrics of a node, one after the other."""


def cases(seed: int) -> list[Json]:
    """Inputs of one node: the same pods, and at each step another load."""
    dice = Dice(seed)
    name = f"load-{seed}"
    cpu_milli, memory_bytes = 1000 * dice.of(2, 4, 8, 16, 64, 96), GIB * dice.of(4, 16, 64, 256) - dice.whole(0, MIB)
    capacity = {"cpu_milli": cpu_milli, "memory_bytes": memory_bytes}
    kept = {"cpu_milli": dice.of(0, 0, 100, 333), "memory_bytes": dice.of(0, 0, 100 * MIB, 12_345_678)}
    node = {
        "name": name,
        "capacity": capacity,
        "allocatable": {key: capacity[key] - kept[key] for key in capacity},
        "annotations": _annotations(dice),
        "labels": {key: dice.of("0.7", "0.29", "1", "abc") for key in RATIOS if dice.below(0.1)},
        "reserved": _reserved(dice) if dice.below(0.25) else None,
    }
    pods = [_pod(dice, name, at, cpu_milli, memory_bytes) for at in range(dice.whole(0, 12))]
    gone = [f"gone-{at}" for at in range(dice.whole(0, 2))]
    apps = dice.some("koord-prod", "koord-mid", "koord-batch", share=0.2)
    return [
        {"node": node, "pods": pods, "node_metric": _metric(dice, capacity, pods, gone, apps)} for _ in range(STEPS)
    ]


def _annotations(dice: Dice) -> dict[str, str]:
    strategy = {
        "cpuReclaimThresholdPercent": dice.of(30, 75, 100),
        "memoryReclaimThresholdPercent": dice.of(40, 80, 100),
        "cpuCalculatePolicy": dice.of("usage", "maxUsageRequest"),
        "memoryCalculatePolicy": dice.of("usage", "request", "maxUsageRequest"),
        "batchCPUThresholdPercent": dice.of(20, 60),
        "batchMemoryThresholdPercent": dice.of(20, 60),
    }
    chosen = {key: value for key, value in strategy.items() if dice.below(0.25)}
    return {STRATEGY: json.dumps(chosen)} if chosen else {}


def _reserved(dice: Dice) -> Json:
    resources = {"cpu_milli": dice.of(100, 500), "memory_bytes": dice.of(64 * MIB, 123_456_789)}
    return {"resources": resources} | ({"reserved_cpus": "0-1"} if dice.below(0.3) else {})


def _pod(dice: Dice, node: str, at: int, cpu_milli: int, memory_bytes: int) -> Json:
    qos = dice.of("LS", "LS", "LSR", "LSE", "BE", "BE", "")
    priority_class = "koord-batch" if qos == "BE" else dice.of("koord-prod", "koord-prod", "koord-mid", "")
    if qos == "BE" and dice.below(0.2):
        priority_class = "koord-free"
    requests = {"cpu_milli": dice.whole(0, cpu_milli // 8), "memory_bytes": dice.whole(0, memory_bytes // 8)}
    if qos in {"LSR", "LSE"}:
        requests["cpu_milli"] = 1000 * dice.whole(1, max(1, cpu_milli // 8000))
    if qos == "BE":
        requests = {f"batch_{key}": value for key, value in requests.items()}
    labels = {"priority_class": dice.of(*CLASSES)} if dice.below(0.05) else {}
    return {
        "namespace": NAMESPACE,
        "name": f"{node}-{at}",
        "uid": f"{node}-{at}",
        "phase": dice.of("Running", "Running", "Running", "Pending", "Succeeded", "Failed"),
        "qos_class": qos or None,
        **labels,
        "priority": CLASSES.get(priority_class, 0),
        "kube_qos_class": "BestEffort" if qos == "BE" else "Burstable",
        "requests": requests,
    }


def _use(dice: Dice, most_milli: int, most_bytes: int) -> Json:
    return {"cpu_milli": dice.whole(0, most_milli), "memory_bytes": dice.whole(0, most_bytes)}


def _metric(dice: Dice, capacity: Json, pods: list[Json], gone: list[str], apps: list[str]) -> Json:
    cpu_milli, memory_bytes = capacity["cpu_milli"] // 10, capacity["memory_bytes"] // 10
    of = [(pod["name"], _reported(pod)) for pod in pods if dice.below(0.85)]
    of += [(name, dice.of("koord-prod", "koord-mid", "koord-batch", "koord-free", "")) for name in gone]
    reported = [
        {"namespace": NAMESPACE, "name": name, "priority_class": one, "usage": _use(dice, cpu_milli, memory_bytes)}
        for name, one in of
    ]
    system = _use(dice, cpu_milli, memory_bytes)
    uses = [system, *(one["usage"] for one in reported)]
    return {
        "node_usage": {key: sum(one[key] for one in uses) for key in system},
        "system_usage": system,
        "pod_metrics": reported,
        "host_apps": [{"name": one, "priority_class": one, "usage": _use(dice, 500, 100 * MIB)} for one in apps],
    }


def _reported(pod: Json) -> str:
    """The class that koordlet would report of a pod."""
    named = {value: name for name, value in CLASSES.items()}
    return pod.get("priority_class") or named.get(pod["priority"], "")


def node_object(case: Json) -> Json:
    """The Node, its size in the status."""
    node = case["node"]
    annotations = dict(node["annotations"])
    if reserved := node["reserved"]:
        resources = {"resources": quantities(reserved["resources"])}
        cpus = {"reservedCPUs": reserved["reserved_cpus"]} if "reserved_cpus" in reserved else {}
        annotations[RESERVATION] = json.dumps(resources | cpus)
    return {
        "name": node["name"],
        "annotations": annotations,
        "labels": node["labels"],
        "status": {name: quantities(node[name]) | {"pods": "110"} for name in ("capacity", "allocatable")},
    }


def pod_object(pod: Json, node: str) -> Json:
    """A Pod that is bound to the node."""
    labels = {QOS: pod["qos_class"]} if pod["qos_class"] else {}
    labels |= {PRIORITY_CLASS: pod["priority_class"]} if "priority_class" in pod else {}
    names = {value: name for name, value in CLASSES.items()}
    amounts = quantities(pod["requests"])
    container = {"name": "main", "image": "none", "resources": {"requests": amounts, "limits": amounts}}
    spec: Json = {"nodeName": node, "containers": [container]}
    if (priority_class := names.get(pod["priority"])) is not None:
        spec["priorityClassName"] = priority_class
    return {"metadata": {"name": pod["name"], "labels": labels}, "spec": spec}


def status_of(metric: Json, now_s: int) -> Json:
    """A NodeMetric's status, reported at this time in seconds since 1970."""
    used = lambda one: {"resources": quantities(one)}  # noqa: E731 - a word
    return {
        "updateTime": datetime.fromtimestamp(now_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "nodeMetric": {"nodeUsage": used(metric["node_usage"]), "systemUsage": used(metric["system_usage"])},
        "podsMetric": [
            {key: one[key] for key in ("namespace", "name")}
            | {"priority": one["priority_class"], "podUsage": used(one["usage"])}
            for one in metric["pod_metrics"]
        ],
        "hostApplicationMetric": [
            {"name": one["name"], "priority": one["priority_class"], "usage": used(one["usage"])}
            for one in metric["host_apps"]
        ],
    }


NAMES = {"cpu_milli": "cpu", "memory_bytes": "memory"}
NAMES |= {f"batch_{key}": f"kubernetes.io/batch-{name}" for key, name in NAMES.items()}


def quantities(amounts: Json) -> Json:
    """By Kubernetes' names."""
    return {NAMES[key]: f"{value}m" if key == "cpu_milli" else str(value) for key, value in amounts.items()}
