"""A trace of a policy by pressure, replayed: the same answers, byte for byte, from rows and columns, by any worker."""

from collections.abc import Iterable

import msgspec
import pytest
from replay.traces import in_order, replayed

from slacktide.agents.node.ahead import LookedGate
from slacktide.schemas.codec import decode, encode
from slacktide.schemas.command import NodeCommand
from slacktide.schemas.policy import policy_of
from slacktide.schemas.policy.strategies import Colocation, ResourceThreshold
from slacktide.schemas.sample import Limits, NodeSample, PressureLook
from slacktide.schemas.sample_columns_codec import to_sample
from slacktide.schemas.topics import COMMAND
from slacktide.streams.records import Record
from slacktide.streams.samples import SampleReader
from slacktide.streams.worker import Worker
from testbed.samples import PODS, START_MS, body_of, keyframe, policy_record, record_of, sample

POLICY = policy_of(
    Colocation(enable=True, metric_aggregate_duration_s=10),
    ResourceThreshold(enable=True, cpu_suppress_policy="cfsQuota", cpu_suppress_signal="pressure"),
)
POLICY_AT = msgspec.structs.replace(policy_record(POLICY), timestamp_ms=START_MS - 60_000)
COUNT, LOOKS = 50, 10
CUT = Limits(be_cfs_quota_us=2_000)


def _look(seq: int, *, stopped: bool) -> PressureLook:
    """Best-effort pods do harm in the seconds 5 to 9; from 20 to 39 the service waits whoever runs."""
    stalls = 20 <= seq < 40 or (5 <= seq < 10 and not stopped)
    return PressureLook(
        span_us=100_000,
        ls_cpu_us=100_000,
        be_cpu_us=1_000 if stopped else 200_000,
        idle_us=0,
        cpu_stall_us=95_000 - seq if stalls else 5_000 + seq,
        throttled_us=1_000,
        mem_stall_us=500,
    )


def _samples() -> list[Record]:
    """As an agent takes them: the gate goes on from sample to sample, and a closed one stops best-effort pods."""
    gate, taken = LookedGate(), []
    for seq in range(COUNT):
        stopped = gate.gate.closed
        for _ in range(LOOKS):
            gate.looked(_look(seq, stopped=gate.gate.closed))
        said: NodeSample = (keyframe if seq % 10 == 0 else sample)(
            seq,
            policy_version=POLICY.version,
            ls_pressure=gate.sampled(),
            limits=CUT if stopped else Limits(be_cfs_quota_us=None),
        )
        taken.append(msgspec.structs.replace(record_of(said), timestamp_ms=START_MS + seq * 1_000))
    return taken


SAMPLES = _samples()


def _worker(name: str) -> Worker:
    made = Worker(name)
    made.policy(POLICY_AT)
    return made


def _answered(asked: Iterable[Record], by: Worker, late_ms: int = 20) -> list[Record]:
    return [
        Record(
            topic=out.topic, partition=0, offset=record.offset, timestamp_ms=record.timestamp_ms + late_ms,
            key=out.key, value=out.value,
        )
        for record in asked
        for out in by.samples([record], record.timestamp_ms + late_ms)
    ]  # fmt: skip


def _bodies(records: Iterable[Record]) -> list[bytes]:
    """The answers without who made them, and when."""
    commands = [decode(record.value or b"", NodeCommand) for record in records if record.topic == COMMAND.name]
    return [encode(msgspec.structs.replace(command, worker="", decided_ms=0)) for command in commands]


def test_the_trace_has_cuts_proofs_and_a_pause() -> None:
    """Otherwise equal answers would prove nothing."""
    read = SampleReader().read
    gates = [pressure.gate for record in SAMPLES if (pressure := read(record).ls_pressure)]
    commands = [decode(body, NodeCommand) for body in _bodies(_answered(SAMPLES, _worker("blue")))]

    assert len(gates) == COUNT
    assert {hold.bound for command in commands for hold in command.hold} == {
        "pressure_calm", "pressure_cut", "pressure_helped",
    }  # fmt: skip
    assert any(gate.closed for gate in gates)
    assert max(gate.pause_ms for gate in gates) >= 4_000


def test_what_was_decided_by_pressure_is_decided_again() -> None:
    result = replayed(in_order([POLICY_AT, *SAMPLES, *_answered(SAMPLES, _worker("blue"))]))

    assert result.equal
    assert result.commands == {"equal": COUNT}


@pytest.mark.parametrize("at", [7, 9, 22, 24, 45])
def test_a_takeover_changes_no_answer(at: int) -> None:
    """In a cut, in a pause and in calm: the sample carries the gate, and a worker keeps nothing of it."""
    asked = SAMPLES
    blue, green = _worker("blue"), _worker("green")
    green.learn(asked[max(0, at - 20) : at])
    both = [*_answered(asked[:at], blue), *_answered(asked[at:], green)]

    assert _bodies(both) == _bodies(_answered(asked, _worker("blue")))
    result = replayed(in_order([POLICY_AT, *asked, *both]))
    assert (result.equal, result.takeovers, sum(result.commands.values())) == (True, 1, COUNT)


def test_a_stall_that_was_changed_in_the_record_is_found() -> None:
    """One look of the sample that cut, made calm."""
    answers = _answered(SAMPLES, _worker("blue"))
    records = [POLICY_AT, *(_calmed(one) if one.offset == 5 else one for one in SAMPLES), *answers]
    result = replayed(in_order(records))

    assert not result.equal
    assert [one.offset for one in result.differences if one.topic == COMMAND.name] == [5]


def _calmed(record: Record) -> Record:
    said = to_sample(record.value, lambda _: [pod.uid for pod in PODS])
    calm = [msgspec.structs.replace(look, cpu_stall_us=0) for look in said.ls_pressure.looks]
    pressure = msgspec.structs.replace(said.ls_pressure, looks=calm)
    return msgspec.structs.replace(record, value=body_of(msgspec.structs.replace(said, ls_pressure=pressure)))
