"""What the audit keeps, and how it is listed."""

import base64
import json

import msgspec
import pytest

from slacktide.deploy.cli.audit import answers, nothing, shown
from slacktide.schemas.codec import encode
from slacktide.schemas.outcome import KnobChange, NodeOutcome, Spent
from slacktide.schemas.pod_admission import PodAdmission, QuotaUse
from slacktide.schemas.topics import AUDIT, HOUR_MS, OUTCOME, POD_ADMISSION
from slacktide.streams.analysis.audit.acts import Act, Choice, acts_of, admissions_of, content_of, prefilter, what
from slacktide.streams.analysis.audit.chain import Chain
from slacktide.streams.decisions.evict.node_evict import audited
from slacktide.streams.records import Record
from testbed.chains import evicted, outcome
from testbed.samples import START_MS

WEIGHT = KnobChange(knob="cpu.weight", before=1, after=2)


def record(body: NodeOutcome | bytes | None, offset: int) -> Record:
    value = encode(body) if isinstance(body, NodeOutcome) else body
    key = body.node.encode() if isinstance(body, NodeOutcome) else b"?"
    return Record(topic=AUDIT.name, partition=0, offset=offset, timestamp_ms=offset, key=key, value=value)


def held(seq: int, bound: str, **changes: object) -> NodeOutcome:
    """All best-effort pods of a node, for want of credit."""
    return evicted(seq, pod=None, target="besteffort", bound=bound, **changes)


def listed(records: list[Record], **choice: str) -> list[tuple[str, int]]:
    wanted = Choice(**choice)
    found = acts_of(filter(prefilter(wanted), records), wanted)
    return [(what(one.body), one.offset) for one in found.acts]


@pytest.mark.parametrize(
    ("said", "kept"),
    [
        (evicted(1, result="applied"), True),
        (evicted(1, result="failed"), True),
        (evicted(1, result="applied", bound="ended"), True),
        (evicted(1, result="applied", bound="frozen"), True),
        (evicted(1, result="unchanged", bound="thawed"), True),
        (held(1, "throttled", result="applied"), True),
        (held(1, "lifted", result="unchanged"), True),
        (evicted(1, result="refused", reason="no credit"), False),
        (evicted(1, result="dry-run"), False),
        (evicted(1, result="unchanged", reason="it has no processes"), False),
        (evicted(1, result="applied", knob=WEIGHT), False),
        (held(1, "throttled", result="gap"), False),
        (outcome(1), False),
        (outcome(1, bound="throttled"), False),
    ],
)
def test_the_audit_keeps_what_was_done_to_pods_and_neither_wishes_nor_limits(said: NodeOutcome, *, kept: bool) -> None:
    assert audited(said) is kept


def test_the_audit_outlives_outcomes_and_no_key_is_compacted_away() -> None:
    assert AUDIT.retention_ms == 30 * 24 * HOUR_MS > (OUTCOME.retention_ms or 0)
    assert AUDIT.cleanup == "delete"


def test_acts_are_chosen_by_node_pod_and_namespace_each_once_in_order() -> None:
    records = [
        record(evicted(2, result="applied", acted_ms=20), 1),
        record(held(1, "throttled", result="applied", acted_ms=10), 2),
        record(evicted(2, result="applied", acted_ms=20), 3),
        record(evicted(3, "web-abcde", "shop", node="beta", result="applied", acted_ms=30), 4),
        record(evicted(4, result="applied", bound="killed", acted_ms=40), 5),
    ]

    assert listed(records) == [("throttled", 2), ("evicted", 1), ("evicted", 4), ("killed", 5)]
    assert listed(records, node="beta") == [("evicted", 4)]
    assert listed(records, pod="jobs/etl-x2lqp") == [("evicted", 1), ("killed", 5)]
    assert listed(records, pod="shop") == [("evicted", 4)]
    assert listed(records, pod="jobs/etl") == []


def test_a_record_that_cannot_be_decoded_is_counted_and_exported_as_it_is() -> None:
    bad = [record(b"oops", 1), record(None, 2), record(b'{"node":\n"n"}', 3)]

    assert acts_of(bad, Choice()).unreadable == 3
    chain = Chain()
    lines = [json.loads(chain.line(**content_of(one))) for one in bad]
    assert [base64.b64decode(one["value_base64"]) for one in (lines[0], lines[2])] == [bad[0].value, bad[2].value]
    assert lines[1]["body"] is None


def test_an_exported_body_is_the_record_with_fields_that_are_not_known_here() -> None:
    body = msgspec.json.decode(encode(evicted(1, result="applied"))) | {"of_a_later_version": [1]}
    line = Chain().line(**content_of(record(msgspec.json.encode(body), 7)))

    assert json.loads(line)["body"] == body
    assert json.loads(line)["offset"] == 7


def test_the_list_names_rule_threshold_policy_and_credit(snapshot) -> None:
    """And an empty answer what the audit has."""
    one = evicted(1, result="applied", spent=Spent(evictions=3, epoch=2), policy_version="18afae67cdad")
    empty = [nothing("", [], 0, START_MS), nothing("node-2", ["node-1"], 0, START_MS)]
    assert "\n\n".join([shown([Act(partition=0, offset=1, body=one)]), *empty]) == snapshot


def answered(name: str, band: str, result: str, *uses: QuotaUse, namespace: str = "team-a", ms: int = 0) -> Record:
    body = PodAdmission(
        namespace=namespace, name=name, band=band, result=result, uses=list(uses), decided_ms=START_MS + ms
    )
    key = namespace.encode()
    return Record(topic=POD_ADMISSION.name, partition=0, offset=ms, timestamp_ms=ms, key=key, value=encode(body))


ANSWERS = [
    answered(
        "web-",
        "prod",
        "over_quota",
        QuotaUse(resource="cpu_milli", asked=500, used=7_750, quota=8_000),
        QuotaUse(resource="mem_bytes", asked=1 << 30, used=0, quota=2 << 30),
        ms=1,
    ),
    answered(
        "etl", "batch", "borrowed", QuotaUse(resource="batch_cpu_milli", asked=2_000, used=1_000, quota=2_000), ms=2
    ),
    answered("sweep", "free", "admitted", QuotaUse(resource="free_cpu_milli", asked=2_000), ms=3, namespace="team-b"),
]


def test_answers_of_quotas_are_chosen_by_pod_and_namespace_each_once() -> None:
    def names(pod: str) -> list[str]:
        records = [*ANSWERS, ANSWERS[1], record(b"oops", 9)]
        return [one.body.name for one in admissions_of(filter(prefilter(Choice(pod=pod)), records), pod)]

    assert names("") == ["web-", "etl", "sweep"]
    assert names("team-a") == ["web-", "etl"]
    assert names("team-a/etl") == ["etl"]
    assert names("team-b/etl") == []


def test_an_answer_of_a_quota_is_listed_with_its_numbers(snapshot) -> None:
    assert answers(admissions_of(ANSWERS, "")) == snapshot
