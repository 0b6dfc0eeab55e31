"""A worker that answers samples together comes to what it comes to by the same samples one by one."""

import random
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
import pytest

from slacktide.schemas.codec import decode
from slacktide.schemas.command import NodeCommand
from slacktide.schemas.dead_letter import DeadLetter
from slacktide.schemas.forecast import FORECAST_STALE_MS, SYSTEM, NodePeaks, Peaks, PodPeaks
from slacktide.schemas.inventory import Pod, Resources, revision_of
from slacktide.schemas.policy import Policy, policy_of
from slacktide.schemas.policy.strategies import Colocation, ResourceThreshold
from slacktide.schemas.sample import (
    BeCpu,
    BeCpuWindow,
    EvictState,
    Limits,
    LsPressure,
    Missing,
    NodeSample,
    NodeUse,
    PodUse,
    PressureGate,
    PressureLook,
)
from slacktide.schemas.sample_columns_codec import encoded
from slacktide.schemas.topics import ALLOCATABLE, COMMAND, DEAD_LETTER, FORECAST, METRIC, SAMPLE, WINDOW
from slacktide.streams.columns import figures
from slacktide.streams.columns.block import Block, joined
from slacktide.streams.columns.lines import MarksError
from slacktide.streams.columns.publish import Due, Figures, publish
from slacktide.streams.kept import folded
from slacktide.streams.records import Out, Record, text_of
from slacktide.streams.rendering import RenderedAnswers, record_of
from slacktide.streams.worker import Worker
from slacktide.streams.worker import worker as module
from slacktide.streams.worker.one_by_one import Answerer
from testbed.chains import logged
from testbed.rungs import NIGHTLY
from testbed.samples import FACTS, GIB, PODS, START_MS, keyframe, policy_record, sample
from testbed.vectors import each_row

POLICY = policy_of(
    Colocation(enable=True, metric_aggregate_duration_s=10, mid_cold_start_s=36_000),
    ResourceThreshold(enable=True, cpu_suppress_policy="cfsQuota", mem_evict_threshold_pct=70),
)
SELLS_FREE = policy_of(
    msgspec.structs.replace(POLICY.colocation, free_class_enable=True, mem_calculate_policy="request"),
    POLICY.resource_threshold,
)
OVER = policy_of(msgspec.structs.replace(POLICY.colocation, cpu_reclaim_threshold_pct=600), POLICY.resource_threshold)


PRESSED = policy_of(
    POLICY.colocation, msgspec.structs.replace(POLICY.resource_threshold, cpu_suppress_signal="pressure")
)
EXPLORING = policy_of(
    msgspec.structs.replace(POLICY.colocation, learned_caps="on", explore=True), POLICY.resource_threshold
)
POLICIES = POLICY, SELLS_FREE, OVER, PRESSED, EXPLORING


class Fleet:
    """Nodes with pods that come and go; each sample with the list that it names."""

    def __init__(self, seed: int, nodes: int = 4, policy: Policy = POLICY) -> None:
        self._dice = random.Random(seed)
        self._policy = policy
        # At the start, it is the slot of the nodes 5 and 766.
        self.names = [f"node-{number}" for number in ((5, 1, 766, 2) if policy is EXPLORING else range(nodes))]
        self._seq: dict[str, int] = defaultdict(int)
        self._boot = dict.fromkeys(self.names, 1)
        self._pods = {
            name: [self._pod(name, number) for number in range(self._dice.randrange(6))] for name in self.names
        }
        self._told: dict[str, str] = {}

    def _pod(self, node: str, number: int) -> Pod:
        batch = self._dice.random() < 0.5
        free = batch and self._policy is SELLS_FREE and number % 3 == 0
        return Pod(
            uid=f"{node}-{number}-{self._dice.randrange(10**6)}",
            namespace="n",
            name=f"p{number}",
            qos_label="BE" if batch else None,
            kube_qos="BestEffort" if batch else "Burstable",
            priority_class_label="koord-free" if free else None,
            requests=Resources(free_cpu_milli=1_200, free_mem_bytes=2 * GIB)
            if free
            else Resources()
            if batch
            else Resources(cpu_milli=300, mem_bytes=GIB // 4),
        )

    def sample(self, name: str, second: int) -> tuple[NodeSample, list[Pod]]:
        dice = self._dice
        if dice.random() < 0.01:
            self._boot[name] += 1
            self._seq[name] = 0
            self._told.pop(name, None)
        if dice.random() < 0.1:
            pods = self._pods[name] = list(self._pods[name])
            if pods and dice.random() < 0.5:
                pods.pop(dice.randrange(len(pods)))
            pods.append(self._pod(name, second))
        pods = self._pods[name]
        self._seq[name] += 1
        facts = msgspec.structs.replace(FACTS, name=name, slope_permille=500 if self._policy is EXPLORING else 0)
        revision = revision_of(pods)
        tell = self._told.get(name) != revision or dice.random() < 0.1
        self._told[name] = revision
        odd: dict[str, Any] = {}
        if dice.random() < 0.05:
            odd["missing"] = [Missing(what="x", why="y")]
        if dice.random() < 0.05:
            odd["ls_lately_cpu_milli"] = dice.randrange(4_000)
        if dice.random() < 0.1:
            cpu = BeCpu(usage_milli=1.5, request_milli=500.0, limit_milli=900.0)
            window = BeCpuWindow(average=cpu, current=cpu, samples=4, interval_s=9)
            odd["evict"] = EvictState(since_mem_ms=5, be_cpu=window)
        if self._policy is PRESSED and dice.random() < 0.9:
            odd["ls_pressure"] = self._pressure()
        uses = [
            PodUse(
                uid=pod.uid,
                cpu_milli=dice.choice([None, dice.randrange(2_000)]) if dice.random() < 0.1 else dice.randrange(900),
                mem_bytes=dice.randrange(3 * GIB),
                periods=10 if pod.qos_label else None,
                best_effort_group=pod.qos_label == "BE",
            )
            for pod in pods
            if dice.random() < 0.95
        ]
        if dice.random() < 0.05:
            uses.append(PodUse(uid="gone", cpu_milli=70, mem_bytes=GIB))
        made = sample(
            self._seq[name],
            name,
            boot_id=f"{self._boot[name]:012}-0000000a",
            observed_ms=START_MS + second * 1_000 + dice.randrange(200),
            policy_version=self._policy.version,
            facts_revision=revision_of(facts),
            pods_revision=revision,
            use=NodeUse(cpu_milli=dice.randrange(4_000), mem_bytes=dice.randrange(16 * GIB)),
            pod_use=uses,
            limits=dice.choice([None, Limits(be_cfs_quota_us=dice.choice([None, -1, 20_000, 110_000, 300_000]))]),
            since_raise_ms=dice.choice([None, 0, 700, 5_000]),
            facts=facts if tell else None,
            pods=pods if tell else None,
            **odd,
        )
        return made, pods

    def _pressure(self) -> LsPressure:
        """Mostly calm; now and then a stall, a learned baseline, or a closed gate."""
        dice = self._dice
        gate = PressureGate(
            base_permille=dice.choice([0, 300, 900]), closed=dice.random() < 0.1, be_permille=900, cut_permille=2_000
        )
        looks = [
            PressureLook(
                span_us=100_000,
                ls_cpu_us=dice.randrange(150_000),
                be_cpu_us=dice.choice([0, 80_000]),
                idle_us=dice.randrange(120_000),
                cpu_stall_us=dice.choice([0, 9_000, 90_000]) if dice.random() < 0.2 else 0,
            )
            for _ in range(dice.randrange(12))
        ]
        return LsPressure(gate=gate, looks=looks)

    def records(self, second: int) -> list[Record]:
        """Each node's sample."""
        found = []
        for number, name in enumerate(self.names):
            made, pods = self.sample(name, second)
            offset = second * len(self.names) + number
            found.append(placed(made, pods, offset, second))
        return found

    def forecast(self, name: str, second: int) -> Record:
        """What its pods are predicted to use; now and then of another boot, or so old that it does not count."""
        dice = self._dice

        def peaks() -> Peaks:
            mem_bytes = dice.randrange(GIB)
            return Peaks(
                cpu_p95_milli=dice.randrange(400), mem_p98_bytes=mem_bytes, samples=dice.randrange(1_600), since_ms=0
            )

        made = NodePeaks(
            node=name,
            boot_id=f"{self._boot[name] - (dice.random() < 0.2):012}-0000000a",
            seq=second,
            observed_ms=START_MS + second * 1_000 - dice.choice([0, FORECAST_STALE_MS - 7_000]),
            interval_ms=60_000,
            pods=[PodPeaks(uid=pod.uid, peaks=peaks()) for pod in self._pods[name] if dice.random() < 0.9],
            items={key: peaks() for key in (SYSTEM, "koord-prod") if dice.random() < 0.9},
        )
        at_ms = START_MS + second * 1_000 + 300
        return logged(made, FORECAST, key=name, offset=second, at_ms=at_ms)


def placed(made: NodeSample, pods: Sequence[Pod], offset: int, second: int) -> Record:
    at_ms = START_MS + second * 1_000 + 300
    return logged(encoded(made, pods), SAMPLE, key=made.node, offset=offset, at_ms=at_ms)


class OneByOne(Worker):
    """Decides by the rules alone, as arrays leave it to them."""

    def answers(self, records: Sequence[Record], now_ms: int) -> Sequence[Out]:
        answerer = Answerer(worker=self.name, policy=self.in_force, now_ms=now_ms)
        return [out for record in records for out in self._single.alone(record, answerer)]


class Mixed(Worker):
    """Answers half of the nodes one by one, as if their heads were unknown."""

    def answers(self, records: Sequence[Record], now_ms: int) -> Sequence[Out]:
        for record in records[1::2]:
            self._fast.forget(text_of(record.key or b""))
        return super().answers(records, now_ms)


def worker(policy: Policy = POLICY, kind: type[Worker] = Worker) -> Worker:
    made = kind("w")
    made.policy(policy_record(policy))
    return made


def bodies(outs: list[Out]) -> list[tuple[str, bytes | None, Any]]:
    """What was written; each node's records in the order of each topic."""
    found = []
    for out in outs:
        body = msgspec.json.decode(out.value or b"null")
        found.append((out.topic, out.key, body))
    return sorted(found, key=lambda one: (one[1] or b"", one[0]))


@pytest.mark.exhaustive
@pytest.mark.parametrize("seed", range(2 * len(POLICIES) if NIGHTLY else len(POLICIES)))
@pytest.mark.parametrize("kind", [Worker, Mixed])
def test_all_that_follows_is_equal(seed: int, kind: type[Worker]) -> None:
    """Commands, NodeMetric, allocatable, score and the minutes of windows."""
    policy = POLICIES[seed % len(POLICIES)]
    fleet, single, together = Fleet(seed, policy=policy), worker(policy, OneByOne), worker(policy, kind)
    written, states = set[str](), set[str]()
    free = 0
    for second in range(150):
        records = fleet.records(second)
        now_ms = START_MS + second * 1_000 + 350
        if second % 20 == 10:
            told = [fleet.forecast(name, second) for name in fleet.names[:-1]]
            assert [out for each in (single, together) for one in told for out in each.forecast(one)] == []
        one_by_one = single.samples(records, now_ms)
        assert bodies(together.samples(records, now_ms)) == bodies(one_by_one)
        written |= {out.topic for out in one_by_one}
        free += sum(b'"free_cpu_milli"' in (out.value or b"") for out in one_by_one if out.topic == ALLOCATABLE.name)
        states |= {
            msgspec.json.decode(out.value or b"null")["prediction"].get("state", "")
            for out in one_by_one
            if out.topic == ALLOCATABLE.name and b'"prediction"' in (out.value or b"")
        }
    assert states == {"", "cold start", "stale forecast", "forecast of another boot"}
    assert {COMMAND.name, METRIC.name, WINDOW.name} <= written
    assert bool(free) == (policy is SELLS_FREE)


@pytest.mark.parametrize("seed", range(4 if NIGHTLY else 2))
def test_what_is_read_back_is_what_was_answered(seed: int) -> None:
    """A new owner learns a minute in slices, mute; what it publishes then is equal."""
    fleet, single, together = Fleet(seed), worker(kind=OneByOne), worker()
    back = [record for second in range(90) for record in fleet.records(second)]
    for begin in range(0, 240, 50):
        some = back[begin : min(begin + 50, 240)]
        assert [each.learn(some) for each in (single, together)] == [some, some]

    for begin in range(240, len(back), 4):
        some = back[begin : begin + 4]
        now_ms = some[-1].timestamp_ms + 50
        assert bodies(together.samples(some, now_ms)) == bodies(single.samples(some, now_ms))


def answered(reader: Worker, value: bytes, seq: int = 1) -> tuple[list[NodeCommand], list[DeadLetter]]:
    record = Record(topic=SAMPLE.name, partition=0, offset=seq, timestamp_ms=START_MS, key=b"node-1", value=value)
    outs = reader.samples([record], START_MS)
    return (
        [decode(out.value, NodeCommand) for out in outs if out.topic == COMMAND.name],
        [decode(out.value, DeadLetter) for out in outs if out.topic == DEAD_LETTER.name],
    )


def test_a_sample_whose_list_is_not_known_asks_for_a_keyframe() -> None:
    """It is no dead letter: nothing is wrong with it. It counts in no window."""
    reader = worker()

    [command], letters = answered(reader, encoded(sample(5, policy_version=POLICY.version), PODS), 5)

    assert (command.answer, command.reason, command.seq, letters) == ("skipped", "no pods", 5, [])
    assert command.pods_revision == revision_of(PODS)
    assert reader.unpublished == 0
    [command], _ = answered(reader, encoded(keyframe(6, policy_version=POLICY.version), PODS), 6)
    assert command.answer == "set"
    [command], _ = answered(reader, encoded(sample(7, policy_version=POLICY.version), PODS), 7)
    assert command.answer == "set"


@each_row("old", "new", "why")
def test_a_bad_figure_costs_its_own_sample(old: bytes, new: bytes, why: str) -> None:
    reader = worker()
    bad = encoded(keyframe(1, policy_version=POLICY.version), PODS).replace(old, new)

    commands, [letter] = answered(reader, bad)

    assert why in letter.reason
    if "$.of" in why and "$.now" not in why:
        assert commands == []  # whose it is cannot be read
    else:
        assert [(one.answer, why in one.reason, one.seq) for one in commands] == [("skipped", True, 1)]


def apart(answered: Iterable[Any], _: int) -> Iterable[Any]:
    return answered


@pytest.mark.parametrize("seed", range(2))
def test_figures_of_joined_turns_are_equal(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Turns of one to five samples, whole waves of them; new boots, lists and odd samples among them."""
    dice, fleet = random.Random(seed), Fleet(seed, nodes=6)
    whole, parts = worker(), worker()
    written: set[str] = set()
    most = 0
    for wave in range(60):
        at_once = dice.randrange(1, 4)
        seconds = range(wave * 3, wave * 3 + at_once)
        records = [record for second in seconds for record in fleet.records(second)]
        now_ms = START_MS + (wave * 3 + at_once) * 1_000
        answers: dict[int, list[Any]] = {id(whole): [], id(parts): []}
        while records:
            turn, records = records[: (some := dice.randrange(1, 6))], records[some:]
            for each in (whole, parts):
                answers[id(each)] += each.answers(turn, now_ms)
        waiting = list(whole._unpublished)
        most = max(most, len(waiting) - len(list(joined(waiting, 512))))
        monkeypatch.setattr(module, "joined", joined)
        of_whole = answers[id(whole)] + whole.figures(now_ms)
        monkeypatch.setattr(module, "joined", apart)
        of_parts = answers[id(parts)] + parts.figures(now_ms)

        assert bodies(of_whole) == bodies(of_parts)
        written |= {out.topic for out in of_whole}
    assert most > 0
    assert {COMMAND.name, METRIC.name, WINDOW.name} <= written
    assert whole.late_samples == parts.late_samples


@pytest.mark.parametrize("refused", ["all", "every third"])
def test_figures_that_arrays_refuse_are_those_of_the_rules(refused: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Several seconds a turn: each node's records keep their order, whoever encodes them."""

    def refusing(due: Due, version: str) -> list[Figures | None]:
        if refused == "all":
            raise MarksError("a name")
        return [None if at % 3 == 0 else one for at, one in enumerate(publish(due, version))]

    fleet, plain, other = Fleet(5, nodes=6), worker(), worker()
    metrics = 0
    for second in range(0, 150, 5):
        turn = [record for at in range(second, second + 5) for record in fleet.records(at)]
        now_ms = START_MS + second * 1_000 + 5_350
        monkeypatch.setattr(figures, "publish", publish)
        of_plain = plain.samples(turn, now_ms)
        monkeypatch.setattr(figures, "publish", refusing)
        assert bodies(other.samples(turn, now_ms)) == bodies(of_plain)
        metrics += sum(out.topic == METRIC.name for out in of_plain)
    assert metrics > 100


def test_what_lies_between_two_blocks_keeps_its_place() -> None:
    """So do blocks that would be too large together."""
    reader, fleet = worker(), Fleet(1, nodes=2)
    for second in range(12):
        reader.answers(fleet.records(second), START_MS + second * 1_000)
    blocks = [one for one in reader._unpublished if isinstance(one, Block)]
    assert len(blocks) >= 3
    first, second, third = blocks[:3]

    found = list(joined([first, second, "alone", third], 512))
    assert [isinstance(one, Block) for one in found] == [True, False, True]
    assert found[0].values == [*first.values, *second.values]
    assert found[0].columns.node.tolist() == [*first.columns.node.tolist(), *second.columns.node.tolist()]
    assert found[1:] == ["alone", third]
    assert list(joined([first, second], 0)) == [first, second]


def test_answers_that_are_rendered_together_are_those_that_are_written_one_by_one() -> None:
    """Bytes by partition, what is counted, and who was answered; bad and odd samples among them."""
    reader, fleet = worker(), Fleet(3, nodes=6)
    kinds: set[str] = set()
    for second in range(40):
        records = [
            msgspec.structs.replace(one, partition=number % 2) for number, one in enumerate(fleet.records(second))
        ]
        records.append(msgspec.structs.replace(records[0], value=b"{"))
        answers = reader.answers(records, START_MS + second * 1_000 + 350)
        assert isinstance(answers, RenderedAnswers)

        placed_outs = [out for out in answers if out.partition is not None]
        by_place: dict[tuple[str, int | None], list[bytes]] = defaultdict(list)
        for out in folded(placed_outs):
            by_place[out.topic, out.partition].append(record_of(out))
        assert answers.by_place == by_place
        assert answers.placeless == [out for out in answers if out.partition is None]
        assert +answers.counts == Counter(out.answer for out in placed_outs)
        assert sorted(answers.ages_ms) == sorted(out.age_ms for out in placed_outs if out.age_ms is not None)
        assert answers.nodes == {out.key for out in placed_outs if out.sign_of_life}
        kinds |= {out.answer for out in placed_outs} | {out.topic for out in answers.placeless}
    assert kinds == {"set", "keep", "skipped", DEAD_LETTER.name}
