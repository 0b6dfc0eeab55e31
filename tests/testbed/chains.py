"""What a log holds of a node: samples, and all that a real worker makes of them."""

from collections.abc import Sequence
from typing import Any

from slacktide.schemas.codec import encode
from slacktide.schemas.inventory import NodeFacts, NodeInventory, Pod, revision_of
from slacktide.schemas.message import Message
from slacktide.schemas.outcome import NodeOutcome, PodName
from slacktide.schemas.policy import KEY, Policy
from slacktide.schemas.sample import NodeSample
from slacktide.schemas.sample_columns_codec import encoded
from slacktide.schemas.topics import INVENTORY, OUTCOME, POLICY, SAMPLE, Topic
from slacktide.streams.records import Out, Record
from slacktide.streams.worker import Worker
from testbed.samples import BOOT, FACTS, PODS, START_MS, SUPPRESS, keyframe, sample


def logged(body: Message | bytes | None, topic: Topic, *, key: str, offset: int = 0, at_ms: int = START_MS) -> Record:
    value = encode(body) if isinstance(body, Message) else body
    return Record(topic=topic.name, partition=0, offset=offset, timestamp_ms=at_ms, key=key.encode(), value=value)


class Chain:
    """One node's records in a log, appended when they were made."""

    def __init__(self, policy: Policy = SUPPRESS, facts: NodeFacts = FACTS, pods: Sequence[Pod] = PODS) -> None:
        self.facts, self.pods = facts, list(pods)
        self.worker = Worker("w")
        self.records: list[Record] = []
        inventory = NodeInventory(node=facts.name, revision=revision_of(facts), facts=facts)
        self.put(inventory, INVENTORY)
        self.policy = policy
        self.publish(policy)

    @property
    def node(self) -> str:
        return self.facts.name

    def publish(self, policy: Policy) -> None:
        self.policy = policy
        self.worker.policy(self.put(policy, POLICY, key=KEY))

    def put(self, body: Message | bytes, topic: Topic, *, key: str = "", at_ms: int = START_MS) -> Record:
        offset = sum(record.topic == topic.name for record in self.records)
        record = logged(body, topic, key=key or self.node, offset=offset, at_ms=at_ms)
        self.records.append(record)
        return record

    def append(self, out: Out, at_ms: int) -> None:
        offset = sum(one.topic == out.topic for one in self.records)
        self.records.append(
            Record(topic=out.topic, partition=0, offset=offset, timestamp_ms=at_ms, key=out.key, value=out.value)
        )

    def take(self, seq: int, *, answered: bool = True, **changes: Any) -> NodeSample:
        """A sample, its answer, and what else the worker says; the first and each tenth is a keyframe."""
        own = {
            "policy_version": self.policy.version,
            "facts_revision": revision_of(self.facts),
            "pods_revision": revision_of(self.pods),
        }
        carried = {"facts": self.facts, "pods": self.pods} if seq % 10 == 1 else {}
        taken = (keyframe if carried else sample)(seq, self.node, **own | carried | changes)
        at_ms = START_MS + seq * 1_000
        record = self.put(encoded(taken, self.pods), SAMPLE, at_ms=at_ms)
        if answered:
            for out in self.worker.samples([record], at_ms + 5):
                self.append(out, at_ms + 5)
        return taken

    def run(self, first: int, last: int, **changes: Any) -> int:
        """A sample each second; returns the time just after the last."""
        for seq in range(first, last + 1):
            self.take(seq, **changes)
        return START_MS + last * 1_000 + 100


def outcome(seq: int = 1, **changes: Any) -> NodeOutcome:
    fields: dict[str, Any] = {
        "node": "node-1",
        "boot_id": BOOT,
        "seq": seq,
        "command_id": f"command-{seq}",
        "rule": "cpu_suppress",
        "target": "besteffort",
        "origin": "stream",
        "result": "applied",
        "policy_version": SUPPRESS.version,
        "observed_ms": START_MS + seq * 1_000,
        "acted_ms": START_MS + seq * 1_000 + 8,
        "age_ms": 8,
    }
    return NodeOutcome(**fields | changes)


def evicted(seq: int, name: str = "etl-x2lqp", namespace: str = "jobs", **changes: Any) -> NodeOutcome:
    terms = {"capacity_bytes": 100, "threshold_pct": 70, "lower_pct": 65, "used_bytes": 83, "used_pct": 83}
    fields: dict[str, Any] = {
        "rule": "BEMemoryEvict",
        "target": f"pod/uid-{name}",
        "pod": PodName(namespace=namespace, name=name),
        "bound": "formula",
        "terms": terms,
    }
    return outcome(seq, **fields | changes)


def outcome_record(body: NodeOutcome, offset: int = 0) -> Record:
    return logged(body, OUTCOME, key=body.node, offset=offset, at_ms=body.acted_ms)
