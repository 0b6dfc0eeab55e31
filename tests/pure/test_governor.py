"""The governor: who gets credit, what is said of it and when, and what it makes of records."""

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
import pytest

from slacktide.agents.credit_account import CreditAccount
from slacktide.schemas.codec import decode
from slacktide.schemas.credit import EvictionCredit
from slacktide.schemas.dead_letter import DeadLetter
from slacktide.schemas.policy.strategies import EvictionBudget
from slacktide.schemas.topics import CREDIT, DEAD_LETTER, METRIC, OUTCOME
from slacktide.streams.governor.governor import Figures, Governor
from slacktide.streams.records import Out, Record
from testbed.chains import logged
from testbed.governed import metric_record, outcome_record, policy_record
from testbed.scenarios import run, scenarios

BOOT = "000000000001-x"

FIRST_EPOCH = 1_799_999_840
"""Of a governor that finds no lease: the wall clock's seconds, ``read_back_ms`` ago."""
SURE_MS = 40_000
"""After a term has begun: as long as a lease can last that nobody knows of."""
WALL_MS = 1_800_000_000_000


def leases(outs: Iterable[Out]) -> list[EvictionCredit]:
    return [decode(out.value, EvictionCredit) for out in outs if out.topic == CREDIT.name and out.value is not None]


def lease(*, age_ms: int = 0, **of: Any) -> Record:
    known = {"node": "a", "boot_id": BOOT, "epoch": 6, "number": 1, "granted": 1, "ttl_ms": 30_000}
    made = EvictionCredit(**known | of)
    return logged(made, CREDIT, key=made.node, at_ms=WALL_MS - age_ms)


class Term:
    """A governor in office, with what it says."""

    def __init__(
        self,
        budget: Sequence[int] = (4, 2, 4),
        leases: Iterable[dict[str, Any]] = (),
        evicted: Iterable[int] = (),
        *,
        sure: bool = True,
    ) -> None:
        """``evicted``: totals of node a in the log."""
        self.now_ms = 1_000_000
        self.governor = Governor("g")
        self.budget(*budget)
        since_ms = WALL_MS - self.governor.read_back_ms()
        made = [outcome_record("a", BOOT, total, "x") for total in evicted]
        self.governor.begin([lease(**one) for one in leases], made, since_ms, self.now_ms)
        self.now_ms += SURE_MS if sure else 0

    def receive(self, *records: Record) -> list[Out]:
        return self.governor.receive(records, self.now_ms)

    def budget(self, cluster: int, node: int, namespace: int, interval_s: int = 60, lease_s: int = 30) -> None:
        budget = EvictionBudget(
            cluster_max=cluster, node_max=node, namespace_max=namespace, interval_s=interval_s, lease_s=lease_s
        )
        self.receive(policy_record(budget))

    def live(self, *nodes: str, boot: str = BOOT, stale_ms: int = 0) -> None:
        self.receive(*(metric_record(node, boot, stale_ms=stale_ms) for node in nodes))

    def lease(self, **of: Any) -> None:
        self.receive(lease(**of))

    def wants(self, *nodes: str, total: int = 0, namespace: str = "spark") -> None:
        for node in nodes:
            self.granted(node, total)
        self.receive(*(outcome_record(node, BOOT, total, namespace, done=False) for node in nodes))

    def granted(self, node: str, total: int) -> None:
        """An earlier lease of this total, which is over: only of what was granted is anything believed."""
        known = self.governor._nodes.get(node)
        if known is None or known.ledger.granted_max < total:
            self.lease(node=node, epoch=0, number=0, granted=total, ttl_ms=0)

    def evicts(self, node: str, total: int, namespace: str = "spark") -> None:
        self.granted(node, total)
        self.receive(outcome_record(node, BOOT, total, namespace))

    def outcome(self, node: str, boot: str, total: int, *, done: bool = True) -> None:
        """Of which it is not known whether it can be believed."""
        self.receive(outcome_record(node, boot, total, "spark", done=done))

    def wait(self, wait_ms: int) -> None:
        self.now_ms += wait_ms

    def tick(self, wait_ms: int = 0) -> list[EvictionCredit]:
        self.now_ms += wait_ms
        return leases(self.governor.tick(self.now_ms, WALL_MS))

    def nodes(self, wait_ms: int = 0) -> list[str]:
        return [said.node for said in self.tick(wait_ms)]

    def superseded(self) -> bool:
        return self.governor.superseded

    def begin(self) -> int:
        """A term of its own again: its epoch."""
        self.governor.begin([], [], 0, self.now_ms)
        return self.governor.epoch

    def figures(self) -> Figures:
        return self.governor.figures()


def test_quiet_nodes_cost_no_more_than_a_record_each_half_a_lease() -> None:
    term = Term(budget=[400, 2, 400])
    nodes = [f"node-{number}" for number in range(200)]
    said = []
    for _ in range(60):
        term.live(*nodes)
        said += [len(term.tick(1_000))]

    assert said[0] == 200
    assert sum(said[1:]) == 3 * 200


def test_a_new_term_has_a_higher_epoch_renews_what_it_knows_and_grants_only_when_it_is_sure() -> None:
    term = Term(leases=[{"epoch": 6}, {"node": "b", "epoch": 5}], sure=False)
    term.live("a", "c")
    term.wants("d")
    assert [(one.node, one.epoch, one.granted) for one in term.tick()] == [("a", FIRST_EPOCH, 1)]

    for _ in range(39):
        term.live("a", "c")
        term.wants("d")
        assert set(term.nodes(1_000)) <= {"a"}
    term.wants("d")
    assert "d" in term.nodes(1_000)


@pytest.mark.parametrize("epoch", [2**53, 2**63, 2**64, 10**30, 10**400])
def test_no_epoch_in_an_outcome_ends_a_term(epoch: int) -> None:
    """Epochs come from the credit topic alone."""
    term = Term()
    term.live("a")
    record = outcome_record("a", BOOT, 0, "x", done=False, epoch=77)
    forged = msgspec.structs.replace(record, value=(record.value or b"").replace(b"77", str(epoch).encode()))
    term.receive(forged)

    assert not term.superseded()
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
        term.outcome(node, boot, total)
    assert term.figures().spent <= 1
    term.wants("b", "c")

    assert {"b", "c"} <= set(term.nodes())


def test_invented_nodes_are_granted_nothing() -> None:
    term = Term()
    term.live("a")
    for n in range(1_000):
        term.outcome(f"invented-{n}", BOOT, 0, done=False)

    assert term.nodes() == ["a"]
    assert term.figures().waiting == 0


def test_an_outcome_under_another_nodes_key_is_a_dead_letter() -> None:
    term = Term()
    term.live("a")
    [out] = term.receive(msgspec.structs.replace(outcome_record("a", BOOT, 1, "x"), key=b"b"))

    assert "key" in decode(out.value, DeadLetter).reason


def test_the_last_epoch_there_can_be_ends_nothing() -> None:
    """The credit topic is the governor's own; what stands there by mistake must not end evictions for good."""
    last = {"node": "z", "epoch": 2**53, "number": 2**53}
    credit_account = CreditAccount(BOOT)
    credit_account.receive(EvictionCredit(**last | {"boot_id": "another"}, granted=1, ttl_ms=30_000), since_ns=0)
    for number in range(2):
        term = Term(leases=[last])
        term.live("a")
        [said] = term.tick()
        term.lease(**msgspec.to_builtins(said))
        assert not term.superseded()
        credit_account.receive(said, since_ns=0)
        assert credit_account.ready(1, "x"), f"governor {number}"


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

    huge = lease(granted=2**60).value
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


@scenarios("governor")
def test_governor(case: dict[str, Any]) -> None:
    run(case, Term)
