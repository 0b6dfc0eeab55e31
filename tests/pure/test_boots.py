"""Which agent of a node is believed, by the append times of its samples."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slacktide.schemas.boot import AHEAD_S, boot_problem
from slacktide.streams.worker.boots import BOOTS_MAX, GRACE_MS, SILENT_MS, Boots

LOW, MIDDLE, HIGH = (f"{number:012d}-0badcafe" for number in (1_700_000_001, 1_700_000_002, 1_700_086_000))
T0 = 1_700_000_100_000


def seen(boots: Boots, *samples: tuple[str, int]) -> list[str]:
    """Samples by boot and seconds after the beginning."""
    return [boots.see(boot_id, T0 + round(at_s * 1_000)) for boot_id, at_s in samples]


@pytest.mark.parametrize("boot_id", ["000000000001-00000000", "001700000000-699ba214", f"{T0 // 1_000:012d}-ffffffff"])
def test_what_an_agent_makes_is_a_boot_id(boot_id: str) -> None:
    assert boot_problem(boot_id, T0) == ""


@pytest.mark.parametrize(
    "boot_id",
    ["", "b", "999999999999-x", "1-00000000", "000000000001-0000000", "000000000001-0000000A", "000000000001_00000000",
     "000000000001-00000000\n", "\u0660" * 12 + "-00000000", "0000000000010-0000000"],
)  # fmt: skip
def test_anything_else_is_not(boot_id: str) -> None:
    assert "is not 12 digits, a dash and 8 hexadecimal digits" in boot_problem(boot_id, T0)


def test_a_start_counter_is_at_most_a_day_ahead_of_kafkas_clock() -> None:
    """Where the counter is lost the start time in seconds stands in."""
    latest = T0 // 1_000 + AHEAD_S

    assert boot_problem(f"{latest:012d}-00000000", T0) == ""
    assert f"above {latest}" in boot_problem(f"{latest + 1:012d}-00000000", T0)
    assert boot_problem("999999999999-00000000", T0)


def test_a_restart_is_believed_at_once_and_what_was_in_flight_alarms_nobody() -> None:
    boots = Boots()

    assert seen(boots, (LOW, 0), (LOW, 1), (MIDDLE, 1.5)) == ["believed"] * 3
    assert seen(boots, (LOW, 1.6), (LOW, 3.5), (MIDDLE, 2.5), (MIDDLE, 60)) == [
        "older",
        "older",
        "believed",
        "believed",
    ]
    assert not boots.two


def test_a_batch_that_was_stuck_in_the_dead_agents_socket_alarms_nobody() -> None:
    """Its packets are sent again for minutes after the process died; what they hold is appended at once."""
    boots = Boots()
    seen(boots, (LOW, 0), (MIDDLE, 10))

    assert seen(boots, *[(LOW, 20 + n / 100) for n in range(100)], (MIDDLE, 21.5)) == ["older"] * 100 + ["believed"]
    assert not boots.two


def test_samples_that_are_read_again_alarm_nobody() -> None:
    boots = Boots()
    samples = [*((LOW, n) for n in range(30)), *((MIDDLE, 31 + n) for n in range(30))]
    seen(boots, *samples)

    assert set(seen(boots, *samples)) == {"older", "believed"}
    assert (boots.two, boots.believed) == (False, MIDDLE)


def test_two_agents_are_told_within_seconds_and_neither_is_believed() -> None:
    boots = Boots()
    seen(boots, (LOW, 0))
    told = seen(boots, *[(boot_id, 1 + n / 2) for n in range(10) for boot_id in [(HIGH, LOW)[n % 2]]])

    assert told[:4] == ["believed", "older", "believed", "older"]
    assert told[-2:] == ["two boots"] * 2
    assert boots.reason.startswith(f"two boots: {LOW} and {HIGH} send samples of this node")


@pytest.mark.parametrize(("goes", "stays"), [(LOW, HIGH), (HIGH, LOW)])
def test_the_one_that_sends_on_is_believed_after_15_s_even_if_its_boot_is_the_lower(goes: str, stays: str) -> None:
    boots = Boots()
    seen(boots, *[(boot_id, n) for n in range(10) for boot_id in (HIGH, LOW)])
    assert boots.two
    last_s = 10
    seen(boots, (goes, last_s))
    told = seen(boots, *[(stays, last_s + n) for n in range(1, 20)])

    assert told == ["two boots"] * (SILENT_MS // 1_000 - 1) + ["believed"] * 5
    assert (boots.believed, boots.two) == (stays, False)


def test_an_invented_high_boot_does_not_lock_the_agent_out() -> None:
    """One forged sample: the real agent is believed again soon after 15 s, restarted or not."""
    boots = Boots()
    seen(boots, (LOW, 0), (HIGH, 1))
    told = seen(boots, *[(LOW, 2 + n) for n in range(10)], *[(MIDDLE, 13 + n) for n in range(8)])

    assert told[0] == "older"
    assert told[4] == "two boots"
    assert told[-1] == "believed"
    assert boots.believed == MIDDLE
    assert seen(boots, (HIGH, 1)) == ["older"], "the forged sample read again changes nothing"


def test_ever_higher_boots_hide_nobody() -> None:
    """Each looks like a restart; the agent that sends on shows that it is none."""
    boots = Boots()
    seen(boots, (LOW, 0))
    higher = [f"{1_700_050_000 + n:012d}-00000000" for n in range(20)]
    told = seen(boots, *[one for n in range(20) for one in ((higher[n], n + 1), (LOW, n + 1.5))])

    assert told[-2:] == ["two boots"] * 2


def test_what_the_last_owner_believed_is_where_one_begins() -> None:
    boots = Boots()
    boots.adopt(HIGH)

    assert seen(boots, (LOW, 0), (HIGH, 1), (LOW, 1.5)) == ["believed", "believed", "older"]


def test_samples_held_back_in_an_outage_are_no_second_agent() -> None:
    boots = Boots()
    seen(boots, (MIDDLE, 0))

    assert {boots.see_late(LOW, T0 + n * 1_000) for n in range(20)} == {"older"}
    assert seen(boots, (MIDDLE, 20)) == ["believed"]


SAMPLES = st.lists(st.tuples(st.sampled_from([LOW, MIDDLE, HIGH]), st.integers(0, 20_000)), max_size=60)


@given(SAMPLES)
def test_whoever_sends_alone_is_believed_in_the_end(gaps: list[tuple[str, int]]) -> None:
    """Whatever came before, in whatever order: 15 s of one boot alone, and it is believed, nobody else is."""
    boots, at_ms = Boots(), T0
    for boot_id, gap_ms in gaps:
        at_ms += gap_ms
        boots.see(boot_id, at_ms)
    told = [boots.see(LOW, at_ms + n * 1_000) for n in range(1, 18)]

    assert (told[-1], boots.believed, boots.two) == ("believed", LOW, False)


@given(SAMPLES)
def test_a_higher_boot_is_believed_at_once_unless_two_send(gaps: list[tuple[str, int]]) -> None:
    boots, at_ms = Boots(), T0
    for boot_id, gap_ms in gaps:
        at_ms += gap_ms
        before, beaten = boots.believed, boots._beaten[0]
        told = boots.see(boot_id, at_ms)
        if boot_id > before and boot_id != beaten:
            assert told in {"believed", "two boots"}
            assert boots.believed == boot_id


@given(st.lists(st.integers(1, 5_000), min_size=1, max_size=20))
def test_restarts_never_alarm(gaps: list[int]) -> None:
    """Each agent ends before the next begins; what it had in flight comes within the grace."""
    boots, at_ms = Boots(), T0
    for number, gap_ms in enumerate(gaps, start=1):
        at_ms += gap_ms
        assert boots.see(f"{number:012d}-00000000", at_ms) == "believed"
        for late_ms in (1, GRACE_MS // 2, GRACE_MS):
            boots.see(f"{number - 1:012d}-00000000", at_ms + late_ms)
        assert not boots.two


def test_boots_without_number_take_no_memory() -> None:
    boots = Boots()
    seen(boots, (HIGH, 0))
    for n in range(1_000):
        boots.see(f"{n:012d}-00000000", T0 + 1_000 + n)

    assert len(boots._others) <= BOOTS_MAX
