"""What batch pods may ask for on a node."""

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from slacktide.schemas.inventory import Resources
from slacktide.schemas.policy.strategies import Colocation
from slacktide.streams.decisions.resources.batch_resource import batch_resource
from slacktide.streams.decisions.resources.node_load import NodeLoad
from testbed.node_loads import GIB, load, pod, pods_and_metrics, used, uses

PLAIN = Colocation(cpu_reclaim_threshold_pct=100, mem_reclaim_threshold_pct=100)


def figured(node: NodeLoad, **strategy) -> tuple[int, float]:
    """Millicores and GiB."""
    batch = batch_resource(node, msgspec.structs.replace(PLAIN, **strategy))
    return batch.cpu_milli, batch.mem_bytes / GIB


@given(pods_and_metrics(), uses, st.integers(0, 100), st.integers(0, 5_000))
def test_never_more_than_use_and_margin_leave(mixed: tuple, system, reclaim_pct: int, reserved: int) -> None:
    """Under the usage policy, published <= max(0, capacity - margin - max(system, reserved) - LS used)."""
    pods, metrics = mixed
    node = load(*pods, metrics=metrics, system=system, reserved=Resources(cpu_milli=reserved))
    strategy = Colocation(cpu_reclaim_threshold_pct=reclaim_pct)
    measured = {metric.uid: metric.use.cpu_milli for metric in metrics}
    ls_used = sum(measured.get(one.uid, 0) for one in pods if one.qos_label not in {"BE", "LSE"} and _live(one))
    margin = int(10_000 * ((100 - reclaim_pct) / 100))

    assert batch_resource(node, strategy).cpu_milli <= max(
        0, 10_000 - margin - max(system.cpu_milli, reserved) - ls_used
    )


def _live(one) -> bool:
    return one.phase in {"Running", "Pending"}


@given(pods_and_metrics(), st.integers(0, 5_000), st.sampled_from(["usage", "maxUsageRequest"]))
def test_more_latency_sensitive_use_never_gives_more(mixed: tuple, more_milli: int, policy: str) -> None:
    pods, metrics = mixed
    calm = load(pod("ls", 1_000), *pods, metrics=[*metrics, used("ls", 500)])
    busy = load(pod("ls", 1_000), *pods, metrics=[*metrics, used("ls", 500 + more_milli)])

    assert figured(busy, cpu_calculate_policy=policy)[0] <= figured(calm, cpu_calculate_policy=policy)[0]


@given(pods_and_metrics(), st.randoms(use_true_random=False))
def test_the_order_of_pods_and_metrics_does_not_matter(mixed: tuple, random) -> None:
    pods, metrics = mixed
    shuffled = random.sample(pods, len(pods)), random.sample(metrics, len(metrics))

    assert batch_resource(load(*shuffled[0], metrics=shuffled[1]), PLAIN) == batch_resource(
        load(*pods, metrics=metrics), PLAIN
    )
