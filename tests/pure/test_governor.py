"""The governor: who gets credit, what is said of it and when, and what it makes of records."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
import pytest

from slacktide.agents.credit_account import CreditAccount
from slacktide.schemas.codec import decode, encode
from slacktide.schemas.credit import DESCHEDULER, EvictionCredit
from slacktide.schemas.dead_letter import DeadLetter
from slacktide.schemas.policy.budget import EvictionBudget
from slacktide.schemas.topics import CREDIT, DEAD_LETTER, METRIC, OUTCOME
from slacktide.streams.governor.governor import Governor
from slacktide.streams.records import Out, Record
from testbed.governed import metric_record, outcome_record, policy_record

BOOT, LATER_BOOT = "000000000001-x", "000000000002-x"
BUDGET = EvictionBudget(cluster_max=4, node_max=2, namespace_max=4, interval_s=60, lease_s=30)
FIRST_EPOCH = 1_799_999_840
"""Of a governor that finds no lease: the wall clock's seconds, ``read_back_ms`` ago."""
SURE_MS = 40_000
"""After a term has begun: as long as a lease can last that nobody knows of."""
WALL_MS = 1_800_000_000_000


def leases(outs: Iterable[Out]) -> list[EvictionCredit]:
    return [decode(out.value, EvictionCredit) for out in outs if out.topic == CREDIT.name and out.value is not None]


def lease(node: str = "a", boot: str = BOOT, *, epoch: int = 6, number: int = 1, granted: int = 1, spent: int = 0):
    return EvictionCredit(
        node=node, boot_id=boot, epoch=epoch, number=number, granted=granted, ttl_ms=30_000, spent=spent
    )


def credit_record(said: EvictionCredit, age_ms: int = 0) -> Record:
    value = encode(said)
    return Record(
        topic=CREDIT.name, partition=0, offset=0, timestamp_ms=WALL_MS - age_ms, key=said.node.encode(), value=value
    )


class Term:
    """A governor in office, with what it says."""

    def __init__(self, budget: EvictionBudget = BUDGET, *, known: Iterable[Record] = (), sure: bool = True) -> None:
        self.now_ms = 1_000_000
        self.governor = Governor("g")
        self.governor.receive([policy_record(budget)], self.now_ms)
        since_ms = WALL_MS - self.governor.read_back_ms()
        said = [one for one in known if one.topic == CREDIT.name]
        made = [one for one in known if one.topic == OUTCOME.name]
        self.governor.begin(said, made, since_ms, self.now_ms)
        self.now_ms += SURE_MS if sure else 0

    def live(self, *nodes: str, boot: str = BOOT) -> None:
        self.receive(*(metric_record(node, boot) for node in nodes))

    def receive(self, *records: Record) -> list[Out]:
        return self.governor.receive(records, self.now_ms)

    def wants(self, *nodes: str, total: int = 0, namespace: str = "spark") -> None:
        for node in nodes:
            self.granted(node, total)
        self.receive(*(outcome_record(node, BOOT, total, namespace, done=False) for node in nodes))

    def granted(self, node: str, total: int, boot: str = BOOT) -> None:
        """An earlier lease of this total, which is over: only of what was granted is anything believed."""
        known = self.governor._nodes.get(node)
        if known is not None and known.ledger.granted_max >= total:
            return
        earlier = EvictionCredit(node=node, boot_id=boot, epoch=0, number=0, granted=total, ttl_ms=0)
        self.receive(credit_record(earlier))

    def evicts(self, node: str, total: int, namespace: str = "spark") -> None:
        self.granted(node, total)
        self.receive(outcome_record(node, BOOT, total, namespace))

    def tick(self, wait_ms: int = 0) -> list[EvictionCredit]:
        self.now_ms += wait_ms
        return leases(self.governor.tick(self.now_ms, WALL_MS))

    def nodes(self, wait_ms: int = 0) -> list[str]:
        return [said.node for said in self.tick(wait_ms)]


def test_live_nodes_keep_a_standing_credit_each_while_half_of_the_budget_stays_free() -> None:
    term = Term()
    term.live("a", "b", "c")

    said = term.tick()

    assert [(one.node, one.boot_id, one.granted, one.ttl_ms, one.epoch, one.spent) for one in said] == [
        ("a", BOOT, 1, 30_000, term.governor.epoch, 0),
        ("b", BOOT, 1, 30_000, term.governor.epoch, 0),
    ]
    assert len({one.number for one in said}) == 2
    assert term.tick(1_000) == []


def test_who_asks_is_served_first_by_fewest_evictions_then_by_who_waits_longest_then_by_name() -> None:
    term = Term(EvictionBudget(cluster_max=4, node_max=4, namespace_max=4, interval_s=60, lease_s=30))
    term.evicts("c", 1)
    term.wants("c", total=1)
    term.now_ms += 500
    term.wants("b", "a")
    term.now_ms += 500
    term.wants("0")
    term.live("y", "z")

    assert term.nodes() == ["a", "b", "0"], "one of four is spent; of c the fourth would be the fifth"
    assert term.nodes(61_000 - 1_000) == [], "c asks no more"


def test_a_node_gets_its_next_when_it_has_spent_the_last() -> None:
    term = Term()
    term.wants("a")
    first = term.tick()
    term.now_ms += 500
    term.evicts("a", 1)
    term.wants("a", total=1)
    second = term.tick()
    term.evicts("a", 2)
    term.wants("a", total=2)

    assert [(one.granted, one.spent) for one in first + second] == [(1, 0), (2, 1)]
    assert term.tick() == [], "two in an interval are what a node may"
    term.now_ms += 60_500
    term.wants("a", total=2)
    assert [one.granted for one in term.tick()] == [3]


def test_a_lease_is_renewed_at_half_its_time_as_long_as_its_node_lives() -> None:
    term = Term()
    term.live("a")
    [first] = term.tick()
    assert term.tick(14_900) == []
    [renewed] = term.tick(100)
    assert (renewed.granted, renewed.epoch) == (first.granted, first.epoch)
    assert renewed.number > first.number

    assert term.tick(60_000) == [], "it has not been heard of for a minute"


def test_a_stale_metric_is_no_sign_of_life() -> None:
    """It is said of a node that is silent, every 5 s."""
    term = Term()
    term.live("a")
    term.tick()
    term.now_ms += 40_000
    term.receive(metric_record("a", BOOT, stale_ms=40_000))

    assert term.tick() == []


def test_a_lease_of_which_nothing_is_heard_counts_until_what_was_made_by_it_is_an_interval_old() -> None:
    """It may have come a third of its time late, and been spent at its very end."""
    term = Term(EvictionBudget(cluster_max=1, node_max=1, namespace_max=1, interval_s=60, lease_s=30))
    term.wants("a")
    assert term.nodes() == ["a"]
    term.now_ms += 99_999
    term.wants("b")
    assert term.nodes() == []
    assert term.nodes(1) == ["b"]


def test_quiet_nodes_cost_no_more_than_a_record_each_half_a_lease() -> None:
    term = Term(EvictionBudget(cluster_max=400, node_max=2, namespace_max=400, interval_s=60, lease_s=30))
    nodes = [f"node-{number}" for number in range(200)]
    said = []
    for _ in range(60):
        term.live(*nodes)
        said += [len(term.tick(1_000))]

    assert said[0] == 200
    assert sum(said[1:]) == 3 * 200


def test_of_standing_credit_nothing_is_renewed_while_others_wait_for_the_clusters_budget() -> None:
    term = Term()
    term.live("a", "b")
    assert term.nodes() == ["a", "b"]
    term.wants("c", "d", "e")
    assert term.nodes() == ["c", "d"]
    for _ in range(4):
        term.now_ms += 4_000
        term.live("a", "b")
        term.wants("e")
        assert not {"a", "b"} & set(term.nodes())


def test_a_namespace_that_is_used_up_is_spared_and_who_wants_only_that_gets_nothing() -> None:
    term = Term(EvictionBudget(cluster_max=8, node_max=8, namespace_max=2, interval_s=60, lease_s=30))
    for total in (1, 2):
        term.evicts("a", total, "spark")
    term.wants("b", namespace="spark")
    assert term.tick() == []
    term.wants("c", namespace="flink")
    [said] = term.tick()
    assert (said.node, said.spared_namespaces) == ("c", ["spark"])


def test_credit_that_is_out_counts_against_every_namespace() -> None:
    """It may be spent in any: so no more is out than one of them may lose."""
    term = Term(EvictionBudget(cluster_max=8, node_max=8, namespace_max=2, interval_s=60, lease_s=30))
    for node, namespace in (("a", "spark"), ("b", "flink"), ("c", "ray")):
        term.wants(node, namespace=namespace)

    assert term.nodes() == ["a", "b"]


def test_an_eviction_of_which_only_a_later_total_tells_counts_against_every_namespace() -> None:
    term = Term(EvictionBudget(cluster_max=8, node_max=8, namespace_max=2, interval_s=60, lease_s=30))
    term.wants("a")
    term.tick()
    term.wants("a", total=1)
    term.evicts("b", 1, "flink")
    term.wants("c", namespace="flink")

    assert [(one.node, one.spared_namespaces) for one in term.tick()] == [("a", ["flink"])]


def test_a_node_that_goes_on_asking_has_not_heard_and_is_told_again() -> None:
    term = Term()
    term.wants("a")
    [first] = term.tick()
    term.now_ms += 1_000
    term.wants("a")
    assert term.tick() == []
    term.now_ms += 1_500
    term.wants("a")
    [again] = term.tick()

    assert (again.granted, again.number > first.number) == (first.granted, True)


def test_a_new_boot_begins_at_nothing_and_what_its_earlier_one_had_counts() -> None:
    term = Term(EvictionBudget(cluster_max=4, node_max=2, namespace_max=4, interval_s=60, lease_s=30))
    term.live("a")
    term.tick()
    term.evicts("a", 1)
    term.live("a")
    term.tick()
    term.live("a", boot=LATER_BOOT)

    assert term.tick() == [], "one was seen, one may have been made: two are what the node may"
    term.live("a", boot=BOOT)
    assert term.tick() == [], "a late word of the old one"
    term.now_ms += 61_000
    term.live("a", boot=LATER_BOOT)
    assert [(one.boot_id, one.granted) for one in term.tick()] == [(LATER_BOOT, 1)]


def test_a_new_term_has_a_higher_epoch_renews_what_it_knows_and_grants_only_when_it_is_sure() -> None:
    known = [credit_record(lease("a", epoch=6)), credit_record(lease("b", epoch=5))]
    term = Term(known=known, sure=False)
    term.live("a", "c")
    term.wants("d")
    assert [(one.node, one.epoch, one.granted) for one in term.tick()] == [("a", term.governor.epoch, 1)]
    assert term.governor.epoch > 6
    for _ in range(39):
        term.live("a", "c")
        term.wants("d")
        assert set(term.nodes(1_000)) <= {"a"}
    term.wants("d")
    assert "d" in term.nodes(1_000)


def test_evictions_of_the_last_interval_count_in_a_new_term() -> None:
    known = [
        credit_record(lease("a", granted=4, spent=0)),
        *(outcome_record("a", BOOT, total, "x") for total in (3, 4)),
    ]
    term = Term(EvictionBudget(cluster_max=4, node_max=4, namespace_max=4, interval_s=60, lease_s=30), known=known)
    term.wants("b")
    assert term.nodes() == [], "four of four: of two only the total told"
    term.now_ms += 21_000
    term.wants("b")
    assert term.nodes() == ["b"]


def test_of_leases_and_outcomes_that_are_long_over_only_the_total_counts() -> None:
    old = credit_record(lease("a", granted=9, spent=8), age_ms=600_000)
    term = Term(known=[old], sure=False)
    assert term.governor.figures().outstanding == 0
    term.now_ms += SURE_MS
    term.live("a")
    assert [one.granted for one in term.tick()] == [9]


@pytest.mark.parametrize(
    "word",
    [
        pytest.param(credit_record(lease("z", epoch=FIRST_EPOCH + 1)), id="a lease of a later term"),
        pytest.param(credit_record(lease("z", epoch=FIRST_EPOCH, number=99)), id="a namesake's lease"),
    ],
)
def test_a_lease_of_another_governor_ends_the_term(word: Record) -> None:
    term = Term()
    assert term.governor.epoch == FIRST_EPOCH
    assert not term.governor.superseded
    term.receive(word)
    assert term.governor.superseded
    term.governor.begin([], [], 0, term.now_ms)
    assert not term.governor.superseded
    assert term.governor.epoch > FIRST_EPOCH


@pytest.mark.parametrize("epoch", [2**53, 2**63, 2**64, 10**30, 10**400])
def test_no_epoch_in_an_outcome_ends_a_term(epoch: int) -> None:
    """Epochs come from the credit topic alone."""
    term = Term()
    term.live("a")
    record = outcome_record("a", BOOT, 0, "x", done=False, epoch=77)
    forged = msgspec.structs.replace(record, value=(record.value or b"").replace(b"77", str(epoch).encode()))
    term.receive(forged)

    assert not term.governor.superseded
    assert term.nodes() == ["a"]


@pytest.mark.parametrize("total", [4, 2**53])
@pytest.mark.parametrize("boot", [BOOT, "999999999999-x", "000000000000-x"])
@pytest.mark.parametrize("node", ["a", "b", "invented"])
def test_a_forged_total_takes_no_more_of_the_budget_than_was_granted(node: str, boot: str, total: int) -> None:
    """``a`` was granted one eviction, ``b`` none, and the third is no node."""
    term = Term()
    term.live("a")
    assert term.nodes() == ["a"]
    term.live("b", "c")
    for _ in range(3):
        term.receive(outcome_record(node, boot, total, "spark"))
    assert term.governor.figures().spent <= 1
    term.wants("b", "c")

    assert {"b", "c"} <= set(term.nodes())


def test_invented_nodes_are_granted_nothing() -> None:
    term = Term()
    term.live("a")
    term.receive(*(outcome_record(f"invented-{n}", BOOT, 0, "x", done=False) for n in range(1_000)))

    assert term.nodes() == ["a"]
    assert term.governor.figures().waiting == 0


def test_an_outcome_under_another_nodes_key_is_a_dead_letter() -> None:
    term = Term()
    term.live("a")
    [out] = term.receive(msgspec.structs.replace(outcome_record("a", BOOT, 1, "x"), key=b"b"))

    assert "key" in decode(out.value, DeadLetter).reason


def test_the_last_epoch_there_can_be_ends_nothing() -> None:
    """The credit topic is the governor's own; what stands there by mistake must not end evictions for good."""
    last = lease("z", epoch=2**53, number=2**53)
    credit_account = CreditAccount(BOOT)
    credit_account.receive(msgspec.structs.replace(last, boot_id="another"), since_ns=0)
    for number in range(2):
        term = Term(known=[credit_record(last)])
        term.live("a")
        [said] = term.tick()
        term.receive(credit_record(said))
        assert not term.governor.superseded
        credit_account.receive(said, since_ns=0)
        assert credit_account.ready(1, "x"), f"governor {number}"


def test_its_own_leases_read_back_change_nothing() -> None:
    term = Term()
    term.live("a")
    [said] = term.tick()
    term.receive(credit_record(said))

    assert not term.governor.superseded
    assert term.tick(1_000) == []


def test_a_removed_nodes_lease_goes_from_the_topic() -> None:
    term = Term()
    term.live("a")
    term.tick()
    gone = Record(topic=METRIC.name, partition=0, offset=0, timestamp_ms=0, key=b"a", value=None)
    [out] = term.receive(gone)

    assert (out.topic, out.key, out.value, out.partition) == (CREDIT.name, b"a", None, 0)
    assert term.receive(gone) == []
    assert term.tick(20_000) == []


def test_what_nobody_can_use_is_a_dead_letter_and_stops_nothing() -> None:
    def bad(topic: str, value: bytes) -> Record:
        return Record(topic=topic, partition=1, offset=2, timestamp_ms=WALL_MS, key=b"a", value=value)

    huge = encode(lease(granted=2**60))
    term = Term()
    outs = term.receive(
        bad(OUTCOME.name, b'{"spent":'), bad(CREDIT.name, b"x"), bad(CREDIT.name, huge), bad(METRIC.name, b"")
    )
    assert [out.topic for out in outs] == [DEAD_LETTER.name] * 3
    letters = [decode(out.value, DeadLetter) for out in outs]
    assert {(letter.reader, letter.topic) for letter in letters} == {
        ("governor/g", OUTCOME.name),
        ("governor/g", CREDIT.name),
    }
    nothing = Record(topic=CREDIT.name, partition=0, offset=0, timestamp_ms=0, key=b"a", value=None)
    assert term.receive(nothing) == []
    term.live("a")
    assert term.nodes() == ["a"]


def test_a_changed_policy_holds_at_once_for_what_is_granted_then() -> None:
    term = Term()
    term.wants("a")
    term.tick()
    term.receive(policy_record(EvictionBudget(cluster_max=1, node_max=1, namespace_max=1, interval_s=60, lease_s=12)))
    term.wants("b")
    assert term.nodes() == []
    term.receive(policy_record(EvictionBudget(cluster_max=0, node_max=0, namespace_max=0)))
    term.now_ms += 200_000
    term.wants("b")
    assert term.nodes() == [], "none at all"
    term.receive(policy_record(EvictionBudget(lease_s=12)))
    assert [(one.node, one.ttl_ms) for one in term.tick()] == [("b", 12_000)]


def test_figures_say_how_things_stand() -> None:
    term = Term()
    term.evicts("a", 1)
    term.wants("b")
    term.tick()

    found = term.governor.figures()
    assert (found.granted, found.outstanding, found.spent, found.waiting) == (1, 1, 1, 1)
    assert found.budget == BUDGET.cluster_max


def test_credit_that_is_out_counts_against_a_namespace_that_has_lost_pods() -> None:
    term = Term(EvictionBudget(cluster_max=8, node_max=8, namespace_max=2, interval_s=60, lease_s=30))
    term.evicts("a", 1, "spark")
    term.wants("b", namespace="spark")
    assert [(one.node, one.spared_namespaces) for one in term.tick()] == [("b", [])]
    term.wants("c", namespace="flink")
    assert [(one.node, one.spared_namespaces) for one in term.tick()] == [("c", ["spark"])]


def test_what_an_earlier_governor_saw_spent_counts_also_where_no_outcome_tells_of_it() -> None:
    said = [lease(number=1), lease(number=2, granted=3, spent=2)]
    term = Term(known=[credit_record(one) for one in said], sure=False)
    term.tick()

    found = term.governor.figures()
    assert (found.spent, found.outstanding) == (2, 1)


def test_a_lease_of_one_who_does_not_know_that_its_term_is_over_counts() -> None:
    term = Term(EvictionBudget(cluster_max=1, node_max=1, namespace_max=1, interval_s=60, lease_s=30))
    term.receive(credit_record(lease("z", epoch=0)))
    term.wants("b")

    assert term.nodes() == []
    assert not term.governor.superseded


def test_descheduling_has_an_account_within_the_clusters_budget_that_gets_what_it_asks_for_alone() -> None:
    term = Term(EvictionBudget(cluster_max=2, node_max=2, namespace_max=2, interval_s=60, lease_s=30))
    ours, older = "000000000007-bridge", "000000000006-bridge"

    def asks(boot: str, total: int) -> None:
        term.receive(outcome_record(DESCHEDULER, boot, total, "jobs", done=False))

    assert term.tick() == [], "nobody lives there"
    asks(ours, 0)
    [said] = term.tick()
    assert (said.node, said.boot_id, said.granted) == (DESCHEDULER, ours, 1)
    asks(older, 0)
    assert term.tick() == [], "a bridge that leads no more"
    term.receive(outcome_record(DESCHEDULER, ours, 1, "jobs"))
    assert term.tick(10_000) == [], "one at a time"
    term.live("a")
    term.wants("a")
    [said] = term.tick()
    assert said.node == "a"
    asks(ours, 1)
    assert [one.node for one in term.tick()] == [], "the cluster's two are spent, one here and one there"
