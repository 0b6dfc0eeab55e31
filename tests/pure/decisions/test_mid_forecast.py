"""What a forecast comes to on a node: who is predicted, who is young, and why nothing is."""

import json

import msgspec
import pytest

from slacktide.schemas.forecast import FORECAST_STALE_MS, NodePeaks, Peaks, PodPeaks
from slacktide.schemas.inventory import Pod
from slacktide.schemas.policy import Policy
from slacktide.schemas.policy.strategies import Colocation
from slacktide.streams.decisions.prediction.mid_forecast import (
    NO_FORECAST,
    HeldForecast,
    MidForecast,
    is_warm,
    mid_forecast,
    production,
)
from testbed.node_loads import GIB, batch_pod, facts, pod, use
from testbed.plain import plain
from testbed.vectors import each_row, stated

ON = Colocation(enable=True, mid_cold_start_s=3_600, mid_safety_margin_pct=0)
WEB = pod("web", 4_000, 40)
AT_MS = 1_000_000


@pytest.mark.parametrize(("given", "expected"), list(stated("mid_forecast")))
def test_a_forecast_comes_to_what_the_case_says(given: dict, expected: dict) -> None:
    pods = production(msgspec.convert(given["pods"], list[Pod]))
    on = msgspec.structs.replace(ON, **given.get("strategy", {}))
    of = msgspec.convert(given["record"], NodePeaks)
    assert json.loads(json.dumps(plain(mid_forecast(of, pods, facts(), on, given.get("state", ""))))) == expected


def test_without_a_forecast_nothing_is_reclaimable() -> None:
    assert NO_FORECAST.reclaimable == use()


def peaks(cpu_milli: int, mem_gib: int) -> Peaks:
    return Peaks(cpu_p95_milli=cpu_milli, mem_p98_bytes=mem_gib * GIB, samples=60, since_ms=0)


def record() -> NodePeaks:
    each, items = PodPeaks(uid="web", peaks=peaks(1_000, 10)), {"sys": peaks(500, 5), "koord-prod": peaks(1_200, 12)}
    return NodePeaks(node="node-1", boot_id="b", seq=7, observed_ms=AT_MS, interval_ms=60_000, pods=[each], items=items)


def figured() -> MidForecast:
    return mid_forecast(record(), production([WEB]), facts(), ON, "")


def state_of(found: MidForecast) -> str:
    assert found.prediction is not None
    return found.prediction.state


def young_of(found: MidForecast) -> int:
    assert found.prediction is not None
    return found.prediction.young


@each_row("sampled_s", "cold_s", "of_pod", "warm")
def test_a_model_of_the_node_is_warm_after_half_an_hour_at_the_latest(
    sampled_s: int, cold_s: int, *, of_pod: bool, warm: bool
) -> None:
    assert is_warm(sampled_s, cold_s, of_pod=of_pod) == warm


def test_a_worker_computes_it_again_only_if_something_changed() -> None:
    held_forecast, pods, node = HeldForecast.of(record()), [WEB], facts()
    policy = Policy(version="", colocation=ON)

    def on(boot_id: str = "b", late_ms: int = 0, given: Policy = policy) -> MidForecast:
        return held_forecast.on(pods, node, given, boot_id=boot_id, at_ms=AT_MS + late_ms)

    first = on()
    assert first == figured()
    assert on(late_ms=FORECAST_STALE_MS) is first
    assert state_of(on(late_ms=FORECAST_STALE_MS + 1)) == "stale forecast"
    assert state_of(on("c", FORECAST_STALE_MS + 1)) == "forecast of another boot"
    assert state_of(on("a")) == "forecast of another boot"
    assert on() == first
    wider = Policy(version="", colocation=msgspec.structs.replace(ON, mid_safety_margin_pct=100))
    assert on(given=wider).reclaimable == use(600, 6)
    assert held_forecast.order == ("b", 7)


def test_a_node_without_production_pods_is_computed_again_too() -> None:
    held_forecast, pods, node, policy = HeldForecast.of(record()), [batch_pod("batch")], facts(), Policy(version="")

    assert state_of(held_forecast.on(pods, node, policy, boot_id="b", at_ms=AT_MS)) == ""
    assert state_of(held_forecast.on(pods, node, policy, boot_id="c", at_ms=AT_MS)) == "forecast of another boot"


def test_another_list_with_the_same_production_pods_is_not_computed_again() -> None:
    held_forecast, node, policy = HeldForecast.of(record()), facts(), Policy(version="", colocation=ON)

    def on(*pods) -> MidForecast:
        return held_forecast.on(list(pods), node, policy, boot_id="b", at_ms=AT_MS)

    first = on(WEB)
    assert on(WEB, batch_pod("batch")) is first
    assert young_of(on(WEB, pod("new", 1_000, 10))) == 1
    assert on(WEB) == first
    assert state_of(held_forecast.on([WEB], node, policy, boot_id="c", at_ms=AT_MS)) == "forecast of another boot"
