"""Why a node sells what it sells: the chain from sample to outcome, and what it comes to."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from slacktide.deploy.cli.explain.node_text import node_text, terms_text
from slacktide.schemas.allocatable import NodeAllocatable
from slacktide.schemas.codec import decode, encode
from slacktide.schemas.command import NodeCommand, Origin
from slacktide.schemas.inventory import NodeFacts, Resources
from slacktide.schemas.metric import Aggregate, NodeMetric, Spread
from slacktide.schemas.outcome import KnobChange
from slacktide.schemas.policy import DEFAULT, KEY, policy_of
from slacktide.schemas.policy.strategies import Colocation, ResourceThreshold
from slacktide.schemas.sample import Limits, Missing, NodeSample, NodeUse, PodUse
from slacktide.schemas.topics import ALLOCATABLE, COMMAND, INVENTORY, METRIC, OUTCOME, POLICY, SAMPLE, TOPICS, Topic
from slacktide.streams.decisions.because import Because
from slacktide.streams.decisions.resources.published_floor import published_floor
from slacktide.streams.explain.evidence import Finding
from slacktide.streams.explain.figures import emptied_by, figures
from slacktide.streams.explain.node import NodeExplanation, explain_node
from slacktide.streams.explain.node_log import node_log
from slacktide.streams.records import Out, Record
from testbed.chains import Chain, logged, outcome, outcome_record
from testbed.samples import BATCH, BOOT, FACTS, GIB, SERVICE, START_MS, SUPPRESS

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
    return explain_node(node_log(chain.node, [*chain.records, *more]), now_ms)


def named(told: NodeExplanation, name: str) -> Finding:
    found = [one for one in told.findings if one.name == name]
    assert found, [one.name for one in told.findings]
    return found[0]


def last(chain: Chain, topic: Topic) -> Record:
    return next(record for record in reversed(chain.records) if record.topic == topic.name)


def names(told: NodeExplanation) -> set[str]:
    return {one.name for one in told.findings}


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


def test_a_healthy_node_has_nothing_that_stands_out() -> None:
    chain = Chain()
    now_ms = chain.run(1, 12)
    last = next(step.record for step in explain(chain, now_ms).steps if step.name == "command")
    done = [outcome_record(outcome(seq, command_id=part.id)) for seq in (12,) for part in last.hold]

    assert [one for one in explain(chain, now_ms, *done).findings if one.severity in {"problem", "warning"}] == []


def test_an_agent_that_is_silent_is_said_with_its_last_sample() -> None:
    chain = Chain()
    now_ms = chain.run(1, 12)
    told = explain(chain, now_ms + 60_000)

    assert named(told, "agent.silent").text == "the agent is silent: its last sample, seq 12, is 60.1 s old"
    assert told.findings[0].severity == "problem"


def test_a_node_whose_samples_are_too_old_to_be_read_is_silent_all_the_same() -> None:
    chain = Chain()
    now_ms = chain.run(1, 12)
    chain.records = [record for record in chain.records if record.topic not in {SAMPLE.name, COMMAND.name}]

    told = explain(chain, now_ms)
    seq = decode(last(chain, METRIC).value, NodeMetric).seq
    assert named(told, "agent.silent").text.endswith(f"the last figures are from sample seq {seq}")
    assert {step.name for step in told.steps} == {"window", "allocatable"}


def test_a_stale_node_is_told_with_what_is_kept_for_running_pods() -> None:
    """The workers' own word, and the figures that go with it."""
    chain = Chain(pods=[SERVICE, msgspec.structs.replace(BATCH, requests=Resources(batch_cpu_milli=500))])
    now_ms = chain.run(1, 12)
    for out in chain.worker.silent({"node-1": 9_000}):
        chain.append(out, now_ms + 9_000)
    told = explain(chain, now_ms + 10_000)

    assert "after 9.0 s of silence" in named(told, "window.stale").text
    assert named(told, "batch.stale").text.endswith("the requests of running pods (batch-cpu 500m)")
    cpu = told.figures[0]
    assert cpu.because is not None
    assert (cpu.published, cpu.floored, cpu.because.bound) == (500, True, "floored")
    assert "figures.stand" not in names(told)


def test_figures_of_a_silent_node_that_nobody_calls_stale_are_said_to_stand() -> None:
    chain = Chain()
    told = explain(chain, chain.run(1, 12) + 60_000)

    assert "figures.stand" in names(told)


def test_free_resources_are_shown_with_what_batch_pods_use() -> None:
    chain = Chain(policy_of(replace(SUPPRESS.colocation, free_class_enable=True), SUPPRESS.resource_threshold))
    told = explain(chain, chain.run(1, 12))
    text = node_text(told)

    assert "free-cpu" in text
    assert any("- batch_used_milli" in line for line in text.splitlines())
    plain = Chain()
    assert "free-cpu" not in node_text(explain(plain, plain.run(1, 12)))


def test_batch_pods_that_use_all_leave_nothing_to_free_pods() -> None:
    chain = Chain(policy_of(replace(SUPPRESS.colocation, free_class_enable=True), SUPPRESS.resource_threshold))
    uses = [
        PodUse(uid="ls", cpu_milli=100, mem_bytes=GIB),
        PodUse(uid="be", cpu_milli=3_800, mem_bytes=2 * GIB, best_effort_group=True),
    ]
    told = explain(chain, chain.run(1, 12, use=NodeUse(cpu_milli=3_900, mem_bytes=4 * GIB), pod_use=uses))

    assert "free-cpu would be 0 because of batch_used_milli" in named(told, "free.exhausted").text


def test_disabled_by_policy_names_the_key_and_who_said_it() -> None:
    off = policy_of(Colocation(metric_aggregate_duration_s=10), ResourceThreshold(enable=True))
    chain = Chain(msgspec.structs.replace(off, said=["colocation.enable"]))
    told = explain(chain, chain.run(1, 3))

    found = named(told, "batch.disabled")
    assert found.text == (
        f"batch resources are disabled by policy {off.version}: colocation-config: enable is false (cluster strategy)"
    )
    assert "colocation-config.enable to true" in found.advice
    assert "batch.none" not in names(told)


def test_a_dry_run_of_resources_is_explained_and_their_arithmetic_stays() -> None:
    chain = Chain(policy_of(replace(SUPPRESS.colocation, resource_dry_run=True), SUPPRESS.resource_threshold))
    told = explain(chain, chain.run(1, 12))

    assert "not written to the Node" in named(told, "batch.dry-run").text
    assert next(figure for figure in told.figures if figure.of == "batch_cpu_milli").published


def test_latency_sensitive_pods_that_use_all_are_the_term_that_made_it_nothing() -> None:
    """4 CPUs less 40% margin, 0.4 of the system and 3.4 of the service: nothing is left."""
    chain = Chain()
    told = explain(chain, chain.run(1, 12, **BUSY))

    found = named(told, "batch.exhausted")
    assert found.text.startswith("batch-cpu is 0 because of high_priority_milli: capacity_milli 4,000m - margin")
    assert found.text.endswith("largest: shop/front 3,400m")
    cpu = next(figure for figure in told.figures if figure.of == "batch_cpu_milli")
    assert (cpu.published, cpu.emptied_by) == (0, "high_priority_milli")


@pytest.mark.parametrize(
    ("calculate", "most"),
    [
        pytest.param(
            "usage", "idle/unmeasured 3,000m, shop/front 1,000m", id="by use, of who is not measured by request"
        ),
        pytest.param("maxUsageRequest", "shop/front 2,000m", id="by the greater of both"),
    ],
)
def test_who_counts_most_is_told_as_the_policy_counts(calculate: str, most: str) -> None:
    """What a pod uses is no evidence for a sum of what pods asked for."""
    policy = policy_of(
        Colocation(
            enable=True, metric_aggregate_duration_s=10, cpu_calculate_policy=calculate, cpu_reclaim_threshold_pct=50
        ),
        ResourceThreshold(),
    )
    unmeasured = replace(SERVICE, uid="un", namespace="idle", name="unmeasured", requests=Resources(cpu_milli=3_000))
    chain = Chain(policy, pods=[SERVICE, BATCH, unmeasured])
    told = explain(chain, chain.run(1, 12))

    found = named(told, "batch.exhausted")
    assert found.text.endswith(f"largest: {most}")


@pytest.mark.parametrize(
    ("changes", "term"),
    [
        pytest.param({"cpu_reclaim_threshold_pct": 0}, "margin_milli", id="all of it is kept back"),
        pytest.param({"batch_cpu_threshold_pct": 0}, "cap_milli", id="the policy caps it at nothing"),
    ],
)
def test_the_term_that_left_nothing_is_named(changes: dict, term: str) -> None:
    policy = policy_of(Colocation(enable=True, metric_aggregate_duration_s=10, **changes), ResourceThreshold())
    chain = Chain(policy)
    told = explain(chain, chain.run(1, 3))

    assert f"because of {term}:" in named(told, "batch.exhausted").text


def test_a_node_under_another_policy_than_is_in_force_is_said() -> None:
    chain = Chain()
    chain.run(1, 3)
    other = policy_of(Colocation(enable=True), ResourceThreshold(enable=True))
    chain.publish(other)
    chain.run(4, 4, policy_version=SUPPRESS.version)
    told = explain(chain, START_MS + 4_100)

    assert named(told, "policy.other").text == (
        f"the agent uses policy {SUPPRESS.version}, but {other.version} is in force"
    )
    assert "other policy" in named(told, "command.skipped").text
    assert named(told, "policy.other").severity == "problem"


@pytest.mark.parametrize(
    ("value", "why"),
    [
        pytest.param(encode(replace(DEFAULT, installation="one", writer_epoch=6)), "writer_epoch 6", id="a low epoch"),
        pytest.param(None, "the policy is deleted", id="a null"),
        pytest.param(b"{", "not a Policy", id="no policy"),
    ],
)
def test_a_policy_that_its_readers_refuse_is_a_problem(value: bytes | None, why: str) -> None:
    chain = Chain(replace(SUPPRESS, installation="one", writer_epoch=7))
    chain.run(1, 3)
    chain.append(Out(topic=POLICY.name, key=KEY.encode(), value=value), START_MS + 3_000)
    told = explain(chain, START_MS + 3_100)

    assert named(told, "policy.refused").severity == "problem"
    assert why in named(told, "policy.refused").text
    assert told.policy_version == SUPPRESS.version, "the last good one stays in force"


def test_samples_that_nobody_answers_tell_of_a_silent_worker() -> None:
    chain = Chain()
    chain.run(1, 3)
    told = explain(chain, chain.run(4, 12, answered=False))

    assert "sample seq 9 has been unanswered" in named(told, "worker.silent").text
    assert "the last answered sample is seq 3" in named(told, "worker.silent").text


def test_a_guard_in_charge_is_said_with_its_reason() -> None:
    chain = Chain()
    now_ms = chain.run(1, 3)
    guard = outcome(3, origin="guard", reason="no answer within 1000 ms")
    told = explain(chain, now_ms, outcome_record(guard))

    assert "(seq 3): no answer within 1000 ms" in named(told, "guard.in-charge").text


def test_a_suspended_node_is_said_and_not_that_commands_are_not_carried_out() -> None:
    chain = Chain()
    now_ms = chain.run(1, 3)
    lifted = outcome(3, rule="suspend", origin="agent", reason="suspended by the file /var/lib/slacktide/suspend")
    told = explain(chain, now_ms + 60_000, outcome_record(lifted))

    assert "suspended by the file /var/lib/slacktide/suspend" in named(told, "node.suspended").text
    assert not any(one.name.startswith("command.") for one in told.findings)


@pytest.mark.parametrize(
    ("result", "reason", "severity"),
    [
        pytest.param("refused", "superseded", "warning", id="refused"),
        pytest.param("failed", "cpu.max: read-only", "warning", id="failed"),
        pytest.param("dry-run", "", "note", id="dry run"),
    ],
)
def test_a_command_that_was_not_carried_out_says_why(result: str, reason: str, severity: str) -> None:
    chain = Chain()
    now_ms = chain.run(1, 1)
    [step] = [step for step in explain(chain, now_ms).steps if step.name == "command"]
    said = outcome(1, command_id=step.record.hold[0].id, result=result, reason=reason)

    found = named(explain(chain, now_ms, outcome_record(said)), "command.not-carried-out")
    assert found.severity == severity
    assert found.text.startswith("the limit by cpu_suppress (seq 1) was not carried out: " + result)
    assert reason in found.text


def test_a_command_of_which_nothing_is_heard_is_said_after_some_seconds() -> None:
    chain = Chain()
    now_ms = chain.run(1, 1)

    assert "command.unheard" not in names(explain(chain, now_ms))
    assert "no outcome was received" in named(explain(chain, now_ms + 5_000), "command.unheard").text


def test_what_the_agent_cannot_read_is_said() -> None:
    chain = Chain()
    missing = [Missing(what="pressure", why="/proc/pressure/cpu: missing")]
    told = explain(chain, chain.run(1, 2, missing=missing))

    assert named(told, "agent.missing").text == "the agent cannot read pressure: /proc/pressure/cpu: missing"


def test_of_several_records_the_highest_boot_and_seq_is_the_newest() -> None:
    """A repeated sample has a higher offset and is no newer."""
    chain = Chain()
    now_ms = chain.run(1, 5)
    old = next(record for record in chain.records if record.topic == SAMPLE.name)
    repeated = Record(**{name: getattr(old, name) for name in old.__slots__} | {"offset": 99})
    told = explain(chain, now_ms, repeated)

    assert told.steps[0].record.seq == 5


def test_two_agents_of_one_name_are_told_and_then_the_one_that_is_left() -> None:
    """A forged boot is the highest; once it is silent, the agent that sends on is the one that is explained."""
    forged = "001800000000-0badcafe"
    chain = Chain()
    chain.run(1, 5)
    for seq in range(6, 12):
        chain.take(seq, boot_id=forged, facts=FACTS, pods=chain.pods)
        chain.take(seq)
    both = explain(chain, START_MS + 11_100)
    text = named(both, "agent.two").text
    assert "its figures are frozen: two boots: " in text
    assert forged in text

    told = explain(chain, chain.run(12, 40))
    assert "agent.two" not in names(told)
    assert "agent.silent" not in names(told)
    assert (told.steps[0].record.boot_id, told.steps[0].record.seq) == (BOOT, 40)


def test_a_node_that_does_not_exist_is_told_with_who_decides_that() -> None:
    chain = Chain()
    chain.publish(replace(SUPPRESS, node_source="inventory"))
    told = explain(chain, chain.run(1, 3))

    assert "no batch resources are published: unknown node: no inventory record" in named(told, "node.unknown").text


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

    assert {step.name for step in told.steps} == {"sample", "command", "set"} - {"set"}
    assert told.figures == []


def test_a_record_that_nobody_can_read_stops_no_explanation() -> None:
    chain = Chain()
    now_ms = chain.run(1, 3)
    bad = [
        Record(topic=topic.name, partition=0, offset=90, timestamp_ms=now_ms, key=b"node-1", value=b"{")
        for topic in TOPICS
    ]

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

    assert "batch.capped" not in names(told)
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
    [cpu, *_] = figures(msgspec.structs.replace(body, cpu_terms={"other_milli": 7}))

    assert cpu.because is not None
    assert (cpu.because.adds, dict(cpu.because.terms), cpu.emptied_by) == ((), {"other_milli": 7}, "")


@pytest.mark.parametrize(
    ("system", "high", "blamed"),
    [
        (5_000, 1_000, "system_or_reserved_milli"),
        (1_000, 5_000, "high_priority_milli"),
        (0, 7_000, "high_priority_milli"),
    ],
)
def test_what_takes_most_is_named_when_nothing_is_left(system: int, high: int, blamed: str) -> None:
    terms = {
        "capacity_milli": 8_000,
        "margin_milli": 2_500,
        "system_or_reserved_milli": system,
        "high_priority_milli": high,
        "batch_milli": 0,
    }
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
    reclaim=st.integers(0, 100),
    cap=st.none() | st.integers(0, 100),
)
def test_the_waterfall_adds_up_to_what_is_published(
    capacity: int, service: int, system: int, asked: int, reclaim: int, cap: int | None
) -> None:
    """Down the parts, cut at nothing and at the cap, and never below what running pods asked for."""
    colocation = Colocation(
        enable=True,
        metric_aggregate_duration_s=10,
        cpu_reclaim_threshold_pct=reclaim,
        batch_cpu_threshold_pct=cap,
    )
    whole = Resources(cpu_milli=capacity, mem_bytes=16 * GIB)
    batch = msgspec.structs.replace(BATCH, requests=Resources(batch_cpu_milli=asked, batch_mem_bytes=GIB))
    chain = Chain(
        policy_of(colocation, ResourceThreshold()),
        NodeFacts(name="node-1", capacity=whole, allocatable=whole),
        [SERVICE, batch],
    )
    uses = [
        PodUse(uid="ls", cpu_milli=service, mem_bytes=GIB),
        PodUse(uid="be", cpu_milli=0, mem_bytes=GIB, best_effort_group=True),
    ]
    use = NodeUse(cpu_milli=service + system, mem_bytes=4 * GIB)
    told = explain(chain, chain.run(1, 2, use=use, pod_use=uses))

    floors = published_floor({figure.of: 0 for figure in told.figures}, [SERVICE, batch]).figures
    assert {"batch_cpu_milli", "batch_mem_bytes"} <= {figure.of for figure in told.figures}
    for figure in told.figures:
        because = figure.because
        assert because is not None
        capped = next((value for name, value in because.terms.items() if name.startswith("cap_")), None)
        left = max(0, because.added())
        sold = left if capped is None else min(left, capped)
        unfloored = figure.published == sold
        assert unfloored or figure.published == max(sold, floors[figure.of] or 0)
        assert figure.floored is (not unfloored)
        assert (figure.emptied_by != "") is (sold == 0 and figure.of.startswith("batch"))


def test_mid_resource_that_nobody_asked_the_policy_for_is_no_finding() -> None:
    chain = Chain()
    now_ms = chain.run(1, 12)
    body = decode(last(chain, ALLOCATABLE).value, NodeAllocatable)
    terms = {"capacity_milli": 4_000, "base_milli": 0, "unallocated_part_milli": 0, "cap_milli": 4_000, "mid_milli": 0}
    chain.put(msgspec.structs.replace(body, mid_cpu_milli=0, mid_cpu_terms=terms), ALLOCATABLE, at_ms=now_ms)
    told = explain(chain, now_ms)

    mid = next(figure for figure in told.figures if figure.of == "mid_cpu_milli")
    assert (mid.published, mid.emptied_by) == (0, "")
    assert not any("mid" in one.text for one in told.findings)


def test_a_refusal_has_neither_a_step_nor_limits_to_show() -> None:
    chain = Chain()
    now_ms = chain.run(1, 3)
    refused = outcome(1, result="refused", reason="superseded", count=9)
    text = node_text(explain(chain, now_ms, outcome_record(refused), outcome_record(outcome(3, bound="target"))))

    assert "refused: superseded, 9 times, cpu_suppress, by the stream, seq 1\n" in text
    assert "cpu_suppress (target), by the stream, seq 3\n" in text


def test_a_knob_without_a_limit_is_told_so() -> None:
    chain = Chain()
    knob = KnobChange(knob="mem_limit_bytes", before=None, after=134_217_728)
    held = outcome(3, rule="BEIsolation", target="pod/batch", before=None, after=None, knob=knob)

    assert "mem_limit_bytes of pod/batch: none -> 134217728\n" in node_text(
        explain(chain, chain.run(1, 3), outcome_record(held))
    )


def test_for_a_terminal_it_ends_in_the_waterfall() -> None:
    chain = Chain()
    text = node_text(explain(chain, chain.run(1, 12), outcome_record(outcome(12))))

    sold = decode(last(chain, ALLOCATABLE).value, NodeAllocatable).batch_cpu_milli
    assert f"s ago     {METRIC.name} 0:{last(chain, METRIC).offset}\n    averages over " in text
    assert "+ capacity_milli" in text
    assert "█" in text
    assert f"  = batch-cpu: {sold:,}m" in text
    assert f"{OUTCOME.name} 0:0" in text


def test_percentiles_and_lateness_are_shown_where_the_window_has_them() -> None:
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
    chain.put(msgspec.structs.replace(body, late=3, aggregates=[aggregate]), METRIC, at_ms=now_ms)

    text = node_text(explain(chain, now_ms))
    assert ", 3 late)" in text
    assert "5 min (12 s covered): CPU avg 1,500m, p50 1,400m, p90 1,900m, p95 2,000m, p99" in text
    assert "2,048 MiB" in text


def test_as_json_it_decodes_with_its_findings_and_places() -> None:
    chain = Chain(facts=FACTS)
    body = msgspec.json.decode(msgspec.json.encode(explain(chain, chain.run(1, 12))))

    assert list(body) == [
        "node", "asked_ms", "policy_version", "policy_place", "steps", "figures", "findings",
    ]  # fmt: skip
    assert body["steps"][0]["place"] == {
        "topic": SAMPLE.name, "partition": 0, "offset": 11, "logged_ms": START_MS + 12_000,
    }  # fmt: skip
    assert body["figures"][0]["because"]["terms"]["capacity_milli"] == 4_000


def _refused(chain: Chain, offset: int, **changes: object) -> list[Record]:
    """A forged sample of a boot above all others, and its answer."""
    sample = last(chain, SAMPLE)
    boot = {"boot_id": "999999999999-x", "seq": offset}
    body = replace(decode(sample.value, NodeSample), pods=[], **boot)
    answer = last(chain, COMMAND)
    place = Origin(topic=SAMPLE.name, partition=sample.partition, offset=offset)
    command = replace(
        decode(answer.value, NodeCommand),
        answer="skipped", reason="proof: forged", proof="forged", hold=[], sample=place, **boot,
    )  # fmt: skip
    return [
        replace(sample, offset=offset, value=encode(body)),
        replace(answer, offset=10_000 + offset, value=encode(command)),
    ]


def test_forged_samples_are_told_and_explain_nothing() -> None:
    chain = Chain()
    now_ms = chain.run(1, 12)
    forged = explain(chain, now_ms, *_refused(chain, 900), *_refused(chain, 901))

    assert forged.steps == explain(chain, now_ms).steps
    assert named(forged, "agent.forged").severity == "warning"
    assert "2 forged" in named(forged, "agent.forged").text


def test_a_node_of_which_nothing_is_proven_says_so() -> None:
    chain = Chain()
    now_ms = chain.run(1, 12)
    others = [record for record in chain.records if record.topic not in {SAMPLE.name, COMMAND.name}]
    told = explain_node(node_log(chain.node, [*others, *_refused(chain, 900)]), now_ms)

    assert "sample" not in {step.name for step in told.steps}
    assert named(told, "agent.unproven").severity == "problem"
