"""What a worker and a governor do with records that do not prove their node."""

from typing import Any

import msgspec
import pytest

from slacktide.schemas.codec import decode, encode
from slacktide.schemas.command import NodeCommand
from slacktide.schemas.credit import NO_CREDIT
from slacktide.schemas.dead_letter import DeadLetter
from slacktide.schemas.metric import NodeMetric
from slacktide.schemas.outcome import NodeOutcome, PodName, Spent
from slacktide.schemas.policy import Policy, versioned
from slacktide.schemas.proof import Verifier
from slacktide.schemas.sample import NodeSample
from slacktide.schemas.topics import COMMAND, DEAD_LETTER, METRIC, OUTCOME
from slacktide.streams.governor.governor import Governor
from slacktide.streams.proofs import LETTERS_A_MINUTE, by_keys
from slacktide.streams.records import Out, Record
from slacktide.streams.rendering import RenderedAnswers
from slacktide.streams.rendering import record_of as written
from slacktide.streams.worker import Worker
from testbed.proofs import LATER_S, REQUIRED, cluster_key, key_of, proven
from testbed.samples import BOOT, START_MS, SUPPRESS, keyframe, policy_record, raw_record, record_of, sample

NOW_MS = START_MS + 1_000_000
FORGED_BOOT = "999999999999-x"


def made(policy: Policy = REQUIRED, keys: int = 1) -> Worker:
    worker = Worker("w", by_keys(Verifier([cluster_key(number + 1) for number in range(keys)])))
    assert worker.policy(policy_record(policy)) == []
    return worker


def commands(outs: list[Out]) -> list[NodeCommand]:
    return [decode(out.value, NodeCommand) for out in outs if out.topic == COMMAND.name]


def forged(record: Record) -> Record:
    """Sent by another node, which has a key of its own."""
    return proven(record, key_of("node-2"))


def test_a_proven_sample_is_answered_and_its_verdict_is_recorded() -> None:
    [command] = commands(made().samples([proven(record_of(keyframe(1)))], NOW_MS))
    assert (command.answer, command.proof) == ("set", "ok")


def test_nothing_is_checked_or_recorded_where_the_policy_does_not_ask() -> None:
    plain = Worker("w")
    plain.policy(policy_record(SUPPRESS))
    with_header = made(SUPPRESS).samples([forged(record_of(keyframe(1)))], NOW_MS)
    assert with_header == plain.samples([record_of(keyframe(1))], NOW_MS)
    assert b'"proof"' not in next(out.value or b"" for out in with_header if out.topic == COMMAND.name)


def test_a_policy_that_asks_for_proofs_decides_as_before() -> None:
    assert versioned(REQUIRED).version == SUPPRESS.version
    assert b"node_proof" not in encode(SUPPRESS)


@pytest.mark.parametrize(
    ("spoilt", "verdict"),
    [
        (lambda record: record, "absent"),
        (forged, "forged"),
        (lambda record: proven(record, key_of(cluster=cluster_key(9))), "unknown key"),
        (lambda record: proven(record, key_of(expires_s=START_MS // 1_000)), "expired"),
        (lambda record: msgspec.structs.replace(record, headers=(("slacktide-proof", b"x"),)), "malformed"),
    ],
)
def test_an_unproven_sample_is_skipped_with_the_verdict(spoilt: Any, verdict: str) -> None:
    outs = made().samples([spoilt(record_of(keyframe(1)))], NOW_MS)
    [command] = commands(outs)
    assert (command.answer, command.reason, command.proof) == ("skipped", f"proof: {verdict}", verdict)
    assert (command.boot_id, command.seq, command.hold, command.evict) == (BOOT, 1, [], [])
    [out] = [out for out in outs if out.topic == COMMAND.name]
    assert out.unproven == verdict
    [letter] = [decode(out.value, DeadLetter) for out in outs if out.topic == DEAD_LETTER.name]
    assert letter.reason == f"proof: {verdict}"
    assert not [out for out in outs if out.topic == METRIC.name]


def test_a_forger_changes_nothing_for_the_real_node() -> None:
    """With a boot that would be the newest for ever, pods and facts of its own, in any order."""
    real = [proven(record_of(keyframe(1))), *(proven(record_of(sample(seq))) for seq in range(2, 30))]
    false = [forged(record_of(keyframe(seq, boot_id=FORGED_BOOT, pods=[]), offset=100 + seq)) for seq in range(1, 30)]
    alone, beside = made(), made()
    wanted = [out for record in real for out in alone.samples([record], NOW_MS)]
    outs = [out for pair in zip(false, real, strict=True) for out in beside.samples(pair, NOW_MS)]
    answered = [out for out in outs if out.topic != DEAD_LETTER.name and not out.unproven]
    assert answered == wanted
    assert [decode(out.value, NodeMetric) for out in answered if out.topic == METRIC.name]


def test_a_recorded_sample_of_an_earlier_start_changes_nothing() -> None:
    """Its proof is valid, and it comes every 5 s; the real agent is answered, and its figures published, as without."""

    def sent(its: NodeSample, at_s: int) -> Record:
        record = record_of(its, offset=at_s)
        return proven(msgspec.structs.replace(record, timestamp_ms=START_MS + at_s * 1_000 + 100))

    recorded = keyframe(1)
    real = [sent(keyframe(seq, boot_id="000000000002-0000000b"), seq) for seq in range(20, 80)]
    alone, beside = made(), made()
    wanted, outs = [], []
    for worker, found in ((alone, wanted), (beside, outs)):
        for number, record in enumerate([sent(recorded, 1), *real]):
            again = [sent(recorded, 20 + number)] if worker is beside and number % 5 == 1 else []
            found += [out for one in (record, *again) for out in worker.samples([one], NOW_MS)]

    told = [written(out) for out in outs if b'"boot_id":"%b"' % BOOT.encode() not in (out.value or b"")]
    assert told == [written(out) for out in wanted if b'"boot_id":"%b"' % BOOT.encode() not in (out.value or b"")]
    assert {one.answer for one in commands(wanted)} <= {"set", "keep"}


def test_an_answer_to_a_repeated_sample_is_no_sign_of_life() -> None:
    """Of this start or an earlier one, alone in its fetch or twice, or with an unknown pod list; all are proven."""
    worker, now_s = made(), iter(range(1, 100))

    def living(*sent: NodeSample) -> set[bytes | None]:
        at_s = next(now_s)
        records = [proven(record_of(its, offset=at_s)) for its in sent]
        outs = worker.answers(records, NOW_MS)
        found = {out.key for out in outs if out.sign_of_life}
        assert not isinstance(outs, RenderedAnswers) or outs.nodes == found
        assert len(commands(list(outs))) == len(sent)
        return found

    def next_boot(its: NodeSample) -> NodeSample:
        return msgspec.structs.replace(its, boot_id="000000000002-0000000b")

    unlisted = msgspec.structs.replace(sample(3), pods_revision="0123456789abcdef")
    assert all([living(keyframe(1)), living(sample(2)), living(unlisted), living(sample(4), sample(2))])
    for repeated in (keyframe(1), sample(2), unlisted, sample(4)):
        assert living(repeated) == living(repeated, repeated) == set(), repeated.seq
    assert all([living(next_boot(keyframe(1))), living(next_boot(sample(2)))])
    for repeated in (keyframe(1), sample(4), next_boot(sample(2))):
        assert living(repeated) == set(), repeated.seq
    assert living(next_boot(sample(3)))


def test_an_invented_node_leaves_nothing_behind() -> None:
    worker = made()
    for number in range(50):
        name = f"invented-{number}"
        record = record_of(keyframe(1, name), offset=number)
        worker.samples([forged(record)], NOW_MS)
        worker.learn([forged(record)])
        worker.fill([forged(record)])
    assert not worker.held.of(0)


def test_what_is_read_back_counts_only_where_it_is_proven() -> None:
    worker = made()
    good, bad = proven(record_of(keyframe(1))), forged(record_of(keyframe(9, boot_id=FORGED_BOOT)))
    assert worker.learn([bad, good]) == [good]
    [command] = commands(worker.samples([proven(record_of(sample(2)))], NOW_MS))
    assert (command.answer, command.proof) == ("set", "ok")


def test_history_counts_only_where_it_is_proven() -> None:
    worker = made()
    worker.samples([proven(record_of(keyframe(5)))], NOW_MS)
    outs = worker.fill([forged(record_of(sample(2))), proven(record_of(sample(3)))])
    assert [decode(out.value, DeadLetter).reason for out in outs if out.topic == DEAD_LETTER.name] == ["proof: forged"]


def test_a_worker_without_keys_believes_nobody() -> None:
    worker = Worker("w")
    worker.policy(policy_record(REQUIRED))
    [command] = commands(worker.samples([proven(record_of(keyframe(1)))], NOW_MS))
    assert (command.answer, command.proof) == ("skipped", "unknown key")


def test_a_key_that_was_replaced_holds_until_it_leaves_the_ring() -> None:
    verifier = Verifier([cluster_key(1)])
    worker = Worker("w", by_keys(verifier))
    worker.policy(policy_record(REQUIRED))
    verdicts = []
    for seq, ring in enumerate([(1,), (2, 1), (3, 2)], start=1):
        verifier.keys(cluster_key(number) for number in ring)
        [command] = commands(worker.samples([proven(record_of(keyframe(seq)))], NOW_MS))
        verdicts.append(command.proof)
    assert verdicts == ["ok", "ok", "unknown key"]


def test_a_flood_of_forgeries_makes_few_dead_letters() -> None:
    worker = made()
    flood = [forged(record_of(keyframe(seq), offset=seq)) for seq in range(1, 500)]
    outs = worker.samples(flood, NOW_MS)
    assert sum(out.topic == DEAD_LETTER.name for out in outs) == LETTERS_A_MINUTE
    assert len(commands(outs)) == len(flood)
    later = msgspec.structs.replace(flood[0], timestamp_ms=START_MS + 60_000)
    assert any(out.topic == DEAD_LETTER.name for out in worker.samples([later], NOW_MS))


def test_unproven_bytes_that_are_no_sample_are_laid_aside() -> None:
    outs = made().samples([raw_record(b"{", key=b"node-1", offset=3)], NOW_MS)
    assert [out.topic for out in outs] == [DEAD_LETTER.name]


def outcome_record(node: str = "node-1", evictions: int = 0) -> Record:
    """An eviction that was wanted, and for which there was no credit."""
    said = NodeOutcome(
        node=node,
        boot_id=BOOT,
        seq=1,
        command_id="c",
        rule="BEMemoryEvict",
        target="pod/be",
        origin="stream",
        result="refused",
        reason=NO_CREDIT,
        policy_version=SUPPRESS.version,
        observed_ms=START_MS,
        acted_ms=START_MS,
        age_ms=1,
        pod=PodName(namespace="jobs", name="batch"),
        spent=Spent(evictions=evictions, epoch=1),
    )
    return Record(
        topic=OUTCOME.name, partition=0, offset=0, timestamp_ms=START_MS, key=node.encode(), value=encode(said)
    )


def test_the_governor_hears_only_proven_nodes() -> None:
    governor = Governor("g", by_keys(Verifier([cluster_key()])))
    governor.receive([policy_record(REQUIRED)], 0)
    governor.begin([], [], START_MS, 0)
    lives = msgspec.json.encode({"node": "node-1", "boot_id": BOOT})
    governor.receive([msgspec.structs.replace(outcome_record(), topic=METRIC.name, value=lives)], 0)
    [letter] = governor.receive([forged(outcome_record())], 1)
    assert decode(letter.value, DeadLetter).reason == "proof: forged"
    assert governor.figures().waiting == 0
    governor.receive([proven(outcome_record(), key_of(expires_s=LATER_S))], 2)
    assert governor.figures().waiting == 1
