"""A series of the console's history keeps extremes whatever its step, and meets the second that it is asked for."""

import random

import pytest

from slacktide.deploy.console.history.minute import Minute
from slacktide.deploy.console.history.points import AT, POINTS, empty
from slacktide.deploy.console.history.queries import History
from slacktide.deploy.console.history.store import Store

BEGIN_S = 1_800_000_000
MINUTES = 75
"""Beyond an hour, so that all resolutions are made, and finer ones complete the coarser."""


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> tuple[History, dict[int, int]]:
    """A node's use by second, with a minute that is missing."""
    store, draw, use = Store(tmp_path_factory.mktemp("series") / "history.db"), random.Random(5), dict[int, int]()
    for minute in (at for at in range(MINUTES) if at != 33):
        block = empty(1)
        for slot in range(POINTS):
            use[BEGIN_S + minute * POINTS + slot] = block[AT["ls_cpu_milli"]][slot] = draw.randrange(8_000)
            block[0][slot] = 1
        store.add(Minute(start_s=BEGIN_S + minute * POINTS, blocks={"node-1": block}, kept={}, entries=[], rates={},
                         offsets={}, firsts={}, texts=[]))  # fmt: skip
        while store.roll():
            pass
    store.close()
    return History(store.path), use


@pytest.mark.parametrize("points", [4_500, 1_000, 450, 75, 10, 1])
@pytest.mark.parametrize("begin", [0, 7, 1_234])
def test_each_point_has_the_extremes_of_its_seconds(filled, points: int, begin: int) -> None:
    history, use = filled
    from_s, to_s = BEGIN_S + begin, BEGIN_S + MINUTES * POINTS
    series = history.node_series("node-1", from_s * 1_000, to_s * 1_000, points)
    step_s = series.step_ms // 1_000
    assert len(series.at_ms) <= 2 * points + 1
    for at_ms, low, high, last in zip(
        series.at_ms,
        *(series.columns[f"ls_cpu_milli{end}"] for end in (".min", ".max", "")), strict=True
    ):  # fmt: skip
        at_s = at_ms // 1_000
        known = [use[second] for second in range(at_s, min(at_s + step_s, to_s)) if second in use]
        if at_s >= from_s:  # the first point may begin before what was asked for
            assert (low, high, last) == (min(known), max(known), known[-1]), (step_s, at_s - BEGIN_S)
    missing = [
        at_ms for at_ms in series.at_ms if step_s <= 10 and 33 * 60 <= at_ms // 1_000 - BEGIN_S < 34 * 60 - step_s
    ]
    assert not missing


def test_a_moment_is_that_second_at_any_resolution_that_is_left(filled) -> None:
    history, use = filled
    for at_s in (BEGIN_S, BEGIN_S + 61, BEGIN_S + 4_000):
        [row] = history.cluster_at(at_s * 1_000 + 300)
        assert (row.at_ms, row.ls_cpu_milli) == (at_s * 1_000, use[at_s])
    assert not history.cluster_at((BEGIN_S + 33 * 60 + 5) * 1_000)
