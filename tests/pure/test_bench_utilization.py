"""The fleet's day: a model of interference fitted to phases, and nodes that the real worker answers."""

import math
import random
import statistics

import pytest
from bench.utilization import interference, load
from bench.utilization.day import Fleet
from bench.utilization.interference import RANKS, Measured, Model, Pair, Point, error, fit, held_out, points
from bench.utilization.measure import caps, day_rows, model_rows, policies

SLOPES = {"requests": 2.0, "weight": 1.2, "idle": 0.2}
PAIRS = (("nginx", "encode"), ("redis", "compile"))


def phases(spread: float = 0.0) -> list[Measured]:
    """Blocks of two pairs that follow the model, but for noise."""
    dice, made = random.Random(3), []

    def add(pair: Pair, block: int, condition: str, part: float, p99_ms: float) -> None:
        made.append(
            Measured(service=pair[0], batch=pair[1], block=block, condition=condition, batch_part=part, p99_ms=p99_ms)
        )

    for block in (1, 2, 3):
        for pair in PAIRS:
            add(pair, block, "alone", 0.0, 8.0)
            for condition, rank in RANKS.items():
                part = dice.uniform(0.2, 0.7)
                add(pair, block, condition, part, 8.0 * math.exp(SLOPES[rank] * part + dice.gauss(0, spread)))
    return made


def test_the_fit_finds_the_slopes_that_made_the_phases() -> None:
    model = fit(points(phases()))

    assert {rank: round(slope, 6) for rank, slope in model.pooled.items()} == SLOPES
    assert model.ratio("weight", PAIRS[0], 0.5) == pytest.approx(math.exp(0.6))
    assert model.ratio("idle", PAIRS[0], 0.0) == 1


def test_the_error_is_that_of_runs_which_the_fit_has_not_seen() -> None:
    exact, noisy = (held_out(points(phases(spread))) for spread in (0.0, 0.3))

    assert error(exact) == pytest.approx(1)
    assert 1.2 < error(noisy) < 1.6
    assert {one.condition for one, _ in exact} == set(RANKS)


def test_a_rank_without_phases_is_an_error_that_names_it() -> None:
    only = [one for one in points(phases()) if one.rank != "idle"]

    with pytest.raises(ValueError, match="no phases of rank idle"):
        fit(only)


def test_the_kept_phases_give_a_model() -> None:
    seen = points(interference.kept())

    assert {one.rank for one in seen} == set(SLOPES)
    assert len(model_rows(seen, fit(seen))) >= 5


def test_services_use_20_to_40_percent_over_a_day() -> None:
    hours = [
        statistics.mean(part for node in range(100) for part in load.service_parts(1, node, hour))
        for hour in range(load.HOURS)
    ]

    assert 0.18 < min(hours) < 0.24
    assert 0.36 < max(hours) < 0.42


def test_a_day_by_two_policies_is_the_workers_answers() -> None:
    """Limits, idle pods and sold amounts come of the real worker: a looser policy sells more, and more is used."""
    model = fit(points(phases()))
    days = {name: Fleet(its, model, 12).run((3, 15)) for name, its in policies(model).items()}
    usual, full, _ = (day.tallies for day in days.values())

    assert usual["alone"].busy_part == full["alone"].busy_part
    assert usual["alone"].over_s == 0
    assert usual["policy"].busy_part < 0.65 < full["policy"].busy_part
    assert full["policy"].over_part <= 0.1 * full["requests"].over_part
    assert full["weight"].over_part > 0.5
    rows = [day_rows(name, 12, day, is_judged=day.tallies is full) for name, day in days.items()]
    assert {row.verdict for each in rows for row in each} == {"info", "ok"}


def test_a_service_that_batch_work_slows_down_gets_nodes_with_a_cap() -> None:
    """Half of the nodes: the others stay as busy, and no node is over the line."""
    slopes = {(rank, pair): SLOPES[rank] for rank in SLOPES for pair in PAIRS} | {("idle", PAIRS[1]): 1.0}
    model = Model(pooled=SLOPES, slopes=slopes)
    loose, capped = (Fleet(its, model, 12).run((3, 15)).tallies["policy"] for its in list(policies(model).values())[1:])

    assert [(one["name"], one["batchCPUThresholdPercent"]) for one in caps(model)] == [("redis", 22)]
    assert loose.over_part == pytest.approx(0.5, abs=0.1)
    assert capped.over_part < 0.02
    assert loose.busy_part - 0.25 < capped.busy_part < loose.busy_part - 0.1


def test_without_batch_work_no_point_is_made() -> None:
    lone = [one for one in phases() if one.condition == "alone"]

    assert points(lone) == []
    assert Point(pair=PAIRS[0], block=1, condition="quota 65%", batch_part=0.3, log_ratio=0.1).rank == "weight"
