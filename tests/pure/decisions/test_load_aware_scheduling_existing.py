"""The load that a node already has before a pod comes."""

import random

from hypothesis import given
from hypothesis import strategies as st

from slacktide.streams.decisions.load.load_aware_estimator import Aggregation, Amounts, LoadAwareArgs, LoadAwarePod
from slacktide.streams.decisions.load.load_aware_existing import NodeReport, existing_load
from testbed.load_aware_cases import all_args, asked, assigned, load, pods, pods_there, report, reports


def test_a_load_is_seen_by_the_name_of_a_view() -> None:
    found = load(report((1000, 1000), {"a": (40, 4)}), asked((100, 10)), asked((5, 5), name="b", of_class="koord-mid"))

    assert (found.seen("node"), found.seen("prod")) == ((1065, 1011), (100, 10))
    assert load(report(None), asked((100, 10))).seen(Aggregation("p95")) == (100, 10), "without use: all estimates"


@given(reported=reports, found=pods_there, args=all_args, seed=st.integers(0, 2**16))
def test_the_order_of_pods_and_of_metrics_does_not_matter(
    reported: NodeReport, found: tuple[LoadAwarePod, ...], args: LoadAwareArgs, seed: int
) -> None:
    shuffle = random.Random(seed).sample
    other = NodeReport(
        updated_s=reported.updated_s,
        interval_s=reported.interval_s,
        node=reported.node,
        pods=dict(shuffle(list(reported.pods.items()), len(reported.pods))),
    )
    system = args.prod_include_system
    one = existing_load(reported, assigned(found, args), prod_include_system=system)
    two = existing_load(other, assigned(tuple(shuffle(found, len(found))), args), prod_include_system=system)

    assert one.because == two.because
    assert (one.everyone, one.prod, one.node_delta, one.node_full) == (
        two.everyone,
        two.prod,
        two.node_delta,
        two.node_full,
    )


@given(reported=reports, found=pods_there, one_more=pods("e"), args=all_args)
def test_one_more_pod_never_lowers_a_load(
    reported: NodeReport, found: tuple[LoadAwarePod, ...], one_more: LoadAwarePod, args: LoadAwareArgs
) -> None:
    before = load(reported, *found, args=args)
    after = load(reported, *found, one_more, args=args)
    views = ["node", "prod", Aggregation("p95", 300), Aggregation("p50", 0)]

    for view in views:
        assert all(more >= less for more, less in zip(after.seen(view), before.seen(view), strict=True))
    assert after.node_full >= Amounts()


@given(reported=reports, found=pods_there, args=all_args)
def test_the_terms_add_up_to_the_result(
    reported: NodeReport, found: tuple[LoadAwarePod, ...], args: LoadAwareArgs
) -> None:
    existing = load(reported, *found, args=args)
    results = []
    for because in existing.because:
        *parts, result = because.terms.values()
        assert sum(parts) == result
        results.append(result)

    assert results == [*existing.everyone, *existing.prod]
