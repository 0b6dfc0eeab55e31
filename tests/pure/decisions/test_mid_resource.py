"""What mid pods may ask for on a node."""

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from slacktide.schemas.policy.strategies import Colocation
from slacktide.streams.decisions.resources.mid_resource import mid_resource
from testbed.node_loads import GIB, load, pods_and_metrics, use, uses


@given(pods_and_metrics(), uses, uses, st.integers(0, 100), st.integers(0, 100))
def test_never_more_than_the_cap_and_never_less_than_nothing(mixed, reclaimable, node_use, part, cap) -> None:
    strategy = Colocation(mid_unallocated_pct=part, mid_cpu_threshold_pct=cap, mid_mem_threshold_pct=cap)
    mid = mid_resource(load(*mixed[0]), strategy, reclaimable=reclaimable, node_use=node_use)

    assert 0 <= mid.cpu_milli <= int(10_000 * (cap / 100))
    assert 0 <= mid.mem_bytes <= int(100 * GIB * (cap / 100))


@given(pods_and_metrics(), st.randoms(use_true_random=False))
def test_the_order_of_pods_does_not_matter(mixed, random) -> None:
    pods, _ = mixed
    strategy = msgspec.structs.replace(Colocation(), mid_unallocated_pct=70)
    one, other = load(*pods), load(*random.sample(pods, len(pods)))

    assert mid_resource(one, strategy, reclaimable=use(500, 5), node_use=use(1, 1)) == mid_resource(
        other, strategy, reclaimable=use(500, 5), node_use=use(1, 1)
    )
