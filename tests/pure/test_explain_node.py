"""Why a node sells what it sells: the chain from sample to outcome, and what it comes to."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from slacktide.deploy.cli.explain.log import Lately
from slacktide.deploy.cli.explain.node_text import node_text, terms_text
from slacktide.deploy.console.history.recorder import TOPICS as FOLLOWED_TOPICS
from slacktide.deploy.console.history.recorder import Recorder
from slacktide.schemas.allocatable import NodeAllocatable
from slacktide.schemas.codec import decode, encode
from slacktide.schemas.command import NodeCommand, Origin
from slacktide.schemas.inventory import NodeFacts, Processor, Resources
from slacktide.schemas.metric import Aggregate, NodeMetric, Spread
from slacktide.schemas.outcome import KnobChange
from slacktide.schemas.policy import DEFAULT, KEY, Policy, RefusedFile, policy_of
from slacktide.schemas.policy.strategies import Colocation, ResourceThreshold
from slacktide.schemas.sample import Limits, Missing, NodeUse, PodUse
from slacktide.schemas.sample_columns_codec import encoded, to_sample
from slacktide.schemas.topics import ALLOCATABLE, COMMAND, INVENTORY, METRIC, OUTCOME, POLICY, SAMPLE, TOPICS, Topic
from slacktide.streams.analysis.explain.carried_out import LATELY_MS
from slacktide.streams.analysis.explain.evidence import BRIEF
from slacktide.streams.analysis.explain.figures import emptied_by, figures
from slacktide.streams.analysis.explain.node import NodeExplanation, explain_node, node_findings, node_row
from slacktide.streams.analysis.explain.node_log import NodeLog, node_log, policy_refused
from slacktide.streams.decisions.because import Because
from slacktide.streams.decisions.resources.publishing import published_floor
from slacktide.streams.records import Out, Record
from testbed.chains import Chain, logged, outcome, outcome_record
from testbed.samples import BATCH, BOOT, FACTS, GIB, SERVICE, START_MS, SUPPRESS
from testbed.snapshots import findings, situations, stable
from testbed.vectors import each_row

FOLLOWED = {topic.name for topic in FOLLOWED_TOPICS}
LATELY = {topic.name for topic in (SAMPLE, COMMAND, OUTCOME)}
EXAMPLES = Path(__file__).parents[2] / "schemas" / "examples"
BUSY = {
    "use": NodeUse(cpu_milli=3_900, mem_bytes=4 * GIB),
    "pod_use": [
        PodUse(uid="ls", cpu_milli=3_400, mem_bytes=GIB),
        PodUse(uid="be", cpu_milli=100, mem_bytes=2 * GIB, best_effort_group=True),
    ],
}
"""The service uses nearly the whole node."""


def explain(chain: Chain, now_ms: int, *more: Record) -> NodeExplanation:
    """What is explained, and beside it that ``nodes`` and the console say the same of the node."""
    records = [*chain.records, *more]
    told = explain_node(node_log(chain.node, records), now_ms)
    worst = next(((one.severity, one.name) for one in told.findings if one.severity != "ok"), ("ok", ""))
    row = node_row(overview(chain.node, records, now_ms), now_ms)
    assert (row.severity, row.fact) == worst, "nodes"
    recorder = Recorder(START_MS // 1_000, {}, first=True)
    for record in records:
        if record.topic in FOLLOWED:
            recorder.take(record)
    if (shown := recorder.nodes.get(chain.node)) is not None:
        seen = node_findings(shown.log(recorder.policy, policy_refused(recorder.policies)), now_ms)
        assert next(((one.severity, one.name) for one in seen if one.severity != "ok"), ("ok", "")) == worst, "console"
        assert all(one.name in BRIEF for one in seen)
    return told


def overview(node: str, records: Sequence[Record], now_ms: int) -> NodeLog:
    """What ``nodes`` reads of a node."""
    chosen = Lately(now_ms - LATELY_MS)
    kept = [one for one in records if one.topic not in LATELY or chosen.wants(one)]
    return node_log(node, [*chosen.lists.values(), *kept])


def found(told: NodeExplanation, *parts: str) -> str:
    return stable(findings(told.findings, *parts))


def steady(chain: Chain, *more: Record, seconds: int = 3, later_ms: int = 0, **changes: Any) -> NodeExplanation:
    """What is explained after some seconds of samples."""
    return explain(chain, chain.run(1, seconds, **changes) + later_ms, *more)


def policy(**colocation: Any) -> Policy:
    return policy_of(Colocation(enable=True, metric_aggregate_duration_s=10, **colocation), ResourceThreshold())


def suppress(**colocation: Any) -> Policy:
    return policy_of(replace(SUPPRESS.colocation, **colocation), SUPPRESS.resource_threshold)


def last(chain: Chain, topic: Topic) -> Record:
    return next(record for record in reversed(chain.records) if record.topic == topic.name)


def test_the_chain_is_told_with_each_records_place_and_those_of_its_inputs() -> None:
    """The newest answer kept what is; the newest that set something is told beside it."""
    chain = Chain()
    now_ms = chain.run(1, 12)
    told = explain(chain, now_ms, outcome_record(outcome(12)))

    assert [step.name for step in told.steps][:4] == ["sample", "window", "allocatable", "command"]
    window, metric = told.steps[1], last(chain, METRIC)
    assert (window.place.topic, window.place.offset) == (METRIC.name, metric.offset)
    assert window.age_ms == now_ms - metric.timestamp_ms
    inputs = {one.what: one for one in window.inputs}
    sample = inputs["sample"].place
    assert sample is not None
    assert (sample.topic, sample.offset) == (SAMPLE.name, window.record.seq - 1)
    keyframe = inputs["pods"].place
    assert keyframe is not None
    assert (keyframe.topic, keyframe.offset) == (SAMPLE.name, 10)
    policy = inputs["policy"].place
    assert policy is not None
    assert (policy.topic, policy.offset, inputs["policy"].name) == (POLICY.name, 0, SUPPRESS.version)


def healthy() -> NodeExplanation:
    chain = Chain()
    now_ms = chain.run(1, 12)
    last = next(step.record for step in explain(chain, now_ms).steps if step.name == "command")
    return explain(chain, now_ms, *[outcome_record(outcome(12, command_id=part.id)) for part in last.hold])


def too_old_samples() -> NodeExplanation:
    """Nobody can read the samples any more."""
    chain = Chain()
    now_ms = chain.run(1, 12)
    chain.records = [record for record in chain.records if record.topic not in {SAMPLE.name, COMMAND.name}]
    return explain(chain, now_ms)


def stale() -> NodeExplanation:
    """The workers' own word, and the figures that go with it."""
    chain = Chain(pods=[SERVICE, replace(BATCH, requests=Resources(batch_cpu_milli=500))])
    now_ms = chain.run(1, 12)
    for out in chain.worker.silent({"node-1": 9_000}):
        chain.append(out, now_ms + 9_000)
    return explain(chain, now_ms + 10_000)


def disabled() -> NodeExplanation:
    off = policy_of(Colocation(metric_aggregate_duration_s=10), ResourceThreshold(enable=True))
    return steady(Chain(replace(off, said=["colocation.enable"])))


def free_exhausted() -> NodeExplanation:
    uses = [
        PodUse(uid="ls", cpu_milli=100, mem_bytes=GIB),
        PodUse(uid="be", cpu_milli=3_800, mem_bytes=2 * GIB, best_effort_group=True),
    ]
    use = NodeUse(cpu_milli=3_900, mem_bytes=4 * GIB)
    return steady(Chain(suppress(free_class_enable=True)), seconds=12, use=use, pod_use=uses)


def counted(calculate: str) -> NodeExplanation:
    """What a pod uses is no evidence for a sum of what pods asked for."""
    unmeasured = replace(SERVICE, uid="un", namespace="idle", name="unmeasured", requests=Resources(cpu_milli=3_000))
    by = policy(cpu_calculate_policy=calculate, cpu_reclaim_threshold_pct=50)
    return steady(Chain(by, pods=[SERVICE, BATCH, unmeasured]), seconds=12)


def other_policy() -> NodeExplanation:
    chain = Chain()
    chain.run(1, 3)
    chain.publish(policy_of(Colocation(enable=True), ResourceThreshold(enable=True)))
    chain.run(4, 4, policy_version=SUPPRESS.version)
    return explain(chain, START_MS + 4_100)


def refused_policy(value: bytes | None) -> NodeExplanation:
    chain = Chain(replace(SUPPRESS, installation="one", writer_epoch=7))
    chain.run(1, 3)
    chain.append(Out(topic=POLICY.name, key=KEY.encode(), value=value), START_MS + 3_000)
    told = explain(chain, START_MS + 3_100)
    assert told.policy_version == SUPPRESS.version, "the last good one stays in force"
    return told


def refused_file() -> NodeExplanation:
    """An operator's newest file is invalid: what is in force stays, and says so."""
    chain = Chain()
    chain.run(1, 3)
    refused = RefusedFile(since_ms=START_MS, findings=["field: 170: accepted: a whole number from 0 to 100"])
    chain.publish(replace(SUPPRESS, refused=refused))
    return explain(chain, START_MS + 3_100)


def unanswered() -> NodeExplanation:
    chain = Chain()
    chain.run(1, 3)
    return explain(chain, chain.run(4, 12, answered=False))


def not_carried_out(result: str, reason: str) -> NodeExplanation:
    chain = Chain()
    now_ms = chain.run(1, 1)
    [step] = [step for step in explain(chain, now_ms).steps if step.name == "command"]
    said = outcome(1, command_id=step.record.hold[0].id, result=result, reason=reason)
    return explain(chain, now_ms, outcome_record(said))


def two_agents(last_seq: int = 0) -> NodeExplanation:
    """A forged boot is the highest."""
    chain = Chain()
    chain.run(1, 5)
    for seq in range(6, 12):
        chain.take(seq, boot_id="001800000000-0badcafe", facts=FACTS, pods=chain.pods)
        chain.take(seq)
    return explain(chain, chain.run(12, last_seq) if last_seq else START_MS + 11_100)


def unknown_node() -> NodeExplanation:
    chain = Chain()
    chain.publish(replace(SUPPRESS, node_source="inventory"))
    return steady(chain)


def mid_that_nobody_asked_for() -> NodeExplanation:
    chain = Chain()
    now_ms = chain.run(1, 12)
    body = decode(last(chain, ALLOCATABLE).value, NodeAllocatable)
    terms = {"capacity_milli": 4_000, "base_milli": 0, "unallocated_part_milli": 0, "cap_milli": 4_000, "mid_milli": 0}
    chain.put(replace(body, mid_cpu_milli=0, mid_cpu_terms=terms), ALLOCATABLE, at_ms=now_ms)
    told = explain(chain, now_ms)
    mid = next(figure for figure in told.figures if figure.of == "mid_cpu_milli")
    assert (mid.published, mid.emptied_by) == (0, "")
    return told


LOW_EPOCH = encode(replace(DEFAULT, installation="one", writer_epoch=6))
GUARD = outcome(3, origin="guard", reason="no answer within 1000 ms")
SUSPENDED = outcome(3, rule="suspend", origin="agent", reason="suspended by the file /var/lib/slacktide/suspend")
UNREADABLE = [Missing(what="pressure", why="/proc/pressure/cpu: missing")]


@situations(
    "told",
    {
        "a healthy node": healthy,
        "a silent agent, with its last sample": lambda: steady(Chain(), seconds=12, later_ms=60_000),
        "samples too old to be read are silence all the same": too_old_samples,
        "a stale node, with what is kept for running pods": stale,
        "batch pods that use all leave nothing to free pods": free_exhausted,
        "disabled by policy, with the key and who said it": disabled,
        "a dry run of resources": lambda: steady(Chain(suppress(resource_dry_run=True)), seconds=12),
        # 4 CPUs less 40% margin, 0.4 of the system and 3.4 of the service: nothing is left.
        "latency-sensitive pods that use all": lambda: steady(Chain(), seconds=12, **BUSY),
        "who counts most by use, of who is not measured by request": lambda: counted("usage"),
        "who counts most by the greater of both": lambda: counted("maxUsageRequest"),
        "all of it is kept back": lambda: steady(Chain(policy(cpu_reclaim_threshold_pct=0))),
        "the policy caps it at nothing": lambda: steady(Chain(policy(batch_cpu_threshold_pct=0))),
        "more than all of it is offered, and the node has no more": lambda: steady(
            Chain(suppress(cpu_reclaim_threshold_pct=600, mem_reclaim_threshold_pct=600, free_class_enable=True))
        ),
        "another policy than is in force": other_policy,
        "a policy of a low epoch": lambda: refused_policy(LOW_EPOCH),
        "a policy that is a null": lambda: refused_policy(None),
        "a policy that is none": lambda: refused_policy(b"{"),
        "a policy whose newest file is invalid": refused_file,
        "samples that nobody answers": unanswered,
        "a guard in charge, with its reason": lambda: steady(Chain(), outcome_record(GUARD)),
        "suspended, and not that commands are not carried out": lambda: steady(
            Chain(), outcome_record(SUSPENDED), later_ms=60_000
        ),
        "a command that was refused": lambda: not_carried_out("refused", "superseded"),
        "a command that failed": lambda: not_carried_out("failed", "cpu.max: read-only"),
        "a command in a dry run": lambda: not_carried_out("dry-run", ""),
        "a command of which nothing is heard yet": lambda: steady(Chain(), seconds=1),
        "a command of which nothing is heard for seconds": lambda: steady(Chain(), seconds=1, later_ms=5_000),
        "what the agent cannot read": lambda: steady(Chain(), seconds=2, missing=UNREADABLE),
        "two agents of one name": two_agents,
        "two agents, of which one is left": lambda: two_agents(40),
        "a node that does not exist, with who decides that": unknown_node,
        "mid resource that nobody asked the policy for is no finding": mid_that_nobody_asked_for,
        "annotations that nobody can read": lambda: steady(
            Chain(facts=replace(FACTS, annotations={"node.koordinator.sh/reservation": "[" * 99}))
        ),
    },
)
def test_what_is_found_of_a_node(told: Callable[[], NodeExplanation], snapshot) -> None:
    assert found(told()) == snapshot


def test_figures_of_a_stale_node_keep_what_running_pods_asked_for() -> None:
    told = stale()
    cpu = told.figures[0]
    assert cpu.because is not None
    assert (cpu.published, cpu.floored, cpu.because.bound) == (500, True, "floored")
    assert {step.name for step in too_old_samples().steps} == {"window", "allocatable"}


def test_free_resources_are_shown_with_what_batch_pods_use(snapshot) -> None:
    assert stable(node_text(steady(Chain(suppress(free_class_enable=True)), seconds=12))) == snapshot
    assert "free-cpu" not in node_text(steady(Chain(), seconds=12))


def test_latency_sensitive_pods_that_use_all_are_the_term_that_made_it_nothing() -> None:
    told = steady(Chain(), seconds=12, **BUSY)
    cpu = next(figure for figure in told.figures if figure.of == "batch_cpu_milli")
    assert (cpu.published, cpu.emptied_by) == (0, "high_priority_milli")
    dry = steady(Chain(suppress(resource_dry_run=True)), seconds=12)
    assert next(figure for figure in dry.figures if figure.of == "batch_cpu_milli").published, "the arithmetic stays"


def test_of_several_records_the_highest_boot_and_seq_is_the_newest() -> None:
    """A repeated sample has a higher offset and is no newer."""
    chain = Chain()
    now_ms = chain.run(1, 5)
    old = next(record for record in chain.records if record.topic == SAMPLE.name)
    assert explain(chain, now_ms, replace(old, offset=99)).steps[0].record.seq == 5


def test_of_two_agents_the_one_that_sends_on_is_explained() -> None:
    told = two_agents(40)
    assert (told.steps[0].record.boot_id, told.steps[0].record.seq) == (BOOT, 40)


def test_the_inventory_that_figures_go_by_is_named_with_its_place() -> None:
    chain = Chain()
    chain.worker.inventory(chain.records[0])
    told = explain(chain, chain.run(1, 3))
    allocatable = next(step for step in told.steps if step.name == "allocatable")
    [inventory] = [one for one in allocatable.inputs if one.what == "inventory"]

    assert inventory.place is not None
    assert (inventory.place.topic, inventory.name) == (INVENTORY.name, allocatable.record.inventory_revision)


def test_figures_that_were_taken_back_are_told_no_more() -> None:
    chain = Chain()
    now_ms = chain.run(1, 3)
    gone = [logged(None, topic, key="node-1", offset=50) for topic in (METRIC, ALLOCATABLE, INVENTORY)]
    told = explain(chain, now_ms, *gone)

    assert {step.name for step in told.steps} == {"sample", "command"}
    assert told.figures == []


def test_a_record_that_nobody_can_read_stops_no_explanation() -> None:
    chain = Chain()
    now_ms = chain.run(1, 3)
    bad = [replace(chain.records[0], topic=topic.name, offset=90, timestamp_ms=now_ms, value=b"{") for topic in TOPICS]

    assert explain(chain, now_ms, *bad).steps == explain(chain, now_ms).steps


def test_terms_of_a_large_node_are_told_to_the_byte() -> None:
    """64 GiB have eleven digits."""
    terms = {"capacity_bytes": 64 * GIB, "release_bytes": 30_064_771_072, "ratio": 0.1 + 0.2, "used_pct": 75}

    assert terms_text(terms) == "capacity_bytes 68,719,476,736, release_bytes 30,064,771,072, ratio 0.3, used_pct 75"


def test_an_outcome_with_limits_that_cannot_be_is_passed_over() -> None:
    """A period of 0 is outside the schema's range: a dead letter tells of it."""
    chain = Chain()
    odd = Limits(be_cfs_quota_us=1, be_cfs_period_us=0)
    told = explain(chain, chain.run(1, 3), outcome_record(outcome(3, before=odd, after=Limits(be_cfs_quota_us=50_000))))

    assert "outcome" not in {step.name for step in told.steps}


def test_terms_that_do_not_go_together_end_no_explanation() -> None:
    """Less is sold than is available, and no cap is named."""
    chain = Chain()
    now_ms = chain.run(1, 12)
    body = decode(last(chain, ALLOCATABLE).value, NodeAllocatable)
    odd = replace(body, seq=13, cpu_terms=body.cpu_terms | {"batch_milli": 1})
    told = explain(chain, now_ms, logged(odd, ALLOCATABLE, key="node-1", offset=99))

    assert "batch.capped" not in {one.name for one in told.findings}
    assert "batch_milli" in node_text(told)


def test_a_node_that_nothing_is_said_of_is_not_known() -> None:
    assert not node_log("node-2", Chain().records).known
    assert node_log("node-1", Chain().records).known


@pytest.mark.parametrize("number", [1, 2, 3])
def test_the_example_records_explain_themselves(number: int) -> None:
    """Each figure of the examples is the sum that its terms say."""
    body = decode((EXAMPLES / ALLOCATABLE.name / f"{number}.json").read_bytes(), NodeAllocatable)

    for figure in figures(body):
        if figure.because is not None and figure.published is not None:
            assert figure.because.adds
            assert figure.published >= min(figure.because.added(), 0)
            assert (
                figure.published == max(figure.because.added(), 0) or figure.floored or figure.because.bound == "capped"
            )


def test_terms_of_another_version_are_shown_as_they_are() -> None:
    """An unknown arithmetic is not made up."""
    body = decode((EXAMPLES / ALLOCATABLE.name / "1.json").read_bytes(), NodeAllocatable)
    [cpu, *_] = figures(replace(body, cpu_terms={"other_milli": 7}))

    assert cpu.because is not None
    assert (cpu.because.adds, dict(cpu.because.terms), cpu.emptied_by) == ((), {"other_milli": 7}, "")


@each_row("system", "high", "blamed")
def test_what_takes_most_is_named_when_nothing_is_left(system: int, high: int, blamed: str) -> None:
    parts = {"system_or_reserved_milli": system, "high_priority_milli": high}
    terms = {"capacity_milli": 8_000, "margin_milli": 2_500, **parts, "batch_milli": 0}
    because = Because(of="batch_cpu_milli", bound="formula", terms=terms, adds=ADDS)

    assert emptied_by(because, "batch_milli") == blamed


ADDS = ("+capacity_milli", "-margin_milli", "-system_or_reserved_milli", "-high_priority_milli")
amounts = st.integers(0, 20_000)


@settings(deadline=None)
@given(
    capacity=st.integers(1, 64_000),
    service=amounts,
    system=amounts,
    asked=st.integers(0, 8_000),
    reclaim=st.integers(0, 700),
    cap=st.none() | st.integers(0, 250),
)
def test_the_waterfall_adds_up_to_what_is_published(
    capacity: int, service: int, system: int, asked: int, reclaim: int, cap: int | None
) -> None:
    """Down the parts, cut at nothing, at the cap and at the capacity, and never below what running pods asked for."""
    whole = Resources(cpu_milli=capacity, mem_bytes=16 * GIB)
    batch = replace(BATCH, requests=Resources(batch_cpu_milli=asked, batch_mem_bytes=GIB))
    wanted = policy(cpu_reclaim_threshold_pct=reclaim, batch_cpu_threshold_pct=cap)
    chain = Chain(wanted, NodeFacts(name="node-1", capacity=whole, allocatable=whole), [SERVICE, batch])
    uses = [
        PodUse(uid="ls", cpu_milli=service, mem_bytes=GIB),
        PodUse(uid="be", cpu_milli=0, mem_bytes=GIB, best_effort_group=True),
    ]
    use = NodeUse(cpu_milli=service + system, mem_bytes=4 * GIB)
    told = explain(chain, chain.run(1, 2, use=use, pod_use=uses))

    floors = published_floor({figure.of: 0 for figure in told.figures}, [SERVICE, batch], whole).figures
    assert {"batch_cpu_milli", "batch_mem_bytes"} <= {figure.of for figure in told.figures}
    assert "figures.above-capacity" not in {one.name for one in told.findings}
    for figure in told.figures:
        because = figure.because
        assert because is not None
        capacity_of_it = f"capacity_{'milli' if figure.of.endswith('milli') else 'bytes'}"
        capped = next((value for name, value in because.terms.items() if name.startswith("cap_")), None)
        left = max(0, because.added())
        sold = left if capped is None else min(left, capped)
        unfloored = figure.published == sold
        assert unfloored or figure.published == max(sold, floors[figure.of] or 0) <= because.terms[capacity_of_it]
        assert sold <= because.terms[capacity_of_it]
        assert figure.floored is (not unfloored)
        assert (figure.emptied_by != "") is (sold == 0 and figure.of.startswith("batch"))


def spread_and_late() -> NodeExplanation:
    chain = Chain()
    now_ms = chain.run(1, 12)
    spread = Spread(avg=1_500, p50=1_400, p90=1_900, p95=2_000, p99=2_100)
    aggregate = Aggregate(
        window_ms=300_000,
        covered_ms=12_000,
        node_cpu_milli=spread,
        node_mem_bytes=Spread(avg=GIB, p50=GIB, p90=GIB, p95=2 * GIB, p99=2 * GIB),
        system_cpu_milli=spread,
        system_mem_bytes=spread,
    )
    body = decode(last(chain, METRIC).value, NodeMetric)
    chain.put(replace(body, late=3, aggregates=[aggregate]), METRIC, at_ms=now_ms)
    return explain(chain, now_ms)


REFUSED = outcome(1, result="refused", reason="superseded", count=9)
KNOB = KnobChange(knob="mem_limit_bytes", before=None, after=134_217_728)
HELD = outcome(3, rule="BEIsolation", target="pod/batch", before=None, after=None, knob=KNOB)


@situations(
    "told",
    {
        "the chain, and the waterfall": lambda: steady(Chain(), outcome_record(outcome(12)), seconds=12),
        "a refusal has neither a step nor limits": lambda: steady(
            Chain(), outcome_record(REFUSED), outcome_record(outcome(3, bound="target"))
        ),
        "a knob without a limit": lambda: steady(Chain(), outcome_record(HELD)),
        "percentiles and lateness, where the window has them": spread_and_late,
    },
)
def test_for_a_terminal(told: Callable[[], NodeExplanation], snapshot) -> None:
    assert stable(node_text(told())) == snapshot


def test_as_json_it_decodes_with_its_findings_and_places() -> None:
    processors = [Processor(cpu=cpu, core=cpu, socket=0, numa_node=0) for cpu in range(4)]
    lsr = replace(SERVICE, uid="lsr", name="lsr", qos_label="LSR", cpuset="0-1")
    chain = Chain(facts=replace(FACTS, processors=processors), pods=[SERVICE, BATCH, lsr])
    body = msgspec.json.decode(msgspec.json.encode(explain(chain, chain.run(1, 12))))

    assert list(body) == [
        "node", "asked_ms", "policy_version", "policy_place", "steps", "figures", "findings", "cpus",
    ]  # fmt: skip
    assert body["steps"][0]["place"] == {
        "topic": SAMPLE.name, "partition": 0, "offset": 11, "logged_ms": START_MS + 12_000,
    }  # fmt: skip
    assert body["figures"][0]["because"]["terms"]["capacity_milli"] == 4_000
    assert body["cpus"] == [
        {"zone": 0, "cpus": "0-1", "owner": "LSR", "pods": ["shop/lsr"], "best_effort": True},
        {"zone": 0, "cpus": "2-3", "owner": "shared", "pods": [], "best_effort": True},
    ]
    assert node_text(explain(chain, chain.run(13, 13))).splitlines()[-2:] == [
        "  zone 0: LSR 0-1, shop/lsr; best-effort pods may run there",
        "  zone 0: shared 2-3; best-effort pods may run there",
    ]


def _refused(chain: Chain, offset: int, **changes: object) -> list[Record]:
    """A forged sample of a boot above all others, and its answer."""
    sample = last(chain, SAMPLE)
    boot = {"boot_id": "999999999999-x", "seq": offset}
    body = replace(to_sample(sample.value, lambda _: [pod.uid for pod in chain.pods]), pods=[], **boot)
    answer = last(chain, COMMAND)
    place = Origin(topic=SAMPLE.name, partition=sample.partition, offset=offset)
    command = replace(
        decode(answer.value, NodeCommand),
        answer="skipped", reason="proof: forged", proof="forged", hold=[], sample=place, **boot,
    )  # fmt: skip
    return [
        replace(sample, offset=offset, value=encoded(body, [])),
        replace(answer, offset=10_000 + offset, value=encode(command)),
    ]


def test_forged_samples_are_told_and_explain_nothing(snapshot) -> None:
    chain = Chain()
    now_ms = chain.run(1, 12)
    forged = explain(chain, now_ms, *_refused(chain, 900), *_refused(chain, 901))

    assert forged.steps == explain(chain, now_ms).steps
    assert found(forged) == snapshot


def test_a_node_of_which_nothing_is_proven_says_so(snapshot) -> None:
    chain = Chain()
    now_ms = chain.run(1, 12)
    others = [record for record in chain.records if record.topic not in {SAMPLE.name, COMMAND.name}]
    told = explain_node(node_log(chain.node, [*others, *_refused(chain, 900)]), now_ms)

    assert "sample" not in {step.name for step in told.steps}
    assert found(told) == snapshot
