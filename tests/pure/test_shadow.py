"""A shadow says by another policy what a worker has said, and changes nothing of it."""

import re
from pathlib import Path

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from slacktide import agents
from slacktide.schemas.allocatable import NodeAllocatable
from slacktide.schemas.codec import decode, encode
from slacktide.schemas.command import NodeCommand
from slacktide.schemas.policy import DEFAULT, Policy
from slacktide.schemas.sample import Limits, NodeSample, NodeUse
from slacktide.schemas.sample_columns_codec import encoded
from slacktide.schemas.topics import ALLOCATABLE, COMMAND, SHADOW_ALLOCATABLE, SHADOW_COMMAND, TOPICS
from slacktide.streams.records import Out, Record
from slacktide.streams.rendering import record_of as rendered
from slacktide.streams.worker import Worker
from slacktide.streams.worker.one_by_one import Shadow
from testbed.policies import policy_from
from testbed.samples import PODS, START_MS, SUPPRESS, inventory_record, keyframe, policy_record, record_of, sample

WORD = re.compile(r"[\w.-]+")
NOW_MS = START_MS + 1_000_000
TIGHT = policy_from(
    colocation={"enable": True, "metricAggregateDurationSeconds": 10, "cpuReclaimThresholdPercent": 40},
    threshold={"clusterStrategy": {"enable": True, "cpuSuppressPolicy": "cfsQuota", "cpuSuppressThresholdPercent": 45}},
)


def shadowed(policy: Policy) -> Worker:
    """A worker under SUPPRESS, with a shadow beside it."""
    worker = Worker("w")
    worker.policy(policy_record())
    worker.shadow = Shadow("w", policy)
    return worker


def both(worker: Worker, *samples: NodeSample) -> tuple[list[Out], list[Out]]:
    """What the worker says, and then what its shadow says."""
    outs = worker.samples([in_log(each) for each in samples], NOW_MS)
    return outs, [out for seen in worker.shadow.take() for out in worker.shadow.decisions(seen, NOW_MS)]


LISTS = {"b": PODS[:1]}
"""Pod lists but for ``PODS``, by revision."""


def in_log(said: NodeSample) -> Record:
    value = encoded(said, LISTS.get(said.pods_revision, PODS))
    return msgspec.structs.replace(record_of(said), value=value)


def written(outs: list[Out]) -> list[bytes]:
    """Records as they are sent, whatever the order: what is decided together is published together."""
    return sorted(rendered(out) for out in outs)


def commands(outs: list[Out], topic: str) -> list[NodeCommand]:
    return [decode(out.value, NodeCommand) for out in outs if out.topic == topic]


def sold(outs: list[Out], topic: str) -> list[NodeAllocatable]:
    return [decode(out.value, NodeAllocatable) for out in outs if out.topic == topic]


def by_node(said: list[NodeAllocatable]) -> dict[str, list[NodeAllocatable]]:
    return {node: [each for each in said if each.node == node] for node in {each.node for each in said}}


def test_the_shadow_names_its_own_policy_and_decides_from_the_limits_really_in_force() -> None:
    """4 CPUs x 45% - 1 CPU = 0.8 CPUs: a cut from the 1.1 that the real policy has set, and would raise."""
    real, shadow = both(shadowed(TIGHT), keyframe(1))
    [said], [beside] = commands(real, COMMAND.name), commands(shadow, SHADOW_COMMAND.name)

    assert (said.policy_version, beside.policy_version) == (SUPPRESS.version, TIGHT.version)
    assert (beside.boot_id, beside.seq, beside.sample) == (said.boot_id, said.seq, said.sample)
    assert said.hold[0].limits == Limits(be_cfs_quota_us=150_000)
    assert beside.hold[0].limits == Limits(be_cfs_quota_us=80_000)
    assert said.id != beside.id, "another decision, another name"


def test_the_shadow_sells_by_its_own_policy_when_the_worker_does() -> None:
    real, shadow = both(shadowed(TIGHT), keyframe(1), sample(2, observed_ms=START_MS + 1_200))
    [said], [beside] = sold(real, ALLOCATABLE.name), sold(shadow, SHADOW_ALLOCATABLE.name)

    assert (beside.node, beside.seq, beside.policy_version) == (said.node, said.seq, TIGHT.version)
    assert beside.batch_cpu_milli < said.batch_cpu_milli


def test_an_agent_of_another_policy_is_no_reason_for_the_shadow_to_skip() -> None:
    """The sample's policy is the real one, or one that the worker has not heard of yet."""
    real, shadow = both(shadowed(TIGHT), keyframe(1, policy_version="next"))

    assert [each.reason for each in commands(real, COMMAND.name)] == ["other policy"]
    assert [each.answer for each in commands(shadow, SHADOW_COMMAND.name)] == ["set"]


def test_what_nobody_has_said_the_shadow_does_not_know_either() -> None:
    real, shadow = both(shadowed(TIGHT), sample(1))

    assert [each.reason for each in commands(real, COMMAND.name)] == ["no pods"]
    assert [each.reason for each in commands(shadow, SHADOW_COMMAND.name)] == ["no pods"]


def test_with_a_shadow_the_worker_says_byte_for_byte_what_it_says_without() -> None:
    alone = Worker("w")
    alone.policy(policy_record())
    samples = [keyframe(1), sample(2), sample(5), sample(3)]
    real, _ = both(shadowed(TIGHT), *samples)

    assert written(real) == written(alone.samples([in_log(each) for each in samples], NOW_MS))


def test_a_node_that_is_gone_is_withdrawn_from_what_the_shadow_sells() -> None:
    worker = shadowed(TIGHT)
    both(worker, keyframe(1))
    worker.inventory(inventory_record(None))
    [gone] = worker.shadow.unasked()

    assert (gone.topic, gone.key, gone.value) == (SHADOW_ALLOCATABLE.name, b"node-1", None)
    assert worker.shadow.unasked() == []


def test_a_silent_node_is_silent_in_the_shadow_too() -> None:
    """It sells there what running pods have asked for, and says so under its own policy."""
    worker = shadowed(TIGHT)
    both(worker, keyframe(1))
    [real] = [out for out in worker.silent({"node-1": 8_000}) if out.topic == ALLOCATABLE.name]
    [shadow] = worker.shadow.unasked()
    sold, sold_by_shadow = decode(real.value, NodeAllocatable), decode(shadow.value, NodeAllocatable)

    assert (shadow.topic, sold_by_shadow.stale_ms, sold_by_shadow.policy_version) == (
        SHADOW_ALLOCATABLE.name, 8_000, TIGHT.version,
    )  # fmt: skip
    assert sold_by_shadow.batch_cpu_milli == sold.batch_cpu_milli


def test_no_agent_reads_or_writes_what_a_shadow_says() -> None:
    shadows = [topic for topic in TOPICS if ".shadow." in topic.name]

    named = {"SHADOW_COMMAND", "SHADOW_ALLOCATABLE", *(topic.name for topic in shadows)}
    files = [file for file in Path(agents.__file__).parent.rglob("*.py") if named & set(WORD.findall(file.read_text()))]

    assert shadows == [SHADOW_COMMAND, SHADOW_ALLOCATABLE]
    assert files == [], "not even the name"
    assert {who for topic in shadows for who in topic.consumers} == {"operator"}
    assert {who for topic in shadows for who in topic.producers} == {"stream"}


@st.composite
def histories(draw: st.DrawFn) -> list[NodeSample]:
    """Samples of one node: repeated, older, from nobody known, by other policies, under pressure."""
    said = []
    for _ in range(draw(st.integers(1, 12))):
        make = draw(st.sampled_from([sample, keyframe]))
        revision = draw(st.sampled_from(["a", "b"]))
        changes = {
            "use": NodeUse(
                cpu_milli=draw(st.none() | st.integers(0, 6_000)), mem_bytes=draw(st.none() | st.integers(0, 2**35))
            ),
            "limits": draw(st.none() | st.builds(Limits, be_cfs_quota_us=st.none() | st.integers(2_000, 400_000))),
            "since_raise_ms": draw(st.none() | st.integers(0, 3_000)),
            "pods_revision": revision,
        } | ({"pods": LISTS.get(revision, PODS)} if make is keyframe else {})
        said.append(make(draw(st.integers(1, 30)), draw(st.sampled_from(["node-1", "node-2"])), **changes))
    return said


@given(histories())
def test_the_same_policy_in_the_shadow_agrees_on_every_sample(samples: list[NodeSample]) -> None:
    """Down to the byte: the answers and what is sold, whatever was said before and in whatever order."""
    real, shadow = both(shadowed(SUPPRESS), *samples)

    # What has no figures is seen first, and of several nodes the order may differ.
    said = [commands(shadow, SHADOW_COMMAND.name), commands(real, COMMAND.name)]
    assert sorted(map(encode, said[0])) == sorted(map(encode, said[1]))
    assert by_node(sold(shadow, SHADOW_ALLOCATABLE.name)) == by_node(sold(real, ALLOCATABLE.name))


@given(histories(), st.sampled_from([TIGHT, DEFAULT]))
def test_any_shadow_leaves_the_real_answers_as_they_are(samples: list[NodeSample], policy: Policy) -> None:
    alone = Worker("w")
    alone.policy(policy_record())
    real, _ = both(shadowed(policy), *samples)

    assert written(real) == written(alone.samples([in_log(each) for each in samples], NOW_MS))
