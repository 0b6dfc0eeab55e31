"""The decision core against cases made by the reference implementation (koordinator a7a1b76b)."""

import json
from pathlib import Path

import pytest

from slacktide.schemas.inventory import NodeFacts, Pod, Resources
from slacktide.schemas.metric import PodMetric, Use
from slacktide.schemas.policy import Colocation
from slacktide.streams.decisions.batch_resource import batch_resource
from slacktide.streams.decisions.cpu_suppress_allowed import CpuUse, be_allowed_cpu
from slacktide.streams.decisions.cpu_suppress_cfs_quota import next_cfs_quota
from slacktide.streams.decisions.node_reserved import node_reserved

VECTORS = Path(__file__).parent.parent / "vectors"


def cases(name: str) -> list:
    lines = (VECTORS / f"{name}.jsonl").read_text().splitlines()
    return [pytest.param(case["input"], case["expected"], id=case["name"]) for case in map(json.loads, lines)]


def _raw_best_effort(pod: dict) -> bool:
    return pod.get("qos_class") == "BE" or pod["kube_qos_class"] == "BestEffort"


@pytest.mark.parametrize(("given", "expected"), cases("cpu_suppress_allowed"))
def test_allowed_cpu_is_the_references(given: dict, expected: dict) -> None:
    reserved = given["reserved"] or {}
    facts = NodeFacts(
        name="n",
        capacity=Resources(cpu_milli=given["node_capacity_cpu_milli"]),
        allocatable=Resources(cpu_milli=given["node_allocatable_cpu_milli"]),
        reserved=Resources(cpu_milli=reserved.get("cpu_milli")),
        reserved_cpus=reserved.get("reserved_cpus") or "",
    )
    pods = [CpuUse(used_cores=pod["cpu_usage_cores"], best_effort=_raw_best_effort(pod)) for pod in given["pods"]]
    pods += [CpuUse(used_cores=pod["cpu_usage_cores"], best_effort=False) for pod in given["pod_metrics_without_pod"]]
    hosts = [
        CpuUse(
            used_cores=app["cpu_usage_cores"],
            best_effort=app.get("qos_class") == "BE" and app["cgroup_base"] == "KubepodsBesteffort",
        )
        for app in given["host_apps"]
    ]

    allowed = be_allowed_cpu(
        capacity_milli=given["node_capacity_cpu_milli"],
        reserved_milli=node_reserved(facts).cpu_milli or 0,
        node_used_cores=given["node_cpu_usage_cores"],
        pods=pods,
        hosts=hosts,
        threshold_pct=given["threshold_percent"],
        min_pct=given["min_percent"],
    )

    assert allowed.allowed_milli == expected["be_allowed_cpu_milli"]


@pytest.mark.parametrize(("given", "expected"), cases("cpu_suppress_cfs_quota"))
def test_next_quota_is_the_references(given: dict, expected: dict) -> None:
    current_us = given["current_be_cfs_quota_us"]

    step = next_cfs_quota(
        allowed_milli=given["be_allowed_cpu_milli"],
        current_us=None if current_us == -1 else current_us,
        capacity_milli=given["node_capacity_cpu_milli"],
    )

    assert step.quota_us == expected["be_cfs_quota_us"]


def _resources(given: dict | None) -> Resources:
    given = given or {}
    return Resources(cpu_milli=given.get("cpu_milli"), mem_bytes=given.get("memory_bytes"))


def _use(given: dict | None) -> Use:
    given = given or {}
    return Use(cpu_milli=given.get("cpu_milli", 0), mem_bytes=given.get("memory_bytes", 0))


def _pod(given: dict) -> Pod:
    return Pod(
        uid=f"{given['namespace']}/{given['name']}",
        namespace=given["namespace"],
        name=given["name"],
        phase=given["phase"],
        qos_label=given.get("qos_class"),
        priority_class_label=given.get("priority_class"),
        priority=given.get("priority"),
        kube_qos=given["kube_qos_class"],
        requests=_resources(given.get("requests")),
    )


_POLICY_FIELDS = {
    "cpu_reclaim_threshold_percent": "cpu_reclaim_threshold_pct",
    "memory_reclaim_threshold_percent": "mem_reclaim_threshold_pct",
    "cpu_calculate_policy": "cpu_calculate_policy",
    "memory_calculate_policy": "mem_calculate_policy",
    "batch_cpu_threshold_percent": "batch_cpu_threshold_pct",
    "batch_memory_threshold_percent": "batch_mem_threshold_pct",
}


def _node_level(case) -> bool:
    """Zones, degradation and per-node overrides come with the whole rule."""
    given, expected = case.values
    overrides = (given["node"].get("annotations") or {}) | (given["node"].get("labels") or {})
    return not expected["degraded"] and not given["node"].get("numa_zones") and not overrides


@pytest.mark.parametrize(("given", "expected"), [case for case in cases("batch_resource") if _node_level(case)])
def test_batch_resource_of_a_node_is_the_references(given: dict, expected: dict) -> None:
    node, metric = given["node"], given["node_metric"]
    reserved = node.get("reserved") or {}
    facts = NodeFacts(
        name=node["name"],
        capacity=_resources(node["capacity"]),
        allocatable=_resources(node["allocatable"]),
        reserved=_resources(reserved.get("resources")),
        reserved_cpus=reserved.get("reserved_cpus") or "",
    )
    metrics = [
        PodMetric(uid=f"{m['namespace']}/{m['name']}", priority_class=m.get("priority_class", ""), use=_use(m["usage"]))
        for m in metric.get("pod_metrics") or []
    ]
    hosts = [
        _use(h["usage"]) for h in metric.get("host_apps") or [] if h["priority_class"] in {"koord-prod", "koord-mid"}
    ]
    strategy = {
        _POLICY_FIELDS[key]: value for key, value in (given.get("strategy") or {}).items() if key in _POLICY_FIELDS
    }

    got = batch_resource(
        facts=facts,
        pods=[_pod(pod) for pod in given["pods"]],
        metrics=metrics,
        system=_use(metric.get("system_usage")),
        colocation=Colocation(**strategy),
        host_use=Use(cpu_milli=sum(h.cpu_milli for h in hosts), mem_bytes=sum(h.mem_bytes for h in hosts)),
    )

    assert (got.cpu_milli, got.mem_bytes) == (expected["batch_cpu_milli"], expected["batch_memory_bytes"])
