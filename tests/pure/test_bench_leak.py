"""The bench of a leak: what is computed from its episodes."""

from __future__ import annotations

from bench.leak import CONDITIONS, TODAY, Episode, rows

EARLY, SWAP = CONDITIONS[1], CONDITIONS[2]


def episode(condition: str, evicted: list[str], *, ls_mem_some_us: int = 0, stuck: bool = False) -> Episode:
    numbers = (
        "peak_pct evicted_bytes reclaimed_bytes swapped_out_bytes ls_mem_full_us touch_p99_ms be_mem_some_us oom_kills"
    )
    found = {
        **dict.fromkeys(numbers.split(), 0),
        "seconds": 20.0,
        "finished": not evicted and not stuck,
        "evicted": evicted,
    }
    return Episode(block=1, condition=condition, kind="peak", found=found | {"ls_mem_some_us": ls_mem_some_us})


def verdict(*episodes: Episode, of: str) -> str:
    today = [episode(TODAY.name, ["leak-peak"])] * 2
    return {row.figure: row.verdict for row in rows([*today, *episodes])}[f"{of}: evictions"]


def test_half_of_todays_evictions_meets_the_target_and_more_do_not() -> None:
    spared, gone = episode(SWAP.name, []), episode(SWAP.name, ["leak-peak"])
    assert verdict(spared, gone, of=SWAP.name) == "ok"
    assert verdict(gone, gone, spared, of=SWAP.name) == "over"


def test_a_service_that_waits_for_memory_misses_the_target() -> None:
    assert verdict(episode(EARLY.name, [], ls_mem_some_us=20_000), of=EARLY.name) == "ok"
    assert verdict(episode(EARLY.name, [], ls_mem_some_us=21_000), of=EARLY.name) == "over"


def test_a_job_that_stands_still_is_no_eviction_saved() -> None:
    assert verdict(episode(SWAP.name, [], stuck=True), of=SWAP.name) == "over"


def test_conditions_that_were_not_measured_have_no_row() -> None:
    assert [row.figure for row in rows([episode(TODAY.name, [])])] == [f"{TODAY.name}: peak leak"]
