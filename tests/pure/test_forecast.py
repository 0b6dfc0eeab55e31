"""What an agent learns of its pods' peaks, and what a stream makes of it."""

from typing import Any
from zlib import crc32

import msgspec
import pytest
from replay.traces import in_order, replayed
from syrupy.assertion import SnapshotAssertion

from slacktide.agents.node.forecast import Trainer
from slacktide.schemas.allocatable import NodeAllocatable
from slacktide.schemas.codec import decode, encode
from slacktide.schemas.dead_letter import DeadLetter
from slacktide.schemas.forecast import NodeForecast, NodePeaks
from slacktide.schemas.inventory import Container, Resources
from slacktide.schemas.metric import Use
from slacktide.schemas.policy import policy_of
from slacktide.schemas.policy.strategies import Colocation, ResourceThreshold
from slacktide.schemas.sample import PodUse
from slacktide.schemas.topics import ALLOCATABLE, DEAD_LETTER, FORECAST
from slacktide.streams.decisions.prediction.mid_forecast import HeldForecast, MidForecast, mid_forecast, production
from slacktide.streams.records import Record
from slacktide.streams.worker import Worker
from testbed.chains import Chain
from testbed.peaks import MINUTE_MS, seen, trained
from testbed.samples import BATCH, BOOT, FACTS, GIB, PODS, SERVICE, START_MS, keyframe, policy_record, record_of
from testbed.stories import each_story, story
from testbed.vectors import each_row

COLD = Colocation(enable=True, mid_cold_start_s=3_600)
"""A pod is predicted after an hour."""
SERVICE_UID = SERVICE.uid


def known(trainer: Trainer) -> NodePeaks:
    """What a worker reads of the record."""
    return decode(encode(trainer.forecast()), NodePeaks)


KNOWN_PODS = {
    "service": SERVICE,
    "batch": BATCH,
    "done": msgspec.structs.replace(SERVICE, uid="done", phase="Succeeded"),
    "unseen": msgspec.structs.replace(SERVICE, uid="unseen"),
    "new": msgspec.structs.replace(SERVICE, uid="new", requests=Resources(cpu_milli=700, mem_bytes=GIB)),
    "first": msgspec.structs.replace(SERVICE, containers=[Container(name="app", id="one")]),
    "second": msgspec.structs.replace(SERVICE, containers=[Container(name="app", id="two")]),
}


class Learning:
    """An agent that learns, a sample a minute; what it would publish, and what a stream makes of that."""

    def __init__(self) -> None:
        self.trainer, self.listed = Trainer("node-1", BOOT), PODS
        self.due: list[int] = []
        self.taught = False
        self.figured: MidForecast | None = None

    def pods(self, *names: str) -> None:
        self.listed = [KNOWN_PODS[name] for name in names]

    def sees(self, first: int | str, last: int | str, cpu_milli: int | str = 1_000) -> None:
        self.due, self.taught = [], True
        for minute in range(int(first), int(last) + 1):
            self.trainer.saw(seen(minute, None if cpu_milli == "unknown" else cpu_milli), self.listed)
            self.due += [minute] if self.trainer.due(COLD) is not None else []

    def figure(self, margin_pct: int = COLD.mid_safety_margin_pct) -> None:
        colocation = msgspec.structs.replace(COLD, mid_safety_margin_pct=margin_pct)
        self.figured = mid_forecast(known(self.trainer), production(self.listed), FACTS, colocation)

    def state(self) -> dict[str, object]:
        if not self.taught:
            return {}
        record, found = self.trainer.forecast(), self.figured
        models = record.items | {pod.uid: pod.peaks for pod in record.pods}
        reckoned = {} if found is None else {
            "sold": (found.reclaimable.cpu_milli, found.reclaimable.mem_bytes),
            "prediction": msgspec.to_builtins(found.prediction),
            "peak of production": msgspec.to_builtins(found.prod_peak),
        }  # fmt: skip
        return {
            "due at minutes": self.due,
            "samples": {name: model.samples for name, model in models.items()},
            "CPU": {name: round(model.cpu_p95_milli) for name, model in models.items()},
            "last at minutes": [(pod.peaks.updated_ms - START_MS) // MINUTE_MS for pod in record.pods],
            "unknown, dropped": (record.unknown, record.dropped),
        } | reckoned


@each_story("forecast")
def test_what_is_learned_and_what_is_sold_by_it(given: dict, steps: str, snapshot: SnapshotAssertion) -> None:
    assert story(Learning(), steps) == snapshot


def test_a_minute_teaches_its_90th_percentile() -> None:
    trainer = Trainer("node-1", BOOT)
    begin_ms = START_MS + MINUTE_MS - crc32(b"node-1") % MINUTE_MS
    for tenth in range(10):
        trainer.saw(seen(0, 100 + 100 * tenth, observed_ms=begin_ms + tenth * 6_000), PODS)
    trainer.saw(seen(2), PODS)
    [service] = trainer.forecast().pods

    assert (service.uid, service.peaks.samples) == (SERVICE_UID, 1)
    assert 900 <= service.peaks.cpu_p95_milli <= 900 * 1.05 + 25


def test_models_outlive_their_agent() -> None:
    """The record is what its next run and another worker go on with: readings, samples and since when."""
    before = trained(200).forecast()
    trainer = Trainer("node-1", "000000000002-0000000b")
    refused = trainer.restore(decode(encode(before), NodeForecast))
    after = trainer.due(COLD)

    assert (refused, after is not None) == ([], True)
    assert after is not None
    assert [(pod.uid, pod.peaks) for pod in after.pods] == [(pod.uid, pod.peaks) for pod in before.pods]
    assert after.items == before.items
    assert after.observed_ms == START_MS + 199 * MINUTE_MS


def test_a_model_that_cannot_be_read_begins_anew_and_says_so() -> None:
    before = trained(5).forecast()
    [service] = before.pods
    bad = msgspec.structs.replace(service.peaks.cpu, total_weight=-1.0)
    peaks = msgspec.structs.replace(service.peaks, cpu=bad)
    torn = msgspec.structs.replace(before, pods=[msgspec.structs.replace(service, peaks=peaks)])
    trainer = Trainer("node-1", BOOT)

    assert trainer.restore(torn) == [SERVICE_UID]
    assert trainer.forecast().pods == []


def test_nodes_publish_at_times_of_their_own_in_a_minute() -> None:
    """Agents that a rollout starts together do not load a worker in the same second."""
    first_s = set()
    for number in range(20):
        trainer = Trainer(f"node-{number}", BOOT)
        for second in range(61):
            trainer.saw(msgspec.structs.replace(seen(0), observed_ms=START_MS + second * 1_000), PODS)
            if trainer.due(COLD) is not None:
                first_s.add(second)
                break

    assert len(first_s) > 10


def test_a_forecast_takes_three_kilobytes_a_pod_at_most() -> None:
    """Of a pod whose use is anywhere from nothing to 20 CPUs and 60 GiB."""
    pods = [msgspec.structs.replace(SERVICE, uid=f"a4bdf02e-91de-4f0c-8f8e-2f3a55a5c1{at:02}") for at in range(20)]
    trainer = Trainer("node-1", BOOT)
    for minute in range(1_441):
        spread = (minute * 7_919) % 1_440 / 1_440
        cpu_milli, mem_bytes = round(20_000 * spread**3), round(60 * GIB * spread**3)
        uses = [PodUse(uid=pod.uid, cpu_milli=cpu_milli, mem_bytes=mem_bytes) for pod in pods]
        trainer.saw(seen(minute, pod_use=uses), pods)

    assert len(encode(trainer.forecast())) / len(pods) < 3_000


def state_of(forecast: MidForecast) -> str:
    assert forecast.prediction is not None
    return forecast.prediction.state


@each_row("boot_id", "late_ms", "state")
def test_a_forecast_counts_for_half_an_hour_and_for_its_boot(boot_id: str, late_ms: int, state: str) -> None:
    peaks, policy = known(trained(61)), policy_of(COLD, ResourceThreshold())
    at_ms = peaks.observed_ms + late_ms
    found = HeldForecast.of(peaks).on(PODS, FACTS, policy, boot_id=boot_id, at_ms=at_ms)

    assert state_of(found) == state
    assert (found.reclaimable == Use(cpu_milli=0, mem_bytes=0)) == bool(state)


def forecast_record(peaks: NodePeaks | None, key: bytes = b"node-1") -> Record:
    value = None if peaks is None else encode(peaks)
    return Record(topic=FORECAST.name, partition=0, offset=0, timestamp_ms=START_MS, key=key, value=value)


def sold(worker: Worker, seq: int) -> NodeAllocatable:
    """What is published with the node's next sample."""
    minute_ms = START_MS + 61 * MINUTE_MS
    outs = worker.samples([record_of(keyframe(seq, observed_ms=minute_ms + seq * 6_000))], minute_ms)
    [body] = [out.value for out in outs if out.topic == ALLOCATABLE.name]
    return decode(body, NodeAllocatable)


def told(**changes: Any) -> Worker:
    worker = Worker("w")
    worker.policy(policy_record(msgspec.structs.replace(policy_of(COLD, ResourceThreshold()), **changes)))
    return worker


def test_mid_is_sold_by_the_newest_forecast_until_that_is_deleted() -> None:
    worker, peaks = told(), known(trained(61))
    before = sold(worker, 1)
    assert worker.forecast(forecast_record(peaks)) == []
    during = sold(worker, 2)
    assert worker.forecast(forecast_record(msgspec.structs.replace(peaks, seq=0, items={}))) == []
    older = sold(worker, 3)
    assert worker.forecast(forecast_record(None)) == []
    after = sold(worker, 4)

    assert [each.mid_cpu_milli for each in (before, during, older, after)] == [0, 744, 744, 0]
    assert (before.prediction, before.forecast_revision, after.prediction) == (None, "", None)
    assert during.forecast_revision == older.forecast_revision == peaks.revision
    assert during.mid_cpu_terms["reclaimable_milli"] == 744


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        (forecast_record(known(trained(61)), b"node-2"), "node-1"),
        (msgspec.structs.replace(forecast_record(None), value=b"{"), "not a NodePeaks"),
    ],
    ids=["another node's", "no record"],
)
def test_a_bad_forecast_is_a_dead_letter(record: Record, reason: str) -> None:
    worker = told()
    [letter] = worker.forecast(record)

    assert letter.topic == DEAD_LETTER.name
    assert reason in decode(letter.value, DeadLetter).reason
    assert sold(worker, 1).mid_cpu_milli == 0


def test_nothing_is_sold_by_a_forecast_that_does_not_prove_its_node() -> None:
    worker = told(node_proof="required")
    [letter] = worker.forecast(forecast_record(known(trained(61))))

    assert letter.topic == DEAD_LETTER.name
    assert worker.held.existing.forecast_of(0, "node-1") is None


def test_a_replay_sells_by_the_forecasts_of_the_log() -> None:
    """Byte for byte, also where one comes in between; without them the figures differ."""
    cold = msgspec.structs.replace(COLD, metric_aggregate_duration_s=10)
    made = Chain(policy_of(cold, ResourceThreshold(enable=True)))
    forecast = msgspec.structs.replace(trained(61).forecast(), observed_ms=START_MS)
    made.run(1, 60)
    made.worker.forecast(made.put(forecast, FORECAST, at_ms=START_MS + 60_500))
    made.run(61, 120)
    without = [record for record in made.records if record.topic != FORECAST.name]
    figures = [decode(one.value, NodeAllocatable) for one in made.records if one.topic == ALLOCATABLE.name]

    assert figures[-1].mid_cpu_milli == 744
    assert replayed(in_order(made.records)).equal
    assert not replayed(in_order(without)).equal
