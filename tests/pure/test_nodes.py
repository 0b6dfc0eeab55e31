"""All nodes at a glance: what is wrong with each, and in which order they come."""

from typing import Any

from msgspec.structs import replace

from slacktide.deploy.cli.nodes import text_of
from slacktide.schemas.codec import decode
from slacktide.schemas.metric import NodeMetric
from slacktide.schemas.sample import Limits
from slacktide.schemas.topics import METRIC
from slacktide.streams.analysis.explain.node import NodeRow, Sort, in_order, node_row
from slacktide.streams.analysis.explain.node_log import node_log
from slacktide.streams.records import Record
from testbed.chains import Chain, logged, outcome, outcome_record
from testbed.vectors import each_row

HELD = Limits(be_cfs_quota_us=150_000)


def row_of(chain: Chain, now_ms: int, *more: Record) -> NodeRow:
    return node_row(node_log(chain.node, [*chain.records, *more]), now_ms)


def row(name: str, **fields: Any) -> NodeRow:
    return NodeRow(**{"node": name, "severity": "ok", "fact": "", "why": "", "age_ms": 1_000} | fields)


def ran(**fields: Any) -> tuple[NodeRow, Chain]:
    """A node that has just reported this outcome."""
    chain = Chain()
    now_ms = chain.run(1, 12)
    return row_of(chain, now_ms, outcome_record(outcome(12, after=HELD, **fields))), chain


def test_a_row_has_what_the_log_has_of_the_node() -> None:
    found, chain = ran()

    assert (found.node, found.limits) == (chain.node, HELD)
    assert (found.capacity_cpu_milli, found.capacity_mem_bytes) == (
        chain.facts.capacity.cpu_milli,
        chain.facts.capacity.mem_bytes,
    )
    assert found.used_cpu_milli
    assert found.used_mem_bytes


@each_row("fields")
def test_what_is_wrong_is_said_in_its_row(fields: dict[str, Any], snapshot) -> None:
    found, _ = ran(**fields)
    assert f"{found.severity}: {found.why}" == snapshot


def test_a_refused_answer_is_no_limit() -> None:
    chain = Chain()
    now_ms = chain.run(1, 12)
    kept = outcome_record(outcome(11, after=HELD))
    found = row_of(chain, now_ms, kept, outcome_record(outcome(12, result="refused", reason="superseded")))

    assert found.limits == HELD


def test_a_silent_node_one_without_a_worker_and_one_without_an_agent_are_problems(snapshot) -> None:
    chain = Chain()
    now_ms = chain.run(1, 12)
    metric = [decode(one.value, NodeMetric) for one in chain.records if one.topic == METRIC.name][-1]
    stale = logged(replace(metric, seq=99, stale_ms=30_000), METRIC, key=chain.node, offset=99, at_ms=now_ms)

    silent, unread = row_of(chain, now_ms, stale), row_of(chain, now_ms + 600_000)
    assert "\n".join(f"{one.severity}: {one.why}" for one in (silent, unread, row_of(Chain(), now_ms))) == snapshot


@each_row("by", "order")
def test_rows_come_in_the_order_that_is_asked_for(by: Sort, order: str) -> None:
    rows = [
        row("a", used_cpu_milli=500, capacity_cpu_milli=1_000, batch_cpu_milli=100, batch_free_cpu_milli=90),
        row("b", severity="warning", used_cpu_milli=800, capacity_cpu_milli=8_000, batch_cpu_milli=900),
        row("c", severity="note", used_cpu_milli=900, capacity_cpu_milli=1_000, age_ms=2_000),
        row("d", severity="problem", age_ms=None),
    ]

    assert "".join(one.node for one in in_order(rows, by)) == order


def test_the_table_names_each_node_and_sums_up_all(snapshot) -> None:
    """What a record says cannot steer the terminal."""
    rows = [
        row("alpha", used_cpu_milli=1_500, capacity_cpu_milli=4_000, batch_cpu_milli=2_000, limits=HELD),
        row("beta", severity="problem", fact="agent.silent", why="silent \x1b[2J; more", age_ms=None),
    ]
    assert text_of(rows, rows, wide=True).rpartition("; ")[0] == snapshot, "but the time of day"
