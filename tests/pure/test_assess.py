"""Assessing a cluster: the arrays repeat the product's rule, and the page holds what it was given."""

from xml.etree import ElementTree as ET

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slacktide.deploy.cli.assess import report
from slacktide.schemas.policy import DEFAULT
from slacktide.schemas.policy.strategies import CalculatePolicy
from slacktide.streams.analysis.assess.assessment import assess
from slacktide.streams.analysis.assess.usage import Amounts, Matrix, Terms, Usage, future_max, offered, past_max, spread
from slacktide.streams.decisions.resources.batch_resource import Capacity, Sums, available

GIB = 1 << 30
AMOUNT = st.integers(0, 2**45)
PERCENT = st.integers(0, 150)
NAN = float("nan")


def one(value: float) -> Matrix:
    return np.array([[float(value)]])


def amounts(capacity: Matrix, pods_used: Matrix, **others: Matrix) -> Amounts:
    empty = np.full(capacity.shape, NAN)
    parts = {
        "reserved": np.zeros(capacity.shape),
        "node_used": pods_used,
        "low_used": np.zeros(capacity.shape),
        "exclusive_idle": np.zeros(capacity.shape),
        "requested": empty,
        "max_used_request": empty,
    }
    return Amounts(capacity=capacity, pods_used=pods_used, **(parts | others))


@given(
    figures=st.tuples(*[AMOUNT] * 6),
    reclaim_pct=PERCENT,
    cap_pct=st.none() | PERCENT,
    policy=st.sampled_from(["usage", "request", "maxUsageRequest"]),
)
def test_arrays_sell_what_the_rule_sells(
    figures: tuple[int, ...], reclaim_pct: int, cap_pct: int | None, policy: CalculatePolicy
) -> None:
    capacity, system, reserved, request, used, larger = figures
    rule = available(
        of="batch_memory_bytes",
        unit="bytes",
        capacity=Capacity(capacity, reclaim_pct, cap_pct),
        system=system,
        reserved=reserved,
        sums=Sums(request=request, used=used, max_used_request=larger),
        policy=policy,
    )
    given_amounts = amounts(
        one(capacity),
        one(used),
        reserved=one(reserved),
        node_used=one(used + system),
        requested=one(request),
        max_used_request=one(larger),
    )

    found = offered(given_amounts, Terms(reclaim_pct=reclaim_pct, cap_pct=cap_pct, policy=policy))

    assert int(found[0, 0]) == min(rule.terms["batch_bytes"], capacity)


@given(st.lists(st.integers(0, 99), min_size=1, max_size=40), st.integers(0, 50))
def test_a_maximum_reaches_as_far_as_it_states(values: list[int], steps: int) -> None:
    row = np.array([values], dtype=np.float64)

    assert future_max(row, steps)[0].tolist() == [max(values[at : at + steps + 1]) for at in range(len(values))]
    assert past_max(row, steps)[0].tolist() == [max(values[max(0, at - steps) : at + 1]) for at in range(len(values))]


def test_equal_days_have_no_spread_and_unequal_days_have_one() -> None:
    day = np.arange(24, dtype=np.float64)

    assert spread(np.tile(day, 5), 3600, (0.5,)) == [0.0]
    assert spread(np.concatenate([day + shift for shift in (0, 20, 40, 60, 80)]), 3600, (0.5,))[0] > 10


def cluster(node: str = "a", pool: str = "web") -> Usage:
    """Two nodes for four days by the hour; the first needs much memory at noon."""
    shape = (2, 96)
    mem = np.full(shape, 10.0 * GIB)
    mem[0, 12::24] = 40 * GIB
    return Usage(
        nodes=[node, "b"],
        pools={node: pool},
        start_s=0,
        step_s=3600,
        cpu=amounts(np.full(shape, 10_000.0), np.full(shape, 1_000.0)),
        mem=amounts(np.full(shape, 64.0 * GIB), mem),
        implausible=0,
    )


def test_a_surge_of_memory_is_found_on_its_node_at_its_hour() -> None:
    found = assess(cluster(), DEFAULT, horizon_s=24 * 3600)

    assert [(hot.node, hot.evicting_hours, hot.hours_of_day) for hot in found.hot_nodes] == [("a", 4.0, [12])]
    assert found.evicting_by_hour == [4.0 if hour == 12 else 0.0 for hour in range(24)]
    assert [(pool.name, pool.nodes) for pool in found.pools] == [("(none)", 1), ("web", 1)]


def test_the_oracle_sells_all_that_no_peak_to_come_needs() -> None:
    found = assess(cluster(), DEFAULT, horizon_s=24 * 3600).cluster

    assert (found.cpu.p50, found.cpu.oracle_p50) == (10.0, 18.0)
    assert found.cpu.oracle_share == pytest.approx(10 / 18)
    assert (found.memory.oracle_p50, found.cpu.oversold_share) == (64 - 40 + 64 - 10, 0.0)


def test_steps_with_too_few_nodes_are_left_out_and_counted() -> None:
    usage = cluster()
    usage.cpu.pods_used[1, :24] = NAN
    found = assess(usage, DEFAULT, horizon_s=3600)

    assert found.cluster.cpu.p95 == 10.0
    assert found.covered_share == 1 - 24 / 192
    assert found.findings[0].startswith("12.5% of node steps are gaps.")


def test_a_page_escapes_names_and_loads_nothing() -> None:
    found = assess(cluster(node="<script>alert(1)</script>", pool='"><img src=x>'), DEFAULT, horizon_s=3600)
    made = report.page(found)

    assert "<script" not in made
    assert "<img" not in made
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in made
    assert "default-src 'none'" in made
    assert not [
        part
        for part in ("http://", "https://", "url(", " src=")
        if part in made.replace("&quot;&gt;&lt;img src=x&gt;", "")
    ]
    pictures = made.split("<svg")[1:]
    assert len(pictures) == 3
    assert all(ET.fromstring("<svg" + picture.split("</svg>")[0] + "</svg>") for picture in pictures)


def test_json_has_no_figure_that_is_no_number() -> None:
    usage = cluster()
    usage.cpu.pods_used[:] = NAN

    found = msgspec.json.decode(msgspec.json.encode(assess(usage, DEFAULT, horizon_s=3600)))

    assert found["cluster"]["cpu"]["p50"] is None
