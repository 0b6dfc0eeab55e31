"""Whether a node has CPU to lend to throttled containers."""

from hypothesis import given
from hypothesis import strategies as st

from slacktide.streams.decisions.burst.cpu_burst_quota import SharePool, SharePoolPod, share_pool
from testbed.cpu_cases import labels


def pool(used_cores: float | None, *pods: SharePoolPod, node_cpus: int = 10, threshold_pct: int = 50) -> SharePool:
    return share_pool(node_cpus=node_cpus, node_used_cores=used_cores, pods=pods, threshold_pct=threshold_pct)


WORSE = {"idle": 0, "cooling": 1, "overload": 2}
pods = st.lists(
    st.builds(
        SharePoolPod, qos_label=labels, request_milli=st.integers(0, 9_000), used_cores=st.none() | st.floats(0, 32)
    ),
    max_size=6,
)


@given(st.floats(0, 64), st.floats(0, 64), pods, st.integers(0, 100))
def test_more_use_never_makes_a_node_idler(
    used_cores: float, more: float, running: list[SharePoolPod], threshold_pct: int
) -> None:
    calm = pool(used_cores, *running, threshold_pct=threshold_pct)
    busy = pool(used_cores + more, *running, threshold_pct=threshold_pct)

    assert WORSE[busy.state] >= WORSE[calm.state]


@given(st.floats(0, 64), pods, st.integers(0, 100), st.integers(0, 100))
def test_a_higher_threshold_never_makes_a_node_busier(
    used_cores: float, running: list[SharePoolPod], threshold_pct: int, more_pct: int
) -> None:
    strict = pool(used_cores, *running, threshold_pct=threshold_pct)
    lax = pool(used_cores, *running, threshold_pct=threshold_pct + more_pct)

    assert WORSE[lax.state] <= WORSE[strict.state]


@given(st.floats(0, 64), pods, st.randoms(use_true_random=False))
def test_the_order_of_pods_does_not_matter(used_cores: float, running: list[SharePoolPod], random) -> None:
    assert pool(used_cores, *random.sample(running, len(running))) == pool(used_cores, *running)
