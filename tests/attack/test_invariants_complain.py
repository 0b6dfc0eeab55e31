"""Each invariant can fail: a whole history passes, and one that is broken in one way is found out by name."""

from collections.abc import Callable

import msgspec
import pytest

from attack import mirror
from slacktide.schemas.allocatable import NodeAllocatable
from slacktide.schemas.codec import decode, encode
from slacktide.schemas.command import NodeCommand
from slacktide.schemas.credit import EvictionCredit
from slacktide.schemas.dead_letter import DeadLetter
from slacktide.schemas.inventory import NodeFacts, NodeInventory, Pod, Resources
from slacktide.schemas.metric import NodeMetric
from slacktide.schemas.outcome import NodeOutcome, Spent
from slacktide.schemas.policy.strategies import EvictionBudget
from slacktide.schemas.sample import Limits
from slacktide.schemas.topics import (
    ALLOCATABLE,
    COMMAND,
    CREDIT,
    DEAD_LETTER,
    INVENTORY,
    METRIC,
    OUTCOME,
    SAMPLE,
    Topic,
)
from slacktide.streams.records import Record
from testbed.chains import Chain, evicted, logged, outcome
from testbed.history import acts, checks
from testbed.history.records import History, Shown
from testbed.history.verdict import verdict
from testbed.samples import BOOT, PODS, START_MS

BUDGET = EvictionBudget(cluster_max=2, node_max=1, namespace_max=2, interval_s=60, lease_s=6)
SOLD_TO = Pod(
    uid="sold",
    namespace="jobs",
    name="sold",
    qos_label="BE",
    requests=Resources(batch_cpu_milli=500, batch_mem_bytes=9),
)
LATER_BOOT = "000000000002-b"
QUOTAS_US = [None, 120_000, 110_000, 130_000, 90_000]


def act(seq: int, before_us: int | None, after_us: int | None, **changes: object) -> NodeOutcome:
    """An act on the limit."""
    limits = {"before": Limits(be_cfs_quota_us=before_us), "after": Limits(be_cfs_quota_us=after_us)}
    return outcome(seq, **limits | changes)


def lease(number: int, granted: int = 2, **changes: object) -> EvictionCredit:
    fields = {"node": "node-1", "boot_id": BOOT, "epoch": 3, "number": number, "granted": granted, "ttl_ms": 6_000}
    return EvictionCredit(**fields | changes)


def gone(seq: int, spent: int, name: str = "etl", **changes: object) -> NodeOutcome:
    """A pod was asked to go."""
    return evicted(seq, name, spent=Spent(evictions=spent, epoch=3), **changes)


def looks(ms: int, quota_us: int | None, until_ms: int) -> list[Shown]:
    """A look each 100 ms, of 5 ms."""
    return [Shown(START_MS + at_ms, START_MS + at_ms + 5, quota_us) for at_ms in range(ms + 40, until_ms, 100)]


class Run:
    """A history that is whole: twenty seconds of one node."""

    def __init__(self) -> None:
        self.chain = Chain(pods=[*PODS, SOLD_TO])
        self.chain.run(1, 20)
        self.shown = looks(0, QUOTAS_US[0], 1_000)
        for seq, after_us in enumerate(QUOTAS_US[1:], 1):
            self.put(act(seq, QUOTAS_US[seq - 1], after_us), OUTCOME, seq)
            self.shown += looks(seq * 1_000, after_us, seq * 1_000 + 1_000)
        for number in (1, 2):
            self.put(lease(number), CREDIT, number)
        self.put(gone(5, 1), OUTCOME, 5)
        self.chain.records.append(
            Record(topic=SAMPLE.name, partition=0, offset=999, timestamp_ms=START_MS, key=b"node-1", value=b"{")
        )
        self.bury(999)

    def put(self, body: msgspec.Struct, topic: Topic, seq: int = 30) -> None:
        self.chain.put(body, topic, at_ms=START_MS + seq * 1_000)

    def bury(self, offset: int) -> None:
        where = {"topic": SAMPLE.name, "partition": 0, "offset": offset}
        self.put(DeadLetter(**where, reason="no JSON", reader="stream", refused_ms=0), DEAD_LETTER)

    def newest(self, topic: Topic, kind: type[msgspec.Struct]) -> msgspec.Struct:
        return decode([one.value for one in self.chain.records if one.topic == topic.name][-1], kind)

    def drop(self, topic: Topic, nth: int = 0) -> None:
        found = [one for one in self.chain.records if one.topic == topic.name]
        self.chain.records.remove(found[nth])

    def broken(self) -> list[str]:
        history = History(self.chain.records, kernels={"node-1": self.shown})
        return checks.broken(checks.judge(history, BUDGET))


def test_a_whole_history_breaks_nothing_and_every_invariant_has_cases() -> None:
    run = Run()
    verdicts = checks.judge(History(run.chain.records, kernels={"node-1": run.shown}), BUDGET)
    without = [each.invariant for each in verdicts if not each.checked]

    assert not checks.broken(verdicts), checks.report(verdicts)
    assert without == ["only silent nodes stale"]


def test_a_throttle_and_its_end_are_two_acts_and_two_throttles_are_one_too_many() -> None:
    throttled = act(4, 90_000, 2_000, rule="BEMemoryEvict", bound="throttled")
    lifted = act(4, 2_000, 90_000, rule="BEMemoryEvict", bound="lifted")

    assert acts.done_twice([throttled, lifted]) == []
    assert acts.done_twice([throttled, lifted, throttled]) == [acts.act_of(throttled)]


def unreported(run: Run) -> None:
    run.shown[15:15] = looks(1_430, 55_000, 1_480)


def untrue(run: Run) -> None:
    run.put(act(9, 90_000, 70_000), OUTCOME)
    run.shown += looks(9_300, 90_000, 9_500)


def hasty_raise(run: Run) -> None:
    for seq, (before_us, after_us), ms in ((9, (90_000, 95_000), 9_000), (10, (95_000, 99_000), 9_880)):
        run.put(act(seq, before_us, after_us, acted_ms=START_MS + ms, origin="guard"), OUTCOME)
        run.shown += looks(ms, after_us, ms + 80)


def without_credit(run: Run) -> None:
    for spent in (2, 3):
        run.put(gone(90 * spent, spent, f"job-{spent}"), OUTCOME)


def beyond_the_budget(run: Run) -> None:
    run.put(lease(3, granted=9), CREDIT)
    for spent in (2, 3, 4):
        run.put(gone(5 + spent, spent, f"job-{spent}"), OUTCOME)


def boot_falls(run: Run) -> None:
    run.chain.take(21, boot_id=LATER_BOOT)
    run.chain.take(22)


def torn_over_a_restart(run: Run) -> None:
    run.put(act(1, 100_000, 100_000, result="unchanged", boot_id=LATER_BOOT, origin="agent"), OUTCOME)


def good_record_buried(run: Run) -> None:
    run.bury(next(one.offset for one in run.chain.records if one.topic == SAMPLE.name))


def again(topic: Topic, kind: type[msgspec.Struct], at_s: int = 30, **changes: object) -> Callable[[Run], None]:
    """The newest record, with changes."""
    return lambda run: run.put(msgspec.structs.replace(run.newest(topic, kind), **changes), topic, at_s)


def put(body: msgspec.Struct, topic: Topic = OUTCOME) -> Callable[[Run], None]:
    return lambda run: run.put(body, topic)


NOTHING = {"before": None, "after": None}
BREAKS = {
    "no answer": ("every sample answered", lambda run: run.drop(COMMAND, 7)),
    "unasked": ("only samples answered", again(COMMAND, NodeCommand, seq=77)),
    "another answer": ("answers agree", again(COMMAND, NodeCommand, answer="keep", hold=[])),
    "done twice": ("no act twice", put(act(4, 90_000, 90_000, result="unchanged", observed_ms=0))),
    "dropped outcomes": ("one outcome each", put(act(9, None, None, result="gap", count=7, **NOTHING))),
    "unreported": ("kernels agree with outcomes", unreported),
    "untrue": ("kernels agree with outcomes", untrue),
    "a torn chain": ("limits' chain unbroken", put(act(9, 80_000, 80_000, result="unchanged"))),
    "a chain torn over a restart": ("limits' chain unbroken", torn_over_a_restart),
    "a hasty raise": ("raises are spaced", hasty_raise),
    "without credit": ("evictions within credit", without_credit),
    "beyond the budget": ("evictions within the budget", beyond_the_budget),
    "the same pod again": ("no pod evicted twice", put(gone(90, 2))),
    "sold below": ("figures not below requests", again(ALLOCATABLE, NodeAllocatable, batch_cpu_milli=499)),
    "a stale node's figures removed without a floor": (
        "figures not below requests",
        again(ALLOCATABLE, NodeAllocatable, batch_mem_bytes=None, stale_ms=9_000),
    ),
    "stale beside samples": ("only silent nodes stale", again(METRIC, NodeMetric, 19, stale_ms=8_000)),
    "an epoch falls": ("epochs monotone", put(lease(3, epoch=2), CREDIT)),
    "a number repeats": ("epochs monotone", put(lease(2), CREDIT)),
    "a boot falls": ("epochs monotone", boot_falls),
    "a good record buried": ("only bad records are dead letters", good_record_buried),
}


@pytest.mark.parametrize(("invariant", "break_it"), BREAKS.values(), ids=BREAKS)
def test_a_history_that_is_broken_in_one_way_is_found_out(invariant, break_it) -> None:
    run = Run()
    break_it(run)

    assert invariant in run.broken()


def test_every_invariant_is_shown_to_fail() -> None:
    """A new one needs a history that breaks it."""
    judged = {each.invariant for each in checks.judge(History([]), BUDGET)}

    assert judged == {invariant for invariant, _ in BREAKS.values()}


def test_a_sample_after_the_last_worker_needs_no_answer() -> None:
    run = Run()
    run.drop(COMMAND, 7)
    asked = [one.timestamp_ms for one in run.chain.records if one.topic == SAMPLE.name][7]
    history = History(run.chain.records, until_ms=asked)

    assert "every sample answered" not in checks.broken(checks.judge(history))


def test_what_a_forger_wrote_is_not_held_against_honest_nodes() -> None:
    run = Run()
    forged = logged(msgspec.structs.replace(run.newest(COMMAND, NodeCommand), node="ghost"), COMMAND, key="ghost")
    run.chain.records.append(forged)
    honest = History(run.chain.records, nodes=frozenset({"node-1"}), kernels={"node-1": run.shown})

    assert "only samples answered" in run.broken()
    assert not checks.broken(checks.judge(honest, BUDGET))


def test_encoding_is_what_tells_two_outcomes_from_one_sent_twice() -> None:
    run = Run()
    again = next(one for one in run.chain.records if one.topic == OUTCOME.name)
    run.chain.records.append(again)

    assert encode(decode(again.value, NodeOutcome)) == again.value
    assert not run.broken()


def inventories(*epochs: int) -> History:
    facts = NodeFacts(name="node-1", capacity=Resources(), allocatable=Resources())
    said = [NodeInventory(node="node-1", revision="f", facts=facts, writer_epoch=epoch) for epoch in epochs]
    return History([logged(one, INVENTORY, key="node-1", offset=offset) for offset, one in enumerate(said)])


def test_a_bridge_that_publishes_after_its_successor_is_found_out() -> None:
    assert mirror.one_writer(inventories(0, 1, 1, 2)).broken == ()
    assert mirror.one_writer(inventories(1, 2, 1)).broken == ("node-1: (2,) then (1,)",)


def test_a_node_that_shows_what_nobody_published_of_it_is_found_out() -> None:
    run, nothing = Run(), (None, None)
    sold = msgspec.structs.replace(run.newest(ALLOCATABLE, NodeAllocatable), batch_cpu_milli=9, batch_mem_bytes=8)
    history = History([logged(sold, ALLOCATABLE, key="node-1")])
    looks = [mirror.Look("node-1", (9, 8), (9, 8)), mirror.Look("node-1", nothing, nothing)]
    assert mirror.published(looks, history) == verdict("Nodes show published figures", 1, ())
    for wrong in (mirror.Look("node-2", (9, 8), (9, 8)), mirror.Look("node-1", (9, 9), (9, 9))):
        assert mirror.published([wrong], history).broken == (str(wrong),)


def test_capacity_without_the_same_to_allocate_is_found_out() -> None:
    assert mirror.together([mirror.Look("node-1", (9, 9), (9, 9)), mirror.Look("node-1", (9, 9), (None, None))]) == (
        verdict("capacity and allocatable together", 2, ())
    )
    assert mirror.together([mirror.Look("node-1", (9, 9), (8, 9))]).broken
