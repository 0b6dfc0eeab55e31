"""The terms of load-aware scheduling that a node's stream says with every report."""

from math import inf
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from slacktide.schemas.inventory import Pod, Resources
from slacktide.schemas.metric import Aggregate, NodeMetric, PodMetric, Use
from slacktide.schemas.policy import policy_of
from slacktide.schemas.policy.strategies import Colocation, ResourceThreshold
from slacktide.schemas.qos import effective_priority_class
from slacktide.schemas.sample import EvictState, Limits, NodeUse
from slacktide.streams.decisions.load.load_aware_estimator import Amounts, LoadAwareArgs, LoadAwarePod, estimate
from slacktide.streams.decisions.load.load_aware_existing import AssignedPod, NodeReport, PodUse, existing_load, is_prod
from slacktide.streams.decisions.load.load_aware_existing import NodeUse as ReportedUse
from slacktide.streams.worker.published import node_score
from testbed.samples import FACTS, GIB, SUPPRESS, sample
from testbed.scenarios import plain, scenarios

from .test_bridge_writing import allocatable
from .test_bridge_writing import metric as any_metric


def metric(pods: list[PodMetric], **changes: Any) -> NodeMetric:
    node, system = Use(cpu_milli=2_000, mem_bytes=4 * GIB), Use(cpu_milli=300, mem_bytes=GIB)
    return any_metric(pods=pods, node_use=node, system_use=system, **changes)


def used(pod: Pod, cpu_milli: int, mem_bytes: int) -> PodMetric:
    use = Use(cpu_milli=cpu_milli, mem_bytes=mem_bytes)
    return PodMetric(uid=pod.uid, priority_class=effective_priority_class(pod), use=use)


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
def test_it_agrees_with_the_load_that_a_scheduler_figures_for_itself(given) -> None:
    """From the same report and pods, none younger than the report: the load of all, and that of production."""
    measured, pods = metric([used(pod, *use) for pod, use in given if use]), [pod for pod, _ in given]
    said = node_score(measured, allocatable(None, None), sample(1), FACTS, pods, SUPPRESS)
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


LINE = policy_of(Colocation(enable=True), ResourceThreshold(enable=True, mem_evict_threshold_pct=70))


@scenarios("scores")
def test_scores(case: dict[str, Any]) -> None:
    """What the sample says beside the usual one, what is published, and terms of the score."""
    kinds = {"limits": Limits, "use": NodeUse, "evict": EvictState}
    said = {name: value and kinds[name](**value) for name, value in case.get("sample", {}).items()}
    published = allocatable(**{"cpu": None, "mem": None} | case.get("allocatable", {}))
    measured = metric([], aggregates=msgspec.convert(case.get("aggregates", []), list[Aggregate]))
    pods = msgspec.convert(case["pods"], list[Pod])
    found = node_score(measured, published, sample(1, **said), FACTS, pods, LINE)

    assert {name: plain(getattr(found, name)) for name in case["gives"]} == case["gives"]
