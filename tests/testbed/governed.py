"""A small cluster under a governor, in virtual time: real credit accounts, a real governor, a lossy log."""

import random
from collections.abc import Iterable
from dataclasses import dataclass, field

from slacktide.agents.credit_account import CreditAccount
from slacktide.schemas.codec import decode, encode
from slacktide.schemas.credit import NO_CREDIT, EvictionCredit
from slacktide.schemas.metric import NodeMetric, Use
from slacktide.schemas.outcome import NodeOutcome, PodName, Spent
from slacktide.schemas.policy import KEY, Policy, versioned
from slacktide.schemas.policy.strategies import EvictionBudget
from slacktide.schemas.proof import Mode
from slacktide.schemas.topics import CREDIT, METRIC, OUTCOME, POLICY
from slacktide.streams.governor.governor import Governor
from slacktide.streams.records import Record
from testbed.history.evictions import most_within

BUDGET = EvictionBudget(cluster_max=4, node_max=2, namespace_max=3, interval_s=20, lease_s=6)
NAMESPACES = ("spark", "flink")
TICK_MS = 200
WALL_MS = 1_800_000_000_000


def policy_record(budget: EvictionBudget, node_proof: Mode = "off") -> Record:
    policy = Policy(version="", eviction_budget=budget, node_proof=node_proof)
    return _record(POLICY.name, KEY.encode(), encode(versioned(policy)), 0)


def metric_record(node: str, boot_id: str, now_ms: int = 0, *, stale_ms: int = 0) -> Record:
    """A sign of life, unless it is stale."""
    use = Use(cpu_milli=1, mem_bytes=1)
    metric = NodeMetric(
        node=node, boot_id=boot_id, seq=1, observed_ms=0, window_ms=1, covered_ms=1, samples=1, policy_version="",
        facts_revision="", pods_revision="", node_use=use, system_use=use, stale_ms=stale_ms,
    )  # fmt: skip
    return _record(METRIC.name, node.encode(), encode(metric), now_ms)


def outcome_record(
    node: str, boot_id: str, total: int, namespace: str, now_ms: int = 0, *, done: bool = True, epoch: int = 0
) -> Record:
    outcome = NodeOutcome(
        node=node, boot_id=boot_id, seq=1, command_id=f"{total}", rule="BEMemoryEvict", target="pod/uid",
        origin="stream", result="applied" if done else "refused", reason="" if done else NO_CREDIT,
        policy_version="", observed_ms=0, acted_ms=0, age_ms=0, pod=PodName(namespace=namespace, name="pod"),
        spent=Spent(evictions=total, epoch=epoch),
    )  # fmt: skip
    return _record(OUTCOME.name, node.encode(), encode(outcome), now_ms)


def _record(topic: str, key: bytes, value: bytes | None, now_ms: int) -> Record:
    return Record(topic=topic, partition=0, offset=0, timestamp_ms=WALL_MS + now_ms, key=key, value=value)


@dataclass(slots=True)
class Agent:
    """One node: it evicts when it may."""

    name: str
    boots: int = 1
    credit_account: CreditAccount = field(default_factory=lambda: CreditAccount("000000000001-x"))

    @property
    def boot_id(self) -> str:
        return f"{self.boots:012}-x"

    def reboot(self) -> None:
        self.boots += 1
        self.credit_account = CreditAccount(self.boot_id)


class Cluster:
    """Agents, the log between them and the governor, and what really happened."""

    def __init__(self, nodes: int, *, budget: EvictionBudget = BUDGET, seed: int = 0, faults: float = 0.0) -> None:
        self.now_ms = 0
        self.budget = budget
        self.evictions: list[tuple[int, str, str]] = []
        """When, where, of which namespace."""
        self.said: list[EvictionCredit] = []
        self.silent: list[Agent] = []
        """Whose metrics nobody hears."""
        self.agents = [Agent(f"node-{number}") for number in range(nodes)]
        self.governor = Governor("first")
        self._random = random.Random(seed)
        self._faults = faults
        self._leases: list[Record] = []
        self._outcomes: list[Record] = []
        self._coming: list[tuple[int, Agent, EvictionCredit]] = []
        self._late: list[tuple[int, Record]] = []
        self._begin(self.governor)

    def wait(self, wait_ms: int) -> None:
        until_ms = self.now_ms + wait_ms
        while self.now_ms < until_ms:
            self.now_ms = min(until_ms, self.now_ms + TICK_MS)
            self._deliver()
            self._receive(
                metric_record(one.name, one.boot_id, self.now_ms) for one in self.agents if one not in self.silent
            )
            self._publish(self.governor)

    def evict(self, agent: Agent, namespace: str) -> bool:
        """The node is pressed: a pod goes if it may, else it says that it would."""
        now_ns = self.now_ms * 1_000_000
        done = agent.credit_account.ready(now_ns, namespace)
        if done:
            agent.credit_account.spend(now_ns)
            self.evictions.append((self.now_ms, agent.name, namespace))
        credit_account = agent.credit_account
        record = outcome_record(
            agent.name, agent.boot_id, credit_account.spent, namespace, done=done, epoch=credit_account.epoch
        )
        if self._random.random() >= self._faults:
            self._append(record)
        elif self._random.random() < 0.5:
            self._late.append((self.now_ms + self._random.randrange(60_000), record))
        return done

    def repeat_outcomes(self) -> None:
        for record in self._outcomes[-5:]:
            self._append(record)

    def take_over(self, gap_ms: int, *, same: bool, zombie: bool) -> None:
        before, self._governed = self.governor, False
        self.now_ms += gap_ms
        self._deliver()
        self.governor = before if same else Governor("next")
        self._begin(self.governor)
        if zombie and not same:
            self._publish(before, heard=True)

    def most(self, key: int | None = None) -> int:
        """The most evictions within any interval: in all, by node (1) or by namespace (2)."""
        times = ((one[0], one[key] if key else "") for one in self.evictions)
        return max(most_within(times, self.budget.interval_s * 1_000).values(), default=0)

    def _begin(self, governor: Governor) -> None:
        self._governed = True
        governor.receive([policy_record(self.budget)], self.now_ms)
        since_ms = WALL_MS + self.now_ms - governor.read_back_ms()
        governor.begin(self._leases, self._outcomes, since_ms, self.now_ms)

    def _publish(self, governor: Governor, *, heard: bool = False) -> None:
        """A tick; each lease reaches its node late, again, or never."""
        for out in governor.tick(self.now_ms, WALL_MS + self.now_ms):
            record = _record(CREDIT.name, out.key, out.value, self.now_ms)
            lease = decode(out.value, EvictionCredit)
            self.said.append(lease)
            self._leases.append(record)
            if heard:
                self.governor.receive([record], self.now_ms)
            agent = next(one for one in self.agents if one.name == lease.node)
            for _ in range(self._random.choice([0, 1, 1, 1, 2]) if self._faults else 1):
                delay_ms = self._random.randrange(lease.ttl_ms // 3) if self._faults else 50
                self._coming.append((self.now_ms + delay_ms, agent, lease))

    def _deliver(self) -> None:
        due = [one for one in self._coming if one[0] <= self.now_ms]
        self._coming = [one for one in self._coming if one[0] > self.now_ms]
        for at_ms, agent, lease in due:
            agent.credit_account.receive(lease, since_ns=at_ms * 1_000_000)
        late = [record for at_ms, record in self._late if at_ms <= self.now_ms]
        self._late = [one for one in self._late if one[0] > self.now_ms]
        for record in late:
            self._append(record)

    def _append(self, record: Record) -> None:
        dated = _record(record.topic, record.key, record.value, self.now_ms)
        self._outcomes.append(dated)
        self._receive([dated])

    def _receive(self, records: Iterable[Record]) -> None:
        if self._governed:
            self.governor.receive(records, self.now_ms)
