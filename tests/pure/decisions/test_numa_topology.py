"""Zones and the kubelet's settings, as a topology object's names and attributes hold them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slacktide.streams.decisions.numa.topology import (
    ID_MAX_CORRECTED,
    Kubelet,
    NamedZone,
    Zone,
    kubelet_of,
    zone_id,
    zones_of,
)
from testbed.vectors import each_row

POLICY, SCOPE, MOST = "topologyManagerPolicy", "topologyManagerScope", "topologyManagerMaxNUMANodes"


def test_without_attributes_nothing_is_aligned() -> None:
    assert kubelet_of([], []) == Kubelet(policy="none", scope="container", max_zones=8, prefer_closest=False)


@each_row("name", "policy", "scope")
def test_of_the_deprecated_list_only_the_first_counts(name: str, policy: str, scope: str) -> None:
    assert kubelet_of([name, "RestrictedPodLevel"], []) == Kubelet(policy=policy, scope=scope)


def test_attributes_stand_above_the_list_and_the_last_valid_one_above_others() -> None:
    attributes = [(POLICY, "restricted"), (SCOPE, "pod"), (SCOPE, "Container"), (POLICY, "best-effort"), (POLICY, "")]

    assert kubelet_of(["SingleNUMANodeContainerLevel"], attributes) == Kubelet(policy="best-effort", scope="pod")


@pytest.mark.parametrize(
    ("text", "most"),
    [
        ("2", 2), ("+4", 4), ("007", 7), ("1024", 1024), ("1025", 1024), ("9223372036854775807", 1024),
        ("9223372036854775808", 8), ("9" * 5000, 8), ("0" * 5000 + "3", 3), ("1", 8), ("0", 8), ("-3", 8), ("", 8),
        ("abc", 8), ("4.0", 8), (" 4", 8), ("٤", 8), ("4\n", 8),
    ],
)  # fmt: skip
def test_the_most_zones_are_a_decimal_above_1_and_at_most_1024(text: str, most: int) -> None:
    assert kubelet_of([], [(MOST, text)]).max_zones == most


def test_an_invalid_number_leaves_what_was_there() -> None:
    assert kubelet_of([], [(MOST, "16"), (MOST, "1")]).max_zones == 16


@each_row("name", "number")
def test_a_zones_name_holds_its_id(name: str, number: int | None) -> None:
    assert zone_id(name) == number


def named(name: str, kind: str = "Node") -> NamedZone:
    return NamedZone(name, kind, {"cpu": 1})


def test_zones_keep_their_order_and_others_are_skipped() -> None:
    listed = [
        named("node-5"),
        named("node-1", "Socket"),
        named("node-2", "Cache"),
        named("zone-2"),
        named("node-64"),
        named("node-63"),
    ]

    assert [zone.id for zone in zones_of(listed)] == [5, 63]
    assert [zone.id for zone in zones_of([*listed, named("node-1024")], ID_MAX_CORRECTED)] == [5, 64, 63]


def test_costs_are_by_id_and_bad_names_are_skipped() -> None:
    listed = NamedZone("node-0", "Node", {"cpu": 1}, [("node-0", 10), ("bad", 7), ("node-1", 21)], {"cpu": 2})

    assert zones_of([listed]) == [Zone(0, {"cpu": 1}, {0: 10, 1: 21}, {"cpu": 2})]


def test_a_zone_whose_allocatable_is_unknown_has_what_is_available() -> None:
    assert Zone(0, {"cpu": 1}).capacity == {"cpu": 1}
    assert Zone(0, {"cpu": 1}, allocatable={"cpu": 2}).capacity == {"cpu": 2}
    assert Zone(0, {"cpu": 1}, allocatable={}).capacity == {}


@given(st.text(max_size=12))
def test_any_text_may_be_a_name_or_a_number(text: str) -> None:
    assert zone_id(f"node-{text}") is None or text.lstrip("+0").isascii()
    assert 2 <= kubelet_of([text], [(MOST, text), (POLICY, text), (SCOPE, text)]).max_zones <= 1024
