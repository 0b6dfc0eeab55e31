"""Records made to do harm: broken bodies, and well-formed answers that claim what no worker decided."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import msgspec

from slacktide.schemas.command import Hold, NodeCommand
from slacktide.schemas.sample import Limits
from slacktide.schemas.topics import SAMPLE
from slacktide.streams.decisions.suppress.cpu_suppress import RULE, TARGET

if TYPE_CHECKING:
    from sim.node import Node

BROKEN = [
    None,
    b"",
    b"\xff\xfe\x00",
    b"null",
    b"[]",
    b'{"node":',
    b'{"node": 7}',
    b'{"node": "node-0", "seq": -1}',
    b"[" * 20_000,
    '{"node": "n\u00f6de"}'.encode("latin-1"),
]
CPUSETS: list[list[int] | None] = [None, [], [0], [1, 0], [0, 1, 2, 3], [0, 99], [-1]]


def bad_value(rng: random.Random, topic: str) -> bytes | None:
    """A body that does not decode; never null for a sample: a null is a deletion, and deletes nothing there."""
    return rng.choice(BROKEN[1:] if topic == SAMPLE.name else BROKEN)


def bad_command(rng: random.Random, node: Node) -> NodeCommand:
    """An answer with one thing, or several, that no worker would say."""
    agent = node.agent
    boot_id = agent.boot_id if agent is not None else "000000000001-dead"
    seq = rng.randint(0, 130)
    rule, target = rng.choice([(RULE, TARGET), (RULE, "kubepods"), ("evict", TARGET)])
    limits = Limits(be_cfs_quota_us=rng.choice([None, 2_000, 50_000, 10_000_000]), be_cpuset=rng.choice(CPUSETS))
    hold = Hold(id=f"{rng.getrandbits(64):016x}", rule=rule, target=target, limits=limits, bound="claimed")
    return NodeCommand(
        id=hold.id,
        node=rng.choice([node.name, node.name, "another"]),
        boot_id=rng.choice([boot_id, boot_id, "000000000000-cafe", "999999999999-beef"]),
        seq=seq,
        observed_ms=0,
        policy_version=rng.choice([node.policy.version, "made-up"]),
        facts_revision="",
        pods_revision="",
        answer=rng.choice(["set", "set", "keep", "skipped"]),
        reason="no pods" if rng.random() < 0.3 else "",
        hold=rng.choice([[hold], [hold, hold], []]),
    )


def bent(rng: random.Random, command: NodeCommand) -> NodeCommand:
    """A true answer with one thing made worse on its way: what a broken worker might send."""
    quota_us, period_us = (
        rng.choice([None, 2_000, 10_000_000, 500, 0, -7]),
        rng.choice([100_000, 100_000, 0, -1, 10**9]),
    )
    limits = Limits(be_cfs_quota_us=quota_us, be_cfs_period_us=period_us, be_cpuset=rng.choice(CPUSETS))
    hold = Hold(id=rng.choice([command.id, "0" * 16]), rule=RULE, target=TARGET, limits=limits, bound="bent")
    changes: dict[str, object] = rng.choice([
        {"answer": "set", "hold": [hold]},
        {"answer": "set", "hold": []},
        {"answer": "keep", "hold": []},
        {"answer": "skipped", "reason": "bent"},
        {"policy_version": "bent"},
        {"boot_id": "999999999999-beef"},
        {"node": "another"},
        {"seq": max(0, command.seq + rng.choice([-70, -70, -1, 1, 70]))},
    ])  # fmt: skip
    return msgspec.structs.replace(command, worker="", **changes)
