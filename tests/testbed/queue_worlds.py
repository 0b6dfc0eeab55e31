"""Random trees of quotas, with usage, for laws."""

from hypothesis import strategies as st

from slacktide.streams.decisions.queue.quota_tree import (
    UNLIMITED,
    FlavorResource,
    NodeSpec,
    Quota,
    QuotaTree,
    QuotaUsage,
    quota_tree,
)

CPU = FlavorResource("f0", "cpu")
GPU = FlavorResource("f1", "example.com/gpu")
AMOUNTS = st.integers(0, 20) | st.just(UNLIMITED)
SMALL = st.integers(0, 20)
QUOTAS = st.builds(Quota, AMOUNTS, st.none() | AMOUNTS, st.none() | AMOUNTS)
BOTH = st.fixed_dictionaries({}, optional={CPU: QUOTAS, GPU: QUOTAS})
WEIGHTS = st.sampled_from([0.0, 0.5, 1.0, 3.0])


@st.composite
def trees(draw: st.DrawFn) -> QuotaTree:
    """Up to five cohorts, each below one before it, and up to five ClusterQueues."""
    cohorts = [
        NodeSpec(f"c{at}", draw(st.sampled_from([None, *(f"c{before}" for before in range(at))])), draw(BOTH))
        for at in range(draw(st.integers(0, 5)))
    ]
    places = [None, *(one.name for one in cohorts)]
    queues = [
        NodeSpec(f"q{at}", draw(st.sampled_from(places)), draw(BOTH), draw(WEIGHTS))
        for at in range(draw(st.integers(1, 5)))
    ]
    return quota_tree(queues, cohorts)


@st.composite
def worlds(draw: st.DrawFn) -> tuple[QuotaTree, QuotaUsage]:
    """A tree in which some is used, at times more than there is."""
    tree, usage = draw(trees()), QuotaUsage()
    for node in tree.queues.values():
        for of in (CPU, GPU):
            usage.book(node, of, draw(SMALL))
    return tree, usage
