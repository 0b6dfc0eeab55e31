"""One partition's services: what is published when, what is refused, and what a takeover finds."""

from collections.abc import Iterable, Sequence

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from slacktide.schemas.codec import decode, encode
from slacktide.schemas.dead_letter import DeadLetter
from slacktide.schemas.service import ServiceMinute, ServiceProfile, ServiceSlope
from slacktide.schemas.topics import DEAD_LETTER, SERVICE_MINUTE, SERVICE_PROFILE, SERVICE_SLOPE
from slacktide.streams.learning import folder as folders
from slacktide.streams.learning.fold import ServiceFold
from slacktide.streams.learning.folder import Folder, profiles_of
from slacktide.streams.records import Out, Record
from testbed.service_minutes import DAY_MS, HOUR_MS, MINUTE_MS, SERVICE, START_MS, World, folded, minute

PROFILE, SLOPE = SERVICE_PROFILE.name, SERVICE_SLOPE.name


def records(minutes: Iterable[ServiceMinute], start: int = 0) -> list[Record]:
    return [
        Record(topic=SERVICE_MINUTE.name, partition=3, offset=offset, timestamp_ms=one.observed_ms,
               key=one.service.encode(), value=encode(one))
        for offset, one in enumerate(minutes, start)
    ]  # fmt: skip


def as_records(outs: Iterable[Out]) -> list[Record]:
    return [
        Record(topic=out.topic, partition=3, offset=offset, timestamp_ms=0, key=out.key, value=out.value)
        for offset, out in enumerate(outs)
        if out.topic == PROFILE
    ]


def topics(outs: Sequence[Out]) -> list[str]:
    return [out.topic for out in outs]


def test_a_profile_comes_after_its_slope_in_its_own_partition():
    folder = Folder(3, ())
    folder.take(records(World(nodes=20).minutes(2 * HOUR_MS)), 0)
    slope, profile = folder.due(0)
    assert (slope.topic, slope.partition, slope.key) == (SLOPE, 0, SERVICE.encode())
    assert (profile.topic, profile.partition, profile.key) == (PROFILE, 3, SERVICE.encode())
    found = decode(profile.value, ServiceProfile)
    assert found.published == decode(slope.value, ServiceSlope)
    assert (found.published.partition, found.folded_from, found.folded_to) == (3, 0, 2_399)


def test_a_profile_is_published_once_a_minute():
    log = records(World(nodes=1).minutes(10 * MINUTE_MS))
    folder = Folder(3, ())
    folder.take(log[:1], 0)
    assert topics(folder.due(5_000)) == [PROFILE]
    assert folder.cursor(1) == 1
    folder.take(log[1:3], 0)
    assert folder.due(64_999) == []
    assert folder.cursor(3) == 1, "what is not published is read again"
    assert topics(folder.due(65_000)) == [PROFILE]
    assert folder.cursor(3) == 3
    assert folder.due(999_999) == [], "nothing is new"
    folder.take(log[3:4], 0)
    assert topics(folder.due(1)) == [PROFILE], "the clock went back"


def test_a_call_publishes_a_few_profiles_at_most(monkeypatch):
    monkeypatch.setattr(folders, "DUE_SUMS_MAX", 3)
    folder = Folder(3, ())
    folder.take(records(minute(service=f"shop/{number}") for number in range(7)), 0)
    assert [len(folder.due(0)) for _ in range(4)] == [3, 3, 1, 0]


def test_what_contradicts_itself_is_a_dead_letter_and_others_go_on():
    good = records([minute(node="a"), minute(node="b"), minute(node="c"), minute(service="web")])
    other = msgspec.structs.replace(good[0], key=b"shop/other")
    broken = msgspec.structs.replace(good[1], value=b'{"service":')
    folder = Folder(3, ())
    letters = folder.take([other, broken, good[2], good[3]], 7)
    assert topics(letters) == [DEAD_LETTER.name] * 3
    reasons = [decode(letter.value, DeadLetter).reason for letter in letters]
    assert "the record's key is not its service" in reasons[0]
    assert reasons[1].startswith("not a ServiceMinute")
    assert "'web' is not namespace/owner" in reasons[2]
    assert (len(folder), folder.verdicts) == (1, {"folded": 1})


def test_an_ignored_minute_makes_no_service():
    folder = Folder(3, ())
    folder.take(records([msgspec.structs.replace(minute(), run_us=0)]), 0)
    assert (len(folder), folder.due(0), folder.cursor(1), folder.verdicts) == (0, [], 1, {"idle": 1})


def test_services_and_nodes_are_bounded(monkeypatch):
    monkeypatch.setattr(folders, "SERVICES_MAX", 2)
    monkeypatch.setattr(folders, "SUMS_MAX", 3)
    made = [("a/a", "n1"), ("b/b", "n1"), ("c/c", "n1"), ("a/a", "n2"), ("a/a", "n3"), ("b/b", "n1")]
    at = [START_MS + number * MINUTE_MS for number in range(len(made))]
    log = [minute(service=service, node=node, at_ms=at_ms) for (service, node), at_ms in zip(made, at, strict=True)]
    folder = Folder(3, ())
    folder.take(records(log), 0)
    assert folder.verdicts == {"folded": 4, "crowded": 2}
    assert [decode(out.value, ServiceProfile).service for out in folder.due(0)] == ["a/a", "b/b"]


def test_a_silent_service_is_forgotten():
    folder = Folder(3, ())
    folder.take(records(World(nodes=20).minutes(2 * HOUR_MS)), 0)
    folder.due(0)
    last = START_MS + 2 * HOUR_MS
    folder.take(records([minute(service="shop/other", at_ms=last + 7 * DAY_MS)], 5_000), 0)
    assert len(folder) == 2, "exactly seven days"
    folder.take(records([minute(service="shop/other", at_ms=last + 7 * DAY_MS + MINUTE_MS)], 5_001), 0)
    gone = folder.due(0)[:2]
    assert [(out.topic, out.key, out.value) for out in gone] == [
        (SLOPE, SERVICE.encode(), None),
        (PROFILE, SERVICE.encode(), None),
    ]
    assert len(folder) == 1
    assert profiles_of(as_records(gone)) == {}


def test_a_former_workers_late_profile_is_overwritten_with_its_slope():
    log = records(World(nodes=20).minutes(4 * HOUR_MS))
    folder = Folder(3, ())
    folder.take(log[:2_400], 0)
    former = folder.due(0)
    folder.take(log[2_400:], 0)
    folder.due(60_000)
    folder.overtaken(as_records(former))
    slope, profile = folder.due(60_001)
    assert decode(profile.value, ServiceProfile).folded_to == 4_799
    assert decode(profile.value, ServiceProfile).published == decode(slope.value, ServiceSlope)
    folder.overtaken(as_records([profile]))
    assert folder.due(60_002) == []


def test_an_invalid_profile_is_learned_again_and_its_slope_withdrawn():
    good = as_records(_published(records(World(nodes=1).minutes(5 * MINUTE_MS))))
    broken = msgspec.structs.replace(good[0], value=b"{")
    other = msgspec.structs.replace(good[0], key=b"shop/other")
    assert Folder(3, good).due(MINUTE_MS) == []
    for log, service in (([*good, broken], SERVICE), ([other], "shop/other")):
        folder = Folder(3, log)
        assert len(folder) == 1
        folder.take(records([minute(service="shop/new")]), 0)
        new, *gone = sorted(folder.due(MINUTE_MS), key=lambda out: out.value is None)
        assert (new.key, {(out.topic, out.key, out.value) for out in gone}) == (
            b"shop/new",
            {(SLOPE, service.encode(), None), (PROFILE, service.encode(), None)},
        )
        assert len(folder) == 1
    folder = Folder(3, [broken])
    folder.take(records([minute()]), 0)
    assert [(out.topic, out.value is None) for out in folder.due(MINUTE_MS)] == [(SLOPE, True), (PROFILE, False)]


def test_a_profile_that_cannot_be_computed_costs_its_service_alone(monkeypatch):
    profile = ServiceFold.profile

    def fails(fold: ServiceFold) -> ServiceProfile:
        if fold.service == "shop/bad":
            raise ArithmeticError("an error")
        return profile(fold)

    monkeypatch.setattr(ServiceFold, "profile", fails)
    folder = Folder(3, ())
    folder.take(records(minute(service=service) for service in ("shop/bad", "shop/good")), 0)
    assert {out.topic: out.key for out in folder.due(0)} == {DEAD_LETTER.name: b"shop/bad", PROFILE: b"shop/good"}


def _published(log: list[Record]) -> list[Out]:
    folder = Folder(3, ())
    folder.take(log, 0)
    return folder.due(0)


LOG = records(
    msgspec.structs.replace(one, service=f"shop/{number % 3}")
    for number, one in enumerate(World(nodes=3).minutes(2 * HOUR_MS))
)


@given(st.lists(st.sampled_from(["fold", "fold", "publish", "publish only", "kill"]), max_size=40), st.data())
def test_killed_anywhere_each_minute_counts_once(acts, data):
    written: list[Record] = []
    folder, position, cursor, now_ms = Folder(3, written), 0, 0, 0
    for act in [*acts, "rest"]:
        if act == "kill":
            folder, position = Folder(3, written), cursor
        elif act in {"fold", "rest"}:
            many = data.draw(st.integers(1, 60)) if act == "fold" else len(LOG)
            assert folder.take(LOG[position : position + many], now_ms) == []
            position = min(len(LOG), position + many)
        if act != "fold":
            now_ms += 30_000 if act != "rest" else 60_000
            written += as_records(folder.due(now_ms)) if act != "kill" else []
            cursor = folder.cursor(position) if act in {"publish", "rest"} else cursor
    found = profiles_of(written)
    assert cursor == len(LOG)
    for number in range(3):
        whole = folded(decode(one.value, ServiceMinute) for one in LOG if one.key == f"shop/{number}".encode())
        profile = found[f"shop/{number}"]
        assert (profile.sums, profile.bins) == (whole.profile().sums, whole.profile().bins)


def test_who_takes_over_says_again_what_nodes_know_of_each_service():
    """A worker that is killed between the two sends leaves a slope that its profile does not name, or none."""
    before = Folder(3, ())
    log = records(World(nodes=20).minutes(3 * HOUR_MS))
    before.take(log[:2_400], 0)
    outs = before.due(0)
    after = Folder(3, as_records(outs))
    after.take(log[2_400:2_420], MINUTE_MS)
    after_outs = after.due(MINUTE_MS)
    assert topics(after_outs) == [SLOPE, PROFILE]
    assert decode(after_outs[0].value, ServiceSlope) == decode(after_outs[1].value, ServiceProfile).published
    after.take(log[2_420:], 2 * MINUTE_MS)
    assert PROFILE in topics(after.due(2 * MINUTE_MS))


def test_where_there_is_no_room_what_was_not_heard_of_for_longest_goes(monkeypatch):
    monkeypatch.setattr(folders, "SERVICES_MAX", 2)
    folder = Folder(3, ())
    old = [minute(service=f"shop/{name}", at_ms=START_MS + number) for number, name in enumerate("ab")]
    folder.take(records(old), 0)
    folder.due(0)
    soon = minute(service="shop/c", at_ms=START_MS + 10 * MINUTE_MS)
    folder.take(records([soon], 2), 0)
    assert folder.verdicts["crowded"] == 1
    later = minute(service="shop/c", at_ms=START_MS + 2 * HOUR_MS)
    folder.take(records([later], 3), 0)
    outs = folder.due(2 * MINUTE_MS)
    assert [(out.topic, out.key, out.value is None) for out in outs] == [
        (PROFILE, b"shop/a", True),
        (PROFILE, b"shop/c", False),
    ]


def test_a_profile_fits_in_a_record_whatever_agents_write():
    folder = Folder(3, ())
    names = [f"{number:03d}{'x' * 250}" for number in range(300)] + ["\x01" * 253]
    log = []
    for turn in range(3):
        for node in names:
            one = minute(node=node, at_ms=START_MS + turn * MINUTE_MS)
            log.append(msgspec.structs.replace(one, template="\x01" * 253 if turn else "t" * 63))
    folder.take(records(log), 0)
    (profile,) = folder.due(0)
    assert len(profile.value) < 200_000
    assert folder.verdicts["absurd"] == 3
