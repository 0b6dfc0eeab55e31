"""``slacktide diff``: what the cluster's Nodes have, beside what Slacktide decides."""

from slacktide.deploy.cli.diff import Compared, compared, text_of
from slacktide.schemas.sample import Limits
from slacktide.streams.analysis.explain.node_log import node_log
from testbed.chains import Chain

GIB = 2**30


def test_a_nodes_records_are_paired_with_what_its_status_has() -> None:
    chain = Chain()
    now_ms = chain.run(1, 12)
    log = node_log(chain.node, chain.records)
    [bare, found] = compared({chain.node: (1_000, GIB), "absent": (None, None)}, [log], now_ms)

    assert bare == Compared(
        node="absent",
        cluster_cpu_milli=None,
        batch_cpu_milli=None,
        cluster_mem_bytes=None,
        batch_mem_bytes=None,
        limits=None,
        decided_limits=None,
    )
    assert log.allocatable
    assert (found.cluster_cpu_milli, found.cluster_mem_bytes) == (1_000, GIB)
    assert (found.batch_cpu_milli, found.batch_mem_bytes) == (
        log.allocatable.body.batch_cpu_milli,
        log.allocatable.body.batch_mem_bytes,
    )
    assert found.limits == log.samples[-1].body.limits
    hold = log.commands[-1].body.hold
    assert found.decided_limits == (hold[-1].limits if hold else found.limits)

    [later] = compared({chain.node: (1_000, GIB)}, [log], now_ms + 600_000)
    assert (later.batch_cpu_milli, later.batch_mem_bytes) == (None, None), "its agent is gone"


def test_differences_are_shown_in_percent_and_summed_where_both_have_figures(snapshot) -> None:
    both = Compared(
        node="node-1",
        cluster_cpu_milli=4_000,
        batch_cpu_milli=4_400,
        cluster_mem_bytes=8 * GIB,
        batch_mem_bytes=8 * GIB,
        limits=Limits(be_cfs_quota_us=150_000),
        decided_limits=Limits(be_cfs_quota_us=120_000),
    )
    without_agent = Compared(
        node="node-2",
        cluster_cpu_milli=2_000,
        batch_cpu_milli=None,
        cluster_mem_bytes=GIB,
        batch_mem_bytes=None,
        limits=None,
        decided_limits=None,
    )
    assert text_of([both, without_agent]) == snapshot
