"""Evictions between stream and agent: what the worker names, and what of it the agent takes."""

import pytest
from msgspec.structs import replace

from slacktide.agents.node.protocol import Taken, accepted
from slacktide.schemas.codec import decode
from slacktide.schemas.command import Evict, NodeCommand, command_id
from slacktide.schemas.inventory import Pod, revision_of
from slacktide.schemas.sample import EvictState, NodeSample, NodeUse, PodUse
from slacktide.schemas.topics import COMMAND
from slacktide.streams.decisions.node_decision import decide_node
from slacktide.streams.worker import Worker
from testbed.policies import policy_from
from testbed.samples import BATCH, FACTS, GIB, SERVICE, START_MS, keyframe, policy_record, record_of
from testbed.vectors import each_row

POLICY = policy_from(
    threshold={
        "clusterStrategy": {
            "enable": True,
            "cpuSuppressPolicy": "cfsQuota",
            "memoryEvictThresholdPercent": 70,
            "memoryEvictLowerPercent": 50,
        }
    }
)
OTHER = replace(BATCH, uid="be2", name="batch2")
PODS = [SERVICE, BATCH, OTHER]
SHORT = keyframe(
    7,
    pods=PODS,
    pods_revision=revision_of(PODS),
    policy_version=POLICY.version,
    use=NodeUse(cpu_milli=1_500, mem_bytes=12 * GIB),
    pod_use=[
        PodUse(uid="ls", cpu_milli=1_000, mem_bytes=6 * GIB),
        PodUse(uid="be", cpu_milli=500, mem_bytes=3 * GIB, best_effort_group=True),
        PodUse(uid="be2", cpu_milli=0, mem_bytes=2 * GIB, best_effort_group=True),
    ],
)
"""75% of 16 GiB are used; down to 50% both best-effort pods must go."""


def answer(sample: NodeSample = SHORT) -> NodeCommand:
    worker = Worker("w")
    worker.policy(policy_record(POLICY))
    [command] = [decode(out.value, NodeCommand) for out in worker.samples([record_of(sample)], START_MS)
                 if out.topic == COMMAND.name]  # fmt: skip
    return command


def taken_of(command: NodeCommand, now: EvictState | None = None) -> list[str] | None:
    """Whom the agent evicts of it; None: it disagrees. ``now``: what it remembers when the answer comes."""
    taken = Taken(sample=SHORT, facts=FACTS, pods=PODS, taken_ns=0)
    current = SHORT if now is None else replace(SHORT, evict=now)
    verdict = accepted(command, taken, current, decide_node(current, FACTS, PODS, POLICY))
    return None if verdict is None else [one.pod.uid for one in verdict.evict]


def test_a_node_short_of_memory_is_told_whom_to_evict_and_why() -> None:
    first, second = answer().evict

    assert (first.rule, first.uid, first.namespace, first.name) == ("BEMemoryEvict", "be", "jobs", "batch")
    assert (first.bound, first.terms["used_pct"], first.terms["threshold_pct"]) == ("formula", 75, 70)
    assert (first.terms["victim_used_mem_bytes"], second.terms["victim_used_mem_bytes"]) == (3 * GIB, 2 * GIB)
    assert second.uid == "be2"


def test_each_eviction_has_an_id_that_any_worker_would_give_it() -> None:
    def id_of(uid: str) -> str:
        return command_id("node-1", SHORT.boot_id, 7, "BEMemoryEvict", f"pod/{uid}", POLICY.version)

    assert [one.id for one in answer().evict] == [id_of("be"), id_of("be2")]
    assert answer().evict == answer().evict


def test_an_answer_that_evicts_is_no_keep_though_the_limit_stays() -> None:
    kept = replace(SHORT, since_raise_ms=0)

    assert (answer(kept).answer, answer(kept).hold) == ("set", [])
    assert answer(replace(kept, use=NodeUse(cpu_milli=1_500, mem_bytes=GIB))).answer == "keep"


def test_the_agent_takes_the_streams_victims_in_its_order() -> None:
    assert taken_of(answer()) == ["be", "be2"]


def test_fewer_victims_are_taken_and_none_is_added() -> None:
    command = answer()

    assert taken_of(replace(command, evict=command.evict[1:])) == ["be2"]
    assert taken_of(replace(command, evict=[])) == []
    assert taken_of(replace(command, evict=[command.evict[0]] * 3)) == ["be"]


@pytest.mark.parametrize("uid", ["ls", "never-heard-of", ""])
def test_a_victim_that_the_agent_would_not_name_spoils_the_answer(uid: str) -> None:
    command = answer()
    foreign = Evict(id="x", rule="BEMemoryEvict", uid=uid, namespace="jobs", name="batch", bound="formula")

    assert taken_of(replace(command, evict=[*command.evict, foreign])) is None


def test_rule_and_pod_are_the_agents_own_whatever_the_answer_calls_them() -> None:
    command = answer()
    lying = [replace(one, rule="BECPUEvict", namespace="kube-system", name="etcd", terms={}) for one in command.evict]
    taken = Taken(sample=SHORT, facts=FACTS, pods=PODS, taken_ns=0)
    own = decide_node(SHORT, FACTS, PODS, POLICY)
    verdict = accepted(replace(command, evict=lying), taken, SHORT, own)

    assert verdict is not None
    assert verdict.evict == own.evict


@each_row("now", "taken")
def test_an_answer_to_a_sample_of_before_an_eviction_evicts_nobody_twice(now: EvictState, taken: list | None) -> None:
    assert taken_of(answer(), now) == taken


def test_a_pod_that_left_the_list_is_nobodys_victim() -> None:
    command = answer()
    pods: list[Pod] = [SERVICE, OTHER]
    own = decide_node(SHORT, FACTS, pods, POLICY)

    assert accepted(command, Taken(sample=SHORT, facts=FACTS, pods=pods, taken_ns=0), SHORT, own) is None
