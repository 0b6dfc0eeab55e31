"""``slacktide explain service`` in words: the slope, its interval, the cap, and what is missing."""

from typing import Any

import msgspec
import pytest

from slacktide.deploy.cli.explain.service_text import service_text, services_text
from slacktide.schemas.codec import encode
from slacktide.schemas.policy import Colocation
from slacktide.schemas.policy.effective import learned_cap_pct
from slacktide.schemas.service import ServiceProfile
from slacktide.schemas.topics import SERVICE_PROFILE
from slacktide.streams.analysis.explain.service import (
    ServiceExplanation,
    Services,
    colocation_in,
    explain_service,
    explain_services,
    slowdown_at,
    why_none,
)
from slacktide.streams.records import Record
from testbed.samples import FACTS, START_MS
from testbed.services import INSENSITIVE, LATENCY, LEARNING, WEB, of_latency, profile, services, slope
from testbed.snapshots import situations

STALLS = {"signal": "pressure"}
CALM: dict[str, Any] = {
    "status": "insensitive", "slope_permille": 90, "low_permille": 20, "high_permille": 160, "target_us": 8_000,
}  # fmt: skip


def explained(records: list[Record]) -> ServiceExplanation | None:
    return explain_service(records, WEB, START_MS, colocation_in(records))


def every_service(records: list[Record]) -> Services:
    return explain_services(records, START_MS, colocation_in(records))


@situations(
    "given",
    {
        "a learned slope in shadow": ("shadow", profile(), {}),
        "a cap in force, with another budget": ("on", profile(), {"interference_budget_pct": 10}),
        "few node-hours and a wide interval": ("shadow", profile(**LEARNING), {}),
        "enough node-hours, and a wide interval": ("shadow", profile(**LEARNING | {"node_hours": 20.0}), {}),
        "no node that tells anything": (
            "shadow",
            profile(**LEARNING | {"nodes": 0, "node_hours": 0.0, "slope_permille": 0, "low_permille": 0,
                                  "high_permille": 0, "bins": []}),
            {},
        ),
        "insensitive": ("on", profile(**INSENSITIVE), {}),
        "a slope that nodes follow in steps": ("on", profile(published=slope(slope_permille=400)), {}),
        "off, with what was learned before": ("off", profile(), {}),
        "no policy": (None, profile(), {}),
        "a latency that counts, with a target": ("on", profile(**LATENCY), {}),
        "a latency that grows at once": (
            "on",
            profile(**of_latency(slope_permille=1_060, low_permille=864, high_permille=1_256, shape="bent")
                    | {"published": slope(slope_permille=13_600)}),
            {},
        ),
        "a latency whose slope nodes follow in steps": ("on", profile(**LATENCY | {"published": slope()}), {}),
        "a latency that bears a whole node": ("on", profile(**of_latency(**CALM) | {"published": None}), {}),
        "a latency above its target alone": ("shadow", profile(**of_latency(target_us=3_000)), {}),
        "a latency that is learning": (
            "shadow",
            profile(**of_latency(status="learning", node_hours=2.5, target_us=None) | STALLS),
            {},
        ),
        "a latency that no node explains": (
            "shadow",
            profile(**LEARNING | of_latency(status="learning", node_hours=0.0, nodes=0) | STALLS),
            {},
        ),
        "no minute for long": ("on", profile(observed_ms=START_MS - 9_000_000), {}),
    },
)  # fmt: skip
def test_a_service_is_explained(given: tuple[Any, ServiceProfile, dict[str, Any]], snapshot) -> None:
    mode, one, more = given
    found = explained(services(mode, [one], **more))
    assert found is not None
    assert service_text(found) == snapshot


def test_services_are_listed_with_the_most_sensitive_first(snapshot) -> None:
    every = [
        profile("shop/calm", **INSENSITIVE),
        profile("shop/redis", slope_permille=1_060, shape="bent", published=slope("shop/redis", 13_600)),
        profile("shop/new", **LEARNING),
        profile("shop/db", slope_permille=1_900, low_permille=1_700, high_permille=2_100,
                published=slope("shop/db", 1_900)),
        profile(),
        profile("shop/cache", **LATENCY),
    ]  # fmt: skip
    assert services_text(every_service(services("shadow", every))) == snapshot


def test_the_cap_is_the_one_that_nodes_compute() -> None:
    for budget_pct in (1, 10, 25, 60, 1_000):
        found = explained(services("on", [profile()], interference_budget_pct=budget_pct))
        assert found is not None
        facts = msgspec.structs.replace(FACTS, slope_permille=slope().slope_permille)
        assert found.cap_pct == learned_cap_pct(Colocation(interference_budget_pct=budget_pct), facts)
        if found.cap_pct is not None:
            of_published = profile(slope_permille=slope().slope_permille)
            assert slowdown_at(of_published, found.cap_pct / 100).pct <= budget_pct
            assert slowdown_at(of_published, (found.cap_pct + 1) / 100).pct > budget_pct


def test_the_latency_that_counts_decides_cap_and_target_and_no_sums_are_shown() -> None:
    found = explained(services("on", [profile(**INSENSITIVE | LATENCY)]))
    assert found is not None
    assert found.latency is not None
    assert found.cap_pct == 18
    at = slowdown_at(of_latency()["latency"], (found.latency.target_at_pct or 0) / 100)
    assert found.latency.alone_ms * (1 + at.pct / 100) == pytest.approx(8.0, rel=0.01)
    assert found.profile.latency is not None
    assert (found.profile.sums, found.profile.latency.sums) == ([], [])
    [row] = every_service(services("on", [profile(**INSENSITIVE | LATENCY)])).services
    assert (row.signal, row.status, row.slope_permille, row.nodes) == ("latency", "learned", 1_200, 9)


def test_a_deleted_or_malformed_profile_is_not_known() -> None:
    records = services("shadow", [profile()])
    there = next(one for one in records if one.topic == SERVICE_PROFILE.name)
    gone = msgspec.structs.replace(there, offset=9, value=None)
    assert explained([*records, gone]) is None
    assert not every_service([*records, gone]).services
    malformed = [msgspec.structs.replace(there, value=b"{")]
    assert explained(malformed) is None


@pytest.mark.parametrize("most", [-(2**63), 2**63 - 1])
def test_no_number_that_a_record_may_hold_breaks_the_text(most: int) -> None:
    ends: dict[str, Any] = {"slope_permille": most, "low_permille": most, "high_permille": most}
    extreme = profile(**of_latency(**ends, alone_us=0.0 if most < 0 else 2.0**50) | ends)
    records = [Record(topic=SERVICE_PROFILE.name, partition=0, offset=0, timestamp_ms=0, key=WEB.encode(),
                      value=encode(extreme))]  # fmt: skip
    found = explained(records)
    assert found is not None
    assert service_text(found)
    assert services_text(every_service(records))


@situations(
    "given",
    {
        "off": ("off", ["alpha"]), "no service at all": ("on", None), "no pod of it": ("shadow", []),
        "a pod, but no minutes": ("shadow", ["alpha"]),
    },
)  # fmt: skip
def test_what_to_do_about_a_service_without_a_profile(given: tuple[Any, Any], snapshot) -> None:
    assert why_none(*given) == snapshot
