"""The bench's agents: how many join, when they are steady, what a node costs in all."""

import pytest
from bench.agents import Stretch, brokers_per_agent_pct, joining, per_node, rows
from hypothesis import given
from hypothesis import strategies as st

from testbed.vectors import each_row


def stretch(agents: int, brokers_pct: float, *, in_time: float = 1.0, pace: float = 1.0) -> Stretch:
    return Stretch(
        agents=agents,
        others=900,
        seconds=10.0,
        brokers_pct=brokers_pct,
        worker_pct=50.0,
        connections=8 * agents,
        taken_per_s=pace * agents,
        in_time_per_s=in_time * agents,
        requests_per_s={"Fetch": 12.0 * agents, "Produce": 1.0 * agents},
    )


@given(st.integers(1, 5_000), st.integers(1, 100))
def test_agents_join_until_all_are_there_and_never_more(wanted: int, shift: int) -> None:
    there, turns = 0, 0
    while there < wanted:
        more = joining(there, wanted, shift)
        assert more >= 1
        there, turns = there + more, turns + 1

    assert there == wanted
    assert turns <= wanted / shift + 1


@each_row("in_time", "pace", "steady")
def test_steady_is_who_keeps_pace_and_is_answered_in_time(in_time: float, pace: float, *, steady: bool) -> None:
    assert stretch(100, 80.0, in_time=in_time, pace=pace).steady is steady


def test_a_node_pays_for_its_agent_and_for_its_part_of_what_all_share() -> None:
    alone, full = stretch(0, 20.0), stretch(100, 70.0)
    its = per_node(alone, full, agent_pct=2.0)

    assert brokers_per_agent_pct(alone, full) == pytest.approx(0.5)
    assert its.worker == pytest.approx(50.0 / 1_000)
    assert its.broker == pytest.approx(0.5 + 20.0 / 1_000)
    assert its.sum == pytest.approx(2.57)


def test_rows_name_the_size_at_which_they_were_measured_and_what_was_not_steady() -> None:
    alone, full = stretch(0, 20.0), stretch(100, 70.0, in_time=0.5)
    found = rows(2_000, [full], alone, full, 2.0)

    assert all("100 of 2,000 agents" in row.figure for row in found)
    assert "100 NOT steady" in found[1].measured
    assert "NOT steady" in found[-1].measured
    assert "13,000" in found[3].measured
    assert found[2].values["per_1000"] == pytest.approx(8_000)
