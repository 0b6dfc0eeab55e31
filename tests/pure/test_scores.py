"""The terms of load-aware scheduling that a node's stream says with every report."""

from __future__ import annotations

from math import inf
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slacktide.schemas.allocatable import NodeAllocatable
from slacktide.schemas.inventory import NodeFacts, Pod, Resources
from slacktide.schemas.metric import Aggregate, NodeMetric, PodMetric, Spread, Use
from slacktide.schemas.policy import policy_of
from slacktide.schemas.policy.strategies import Colocation, ResourceThreshold
from slacktide.schemas.qos import effective_priority_class
from slacktide.schemas.sample import EvictState, Limits, NodeSample, NodeUse
from slacktide.schemas.score import NodeScore, Statistic
from slacktide.streams.decisions.load.load_aware_estimator import Amounts, LoadAwareArgs, LoadAwarePod, estimate
from slacktide.streams.decisions.load.load_aware_existing import AssignedPod, NodeReport, PodUse, existing_load, is_prod
from slacktide.streams.decisions.load.load_aware_existing import NodeUse as ReportedUse
from slacktide.streams.worker.scores import node_score
from testbed.samples import FACTS, GIB, SUPPRESS, sample

WEB = Pod(uid="web", namespace="n", name="web", priority=9_000, kube_qos="Burstable")
ENCODE = Pod(
    uid="encode",
    namespace="n",
    name="encode",
    priority=5_000,
    qos_label="BE",
    requests=Resources(batch_cpu_milli=1_500, batch_mem_bytes=GIB),
)


def metric(pods: list[PodMetric], **changes: Any) -> NodeMetric:
    fields: dict[str, Any] = {
        "node": "node-1",
        "boot_id": "b",
        "seq": 1,
        "observed_ms": 1,
        "window_ms": 300_000,
        "covered_ms": 10_000,
        "samples": 10,
        "policy_version": "p",
        "facts_revision": "f",
        "pods_revision": "r",
        "node_use": Use(cpu_milli=2_000, mem_bytes=4 * GIB),
        "system_use": Use(cpu_milli=300, mem_bytes=GIB),
        "pods": pods,
    }
    return NodeMetric(**(fields | changes))


def used(pod: Pod, cpu_milli: int, mem_bytes: int) -> PodMetric:
    use = Use(cpu_milli=cpu_milli, mem_bytes=mem_bytes)
    return PodMetric(uid=pod.uid, priority_class=effective_priority_class(pod), use=use)


def allocatable(batch_cpu_milli: int | None, batch_mem_bytes: int | None, **changes: Any) -> NodeAllocatable:
    return NodeAllocatable(
        node="node-1",
        boot_id="b",
        seq=1,
        observed_ms=1,
        policy_version="p",
        facts_revision="f",
        pods_revision="r",
        window_ms=300_000,
        covered_ms=10_000,
        batch_cpu_milli=batch_cpu_milli,
        batch_mem_bytes=batch_mem_bytes,
        **changes,
    )


def score(
    pods: list[Pod],
    measured: list[PodMetric],
    *,
    published: NodeAllocatable | None = None,
    said: NodeSample | None = None,
    facts: NodeFacts = FACTS,
) -> NodeScore:
    return node_score(metric(measured), published or allocatable(None, None), said or sample(1), facts, pods, SUPPRESS)


PODS = st.lists(
    st.tuples(
        st.builds(
            Pod,
            uid=st.sampled_from("abcdef"),
            namespace=st.just("n"),
            name=st.just("x"),
            phase=st.sampled_from(["Running", "Pending", "Succeeded", "Unknown"]),
            priority=st.sampled_from([None, 9_000, 7_000, 5_000, 3_000]),
            kube_qos=st.sampled_from(["Guaranteed", "Burstable", "BestEffort"]),
            requests=st.builds(
                Resources,
                cpu_milli=st.integers(0, 4_000),
                mem_bytes=st.integers(0, 4 * GIB),
                batch_cpu_milli=st.integers(0, 4_000),
                batch_mem_bytes=st.integers(0, 4 * GIB),
            ),
        ),
        st.none() | st.tuples(st.integers(0, 4_000), st.integers(0, 4 * GIB)),
    ),
    unique_by=lambda one: one[0].uid,
    max_size=6,
)


@given(given=PODS)
def test_it_agrees_with_the_load_that_a_scheduler_figures_for_itself(
    given: list[tuple[Pod, tuple[int, int] | None]],
) -> None:
    """From the same report and pods, none younger than the report: the load of all, and that of production."""
    said = score([pod for pod, _ in given], [used(pod, *use) for pod, use in given if use])
    asked = [LoadAwarePod(pod=msgspec.structs.replace(pod, name=pod.uid)) for pod, _ in given]
    own = existing_load(
        NodeReport(
            updated_s=1,
            node=ReportedUse(use=Amounts(2_000, 4 * GIB)),
            pods={
                ("n", pod.uid): PodUse(Amounts(*use), effective_priority_class(pod) == "koord-prod")
                for pod, use in given
                if use
            },
        ),
        [AssignedPod(asked=one, prod=is_prod(one), estimate=estimate(one, LoadAwareArgs()).amounts,
                     scheduled_s=-inf, deadline_s=-inf) for one in asked],
        prod_include_system=False,
    )  # fmt: skip

    assert plus(said.use, said.expected_more) == own.everyone
    assert plus(said.prod_use, said.prod_expected_more) == own.prod


def plus(one: Use, other: Use) -> Amounts:
    return Amounts(one.cpu_milli + other.cpu_milli, one.mem_bytes + other.mem_bytes)


@pytest.mark.parametrize(
    ("published", "left"),
    [
        pytest.param(allocatable(2_000, 4 * GIB), (500, 3 * GIB), id="what is published less what is asked for"),
        pytest.param(allocatable(1_000, GIB), (0, 0), id="never less than nothing"),
        pytest.param(allocatable(None, None), (0, 0), id="nothing where none is published"),
    ],
)
def test_batch_resource_is_left_that_no_pod_there_asked_for(published: NodeAllocatable, left: tuple[int, int]) -> None:
    done = msgspec.structs.replace(ENCODE, uid="done", phase="Succeeded")
    said = score([WEB, ENCODE, done], [], published=published)

    assert (said.batch_left.cpu_milli, said.batch_left.mem_bytes) == left


def test_mid_resource_is_left_likewise() -> None:
    mid = Pod(
        uid="m", namespace="n", name="m", priority=7_000, requests=Resources(mid_cpu_milli=100, mid_mem_bytes=GIB)
    )
    said = score([mid], [], published=allocatable(None, None, mid_cpu_milli=300, mid_mem_bytes=GIB))

    assert (said.mid_left.cpu_milli, said.mid_left.mem_bytes) == (200, 0)


def test_percentiles_are_those_of_the_node_in_the_metric() -> None:
    cpu, mem = Spread(avg=1, p50=2, p90=3, p95=4, p99=5), Spread(avg=6, p50=7, p90=8, p95=9, p99=10)
    other = Spread(avg=0, p50=0, p90=0, p95=0, p99=0)
    aggregate = Aggregate(
        window_ms=300_000,
        covered_ms=9_000,
        node_cpu_milli=cpu,
        node_mem_bytes=mem,
        system_cpu_milli=other,
        system_mem_bytes=other,
    )
    said = node_score(metric([], aggregates=[aggregate]), allocatable(None, None), sample(1), FACTS, [], SUPPRESS)

    assert said.statistics == [Statistic(window_ms=300_000, covered_ms=9_000, cpu_milli=cpu, mem_bytes=mem)]


LINE = policy_of(Colocation(enable=True), ResourceThreshold(enable=True, mem_evict_threshold_pct=70))


@pytest.mark.parametrize(
    ("changes", "pressure"),
    [
        pytest.param({"limits": None}, [], id="no limit is known"),
        pytest.param({"limits": Limits(be_cfs_quota_us=None)}, [], id="unlimited"),
        pytest.param({"limits": Limits(be_cfs_quota_us=150_000)}, [], id="just what batch pods asked for"),
        pytest.param({"limits": Limits(be_cfs_quota_us=149_000)}, ["cpu_suppressed"], id="less than they asked for"),
        pytest.param(
            {"limits": Limits(be_cfs_quota_us=None, be_cpuset=[0])}, ["cpu_suppressed"], id="fewer CPUs than that"
        ),
        pytest.param({"limits": Limits(be_cfs_quota_us=1, be_cfs_period_us=0)}, [], id="a period that cannot be"),
        pytest.param(
            {"limits": None, "use": NodeUse(cpu_milli=0, mem_bytes=16 * GIB * 70 // 100 + 1)},
            ["mem_over_line"],
            id="memory at the line",
        ),
        pytest.param({"limits": None, "evict": EvictState(dying=["encode"])}, ["evicting"], id="somebody is leaving"),
    ],
)
def test_why_best_effort_pods_are_held_back_or_leave(changes: dict[str, Any], pressure: list[str]) -> None:
    said = node_score(metric([]), allocatable(None, None), sample(1, **changes), FACTS, [ENCODE], LINE)

    assert said.pressure == pressure
