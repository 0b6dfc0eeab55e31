"""The bench beside Koordinator: what is computed from what was seen, and the picture of what was measured."""

from pathlib import Path

import msgspec
import pytest
from bench.koordinator.measure import rows
from bench.koordinator.picture import picture
from bench.koordinator.records import Block, Leak, Part, Recorded, Silence, Step
from bench.koordinator.watch import first_s, held

ROOT = Path(__file__).parents[2]
LIMITS = [(1.0, None), (2.0, 100_000), (3.5, 40_000)]


def block(system: str, *, cpu_pct: float, fell_s: float | None) -> Block:
    return Block(
        system=system,
        load_1m=1.0,
        on_node={"agent": Part(cpu_pct, 50.0)},
        central={"worker": Part(2 * cpu_pct, 100.0)},
        steps=[Step(fell_s, None)],
        offered_s=None,
        metric_age_s=[30.0, 54.0],
        p99_ms=10.0,
        batch_cores=0.5,
    )


@pytest.mark.parametrize(("at_s", "value"), [(0.5, None), (2.0, 100_000), (3.0, 100_000), (9.0, 40_000)])
def test_a_value_holds_from_its_change_to_the_next(at_s: float, value: int | None) -> None:
    assert held(LIMITS, at_s) == value


def test_a_change_before_the_load_is_not_its_answer() -> None:
    assert first_s(LIMITS, 2.5, lambda now: now is not None and now < 200_000) == 1.0
    assert first_s(LIMITS, 4.0, lambda now: now is not None) is None


def test_a_step_without_an_answer_is_counted_apart_and_costs_are_medians_of_blocks() -> None:
    blocks = [block("Koordinator", cpu_pct=cpu, fell_s=fell) for cpu, fell in ((1.0, 1.2), (3.0, None), (2.0, 1.4))]
    leak = Leak("Koordinator", ["be-leaks"], 1.0, 30, ["Failed"])
    told = {row.figure: row.measured for row in rows(Recorded(blocks, [Silence("Koordinator", None)], [leak]))}

    assert told["Koordinator: node"].startswith("2.00% of a core, 50 MiB")
    assert told["Koordinator: load -> limit, first fall"] == "p50 1.20 s, p90 1.40 s; 1 not in time"
    assert told["Koordinator: load -> batch CPU on the Node"] == "not in time, not in time, not in time"
    assert told["Koordinator: silent node -> nothing offered"] == "still offered"
    assert "Slacktide: node" not in told


def test_the_picture_of_the_page_shows_the_records() -> None:
    recorded = msgspec.json.decode((ROOT / "bench/koordinator/records.json").read_bytes(), type=Recorded)
    assert (ROOT / "docs/beside-koordinator.svg").read_text() == picture(recorded)
