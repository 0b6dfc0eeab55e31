"""What a forecast comes to on a node: who is predicted, who is young, and why nothing is."""

from __future__ import annotations

import msgspec
import pytest

from slacktide.schemas.forecast import FORECAST_STALE_MS, NodePeaks, Peaks, PodPeaks
from slacktide.schemas.inventory import Resources
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

COLD_MIN = 60
ON = Colocation(enable=True, mid_cold_start_s=COLD_MIN * 60, mid_safety_margin_pct=0)
WEB = pod("web", 4_000, 40)
AT_MS = 1_000_000


def peaks(cpu_milli: int, mem_gib: int, minutes: int = COLD_MIN) -> Peaks:
    return Peaks(cpu_p95_milli=cpu_milli, mem_p98_bytes=mem_gib * GIB, samples=minutes, since_ms=0)


USUAL = {"sys": peaks(500, 5, 30), "koord-prod": peaks(1_200, 12, 30)}


def record(items: dict[str, Peaks] | None = None, **pods: Peaks) -> NodePeaks:
    each = [PodPeaks(uid=uid, peaks=one) for uid, one in (pods or {"web": peaks(1_000, 10)}).items()]
    found = USUAL if items is None else items
    return NodePeaks(node="node-1", boot_id="b", seq=7, observed_ms=AT_MS, interval_ms=60_000, pods=each, items=found)


def figured(*pods, of: NodePeaks | None = None, on: Colocation = ON, state: str = "") -> MidForecast:
    return mid_forecast(of or record(), production(pods or [WEB]), facts(), on, state)


def state_of(found: MidForecast) -> str:
    assert found.prediction is not None
    return found.prediction.state


def young_of(found: MidForecast) -> int:
    assert found.prediction is not None
    return found.prediction.young


def test_what_pods_requested_less_the_peaks_of_production_and_the_system() -> None:
    found = figured()

    assert (found.revision, state_of(found), young_of(found)) == ("b/7", "", 0)
    assert found.reclaimable == use(4_000 - 1_200 - 500, 40 - 12 - 5)
    assert found.prod_peak == use(1_700, 17)
    assert found.prediction is not None
    assert (found.prediction.cpu_bound, found.prediction.mem_bound) == ("node", "node")
    assert found.prediction.observed_ms == AT_MS
    assert found.prediction.cpu_terms["reclaimable_milli"] == 2_300
    assert found.prediction.mem_terms["reclaimable_bytes"] == 23 * GIB


def test_a_larger_request_in_place_leaves_the_difference() -> None:
    """The model is of the use, which a resize does not end."""
    resized = msgspec.structs.replace(WEB, requests=Resources(cpu_milli=5_000, mem_bytes=44 * GIB))

    assert figured(resized).reclaimable == use(3_300, 27)


@pytest.mark.parametrize(("minutes", "young"), [(0, 1), (COLD_MIN - 1, 1), (COLD_MIN, 0), (COLD_MIN + 1, 0)], ids=str)
def test_a_pod_is_predicted_once_it_has_samples_of_the_cold_start(minutes: int, young: int) -> None:
    found = figured(of=record(web=peaks(1_000, 10, minutes)))

    assert young_of(found) == young
    assert state_of(found) == ("cold start" if young else "")
    assert (found.reclaimable == use()) == bool(young)


@pytest.mark.parametrize(("missing_s", "young"), [(1, 1), (0, 0)], ids=["a second less", "just as long"])
def test_a_pod_is_young_up_to_the_last_second_of_the_cold_start(missing_s: int, young: int) -> None:
    """A model of which each sample stands for a second."""
    by_second = msgspec.structs.replace(record(web=peaks(1_000, 10, COLD_MIN * 60 - missing_s)), interval_ms=1_000)
    warm = {name: peaks(one.cpu_p95_milli, one.mem_p98_bytes // GIB, 1_800) for name, one in USUAL.items()}
    found = figured(of=msgspec.structs.replace(by_second, items=warm))

    assert (young_of(found), found.reclaimable == use()) == (young, bool(young))


@pytest.mark.parametrize(("cold_s", "young"), [(0, 0), (1, 1)])
def test_without_a_model_a_pod_leaves_nothing_however_short_the_cold_start_is(cold_s: int, young: int) -> None:
    found = figured(WEB, pod("unseen", 1_000, 10), on=msgspec.structs.replace(ON, mid_cold_start_s=cold_s))

    assert young_of(found) == young
    assert found.reclaimable == (use(3_000, 30) if young else use(2_300, 23))


def test_a_young_pod_beside_a_predicted_one_wants_its_request() -> None:
    found = figured(WEB, pod("new", 1_000, 10), of=record(web=peaks(1_000, 10), new=peaks(1, 1, 3)))

    assert (state_of(found), young_of(found)) == ("", 1)
    assert found.reclaimable == use(3_000, 30)
    assert found.prod_peak == use(2_000, 20)


def test_a_pod_that_the_forecast_does_not_know_is_young() -> None:
    found = figured(WEB, pod("unseen", 1_000, 10))

    assert young_of(found) == 1
    assert found.reclaimable == use(2_300 + 700, 30)


@pytest.mark.parametrize("other", [pod("done", 9_000, 90, phase="Failed"), batch_pod("batch", 9_000, 90)])
def test_pods_that_ended_or_are_not_of_production_are_in_no_sum(other) -> None:
    assert figured(WEB, other) == figured()


@pytest.mark.parametrize(
    "items",
    [
        pytest.param({"koord-prod": peaks(1_200, 12)}, id="no model of the system"),
        pytest.param({**USUAL, "sys": peaks(500, 5, 29)}, id="a young model of the system"),
        pytest.param({"sys": peaks(500, 5)}, id="none of production, which has pods"),
        pytest.param({**USUAL, "koord-prod": peaks(1_200, 12, 29)}, id="a young model of production"),
    ],
)
def test_without_a_warm_model_of_the_node_nothing_is_predicted(items: dict[str, Peaks]) -> None:
    found = figured(of=record(items))

    assert (state_of(found), found.prod_reclaimable, found.prod_peak) == ("cold start", None, None)
    assert found.reclaimable == use()


def test_a_class_without_pods_or_without_a_name_takes_nothing() -> None:
    quiet = mid_forecast(record({"sys": peaks(500, 5)}), production([batch_pod("batch")]), facts(), ON)
    unnamed = figured(of=record({**USUAL, "": peaks(9_000, 90)}))

    assert (state_of(quiet), quiet.prod_peak) == ("", use(500, 5))
    assert unnamed == figured()


@pytest.mark.parametrize("state", ["stale forecast", "forecast of another boot"])
def test_a_forecast_that_does_not_count_predicts_nothing_and_names_why(state: str) -> None:
    found = figured(state=state)

    assert (state_of(found), found.revision, found.reclaimable) == (state, "b/7", use())
    assert found.prediction is not None
    assert found.prediction.observed_ms == AT_MS
    assert NO_FORECAST.reclaimable == use()


@pytest.mark.parametrize(
    ("sampled_s", "cold_s", "of_pod", "warm"),
    [
        (1_799, 86_400, False, False),
        (1_800, 86_400, False, True),
        (1_800, 86_400, True, False),
        (599, 600, False, False),
        (600, 600, False, True),
        (600, 600, True, True),
        (0, 0, True, True),
    ],
)
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
