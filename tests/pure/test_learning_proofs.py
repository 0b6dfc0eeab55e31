"""Minutes of services count only with the proof of the node that they name, where the policy requires it."""

from collections.abc import Callable, Iterable

import msgspec
import pytest

from slacktide.schemas.codec import decode, encode
from slacktide.schemas.dead_letter import DeadLetter
from slacktide.schemas.policy import KEY, Policy
from slacktide.schemas.proof import Verifier
from slacktide.schemas.service import ServiceMinute, ServiceProfile
from slacktide.schemas.topics import DEAD_LETTER, POLICY, SERVICE_MINUTE, SERVICE_PROFILE
from slacktide.streams.learning.folder import IGNORED, Folder
from slacktide.streams.proofs import LETTERS_A_MINUTE, Proofs, by_keys
from slacktide.streams.records import Out, Record, Writer
from testbed.proofs import REQUIRED, cluster_key, key_of, proven
from testbed.samples import SUPPRESS
from testbed.service_minutes import HOUR_MS, MINUTE_MS, START_MS, World, minute

LATER_S = START_MS // 1_000 + 24 * 3_600


def proofs(policy: Policy = REQUIRED, verifier: Verifier | None = None) -> Proofs:
    found = Proofs(Writer("stream"), by_keys(verifier or Verifier([cluster_key()])))
    found.policy(Record(topic=POLICY.name, partition=0, offset=0, timestamp_ms=0, key=KEY.encode(),
                        value=encode(policy)))  # fmt: skip
    return found


def unsigned(one: ServiceMinute, offset: int = 0) -> Record:
    return Record(topic=SERVICE_MINUTE.name, partition=3, offset=offset, timestamp_ms=one.observed_ms,
                  key=one.service.encode(), value=encode(one))  # fmt: skip


def signed(one: ServiceMinute, offset: int = 0, by: str = "") -> Record:
    """By the node that it names, or by another one."""
    return proven(unsigned(one, offset), key_of(by or one.node, expires_s=LATER_S))


def letters(outs: Iterable[Out]) -> list[str]:
    return [decode(out.value, DeadLetter).reason for out in outs if out.topic == DEAD_LETTER.name]


def profiles(outs: Iterable[Out]) -> list[ServiceProfile]:
    return [decode(out.value, ServiceProfile) for out in outs if out.topic == SERVICE_PROFILE.name]


def test_a_minute_is_signed_by_its_node_and_not_by_its_key() -> None:
    folder = Folder(3, (), proofs())
    assert folder.take([signed(minute())], 0) == []
    assert folder.verdicts == {"folded": 1}
    assert letters(folder.due(0)) == []


@pytest.mark.parametrize(
    ("spoilt", "verdict"),
    [
        (unsigned, "absent"),
        (lambda one: signed(one, by="node-2"), "forged"),
        pytest.param(
            lambda one: msgspec.structs.replace(signed(one), value=encode(minute(x=0.9))), "forged", id="changed"
        ),
        (lambda one: proven(unsigned(one), key_of(cluster=cluster_key(9))), "unknown key"),
        (lambda one: proven(unsigned(one), key_of(expires_s=START_MS // 1_000)), "expired"),
        (lambda one: msgspec.structs.replace(unsigned(one), headers=(("slacktide-proof", b"x"),)), "malformed"),
    ],
)
def test_an_unproven_minute_is_counted_and_not_folded(spoilt: Callable[[ServiceMinute], Record], verdict: str) -> None:
    folder = Folder(3, (), proofs())
    assert folder.take([spoilt(minute())], 0) == []
    assert (len(folder), folder.verdicts, folder.cursor(1)) == (0, {f"proof: {verdict}": 1}, 1)
    assert letters(folder.due(0)) == [f"proof: {verdict}"]
    assert f"proof: {verdict}" in IGNORED


def test_a_proof_is_of_one_service_and_one_topic() -> None:
    """The body names the service, which must be the record's key."""
    moved = msgspec.structs.replace(signed(minute()), key=b"shop/other")
    elsewhere = msgspec.structs.replace(signed(minute()), topic="slacktide.node.sample.v2")
    folder = Folder(3, (), proofs())
    [letter] = letters(folder.take([moved, elsewhere], 0))
    assert "the record's key is not its service" in letter
    assert (len(folder), folder.verdicts) == (0, {"proof: forged": 1})


@pytest.mark.parametrize("found", [proofs(SUPPRESS), None])
def test_nothing_is_checked_where_the_policy_does_not_ask(found: Proofs | None) -> None:
    folder = Folder(3, (), found)
    folder.take([unsigned(minute()), signed(minute(node="node-3"), 1, by="node-2")], 0)
    assert folder.verdicts == {"folded": 2}


def test_a_flood_of_forgeries_makes_few_dead_letters_whatever_its_partitions() -> None:
    shared = proofs()
    folders = [Folder(number, (), shared) for number in range(3)]
    for folder in folders:
        folder.take([signed(minute(), offset, by="node-2") for offset in range(100)], 0)
    assert sum(len(letters(folder.due(0))) for folder in folders) == LETTERS_A_MINUTE
    assert [folder.verdicts["proof: forged"] for folder in folders] == [100] * 3


def test_a_forger_changes_nothing_also_for_who_takes_over() -> None:
    """It claims a node of its own, and the real ones, with minutes that would be the newest."""
    real = list(World(nodes=4).minutes(2 * HOUR_MS))
    log: list[Record] = []
    for one in real:
        false = msgspec.structs.replace(one, observed_ms=one.observed_ms + 3 * MINUTE_MS, wait_us=0, mem_wait_us=0)
        log += [signed(one, len(log)), signed(false, len(log) + 1, by="evil")]
        log.append(unsigned(msgspec.structs.replace(false, node="invented"), len(log)))
    alone, beside = Folder(3, ()), Folder(3, (), proofs())
    alone.take((record for record in log if record.offset % 3 == 0), 0)
    [wanted] = profiles(alone.due(0))

    beside.take(log[:500], 0)
    written = [out for out in beside.due(0) if out.topic == SERVICE_PROFILE.name]
    beside.take(log[500:1_000], 1)
    cursor = beside.cursor(1_000)
    assert cursor < 1_000, "not published when the worker is killed"
    states = [Record(topic=out.topic, partition=3, offset=0, timestamp_ms=0, key=out.key, value=out.value)
              for out in written]  # fmt: skip
    after = Folder(3, states, proofs())
    after.take(log[cursor:], 2)
    [found] = profiles(after.due(2))
    assert (found.sums, found.bins, found.folded_to) == (wanted.sums, wanted.bins, wanted.folded_to)


def test_a_key_that_comes_late_proves_later_minutes_and_no_minute_twice() -> None:
    """As of samples: what was refused is not folded later, although the next owner reads it again."""
    log = [signed(one, offset) for offset, one in enumerate(World(nodes=1).minutes(6 * MINUTE_MS))]
    verifier = Verifier()
    folder = Folder(3, (), proofs(verifier=verifier))
    folder.take(log[:3], 0)
    assert folder.verdicts == {"proof: unknown key": 3}
    verifier.keys([cluster_key()])
    folder.take(log[3:], 0)
    assert folder.verdicts["folded"] == 3
    [profile] = outs = [out for out in folder.due(0) if out.topic == SERVICE_PROFILE.name]
    after = Folder(3, [Record(topic=out.topic, partition=3, offset=0, timestamp_ms=0, key=out.key, value=out.value)
                       for out in outs], proofs(verifier=verifier))  # fmt: skip
    after.take(log, 1)
    assert after.verdicts == {"old": 6}
    assert profiles([profile])[0].folded_from == 3


def test_a_service_of_another_partition_is_not_learned_here() -> None:
    """A node could set its slope there, without the minutes of others."""
    folder = Folder(3, (), proofs(), mine=lambda service: service != "shop/other")
    folder.take([signed(minute(service="shop/other")), signed(minute(service="shop/web"))], 0)
    assert (len(folder), folder.verdicts) == (1, {"elsewhere": 1, "folded": 1})
    assert "elsewhere" in IGNORED
