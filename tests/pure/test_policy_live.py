"""Stream and guard decide by what holds on the node, not by the cluster's strategy alone."""

import json

import msgspec
import pytest

from slacktide.schemas.allocatable import NodeAllocatable
from slacktide.schemas.codec import decode
from slacktide.schemas.command import NodeCommand
from slacktide.schemas.inventory import NodeFacts, revision_of
from slacktide.schemas.metric import NodeMetric
from slacktide.schemas.sample import NodeSample
from slacktide.schemas.score import NodeScore
from slacktide.schemas.topics import ALLOCATABLE, COMMAND, METRIC, SCORE
from slacktide.streams.decisions.suppress.cpu_suppress import decide
from slacktide.streams.worker import Worker
from testbed.policies import policy_from
from testbed.samples import FACTS, PODS, START_MS, keyframe, policy_record, record_of, sample
from testbed.vectors import changed, each_row

SPOT = {"name": "spot", "nodeSelector": {"matchLabels": {"pool": "spot"}}}
POLICY = policy_from(
    colocation={
        "enable": True,
        "metricAggregateDurationSeconds": 10,
        "nodeConfigs": [{**SPOT, "metricAggregateDurationSeconds": 20, "cpuReclaimThresholdPercent": 90}],
    },
    threshold={
        "clusterStrategy": {"enable": True, "cpuSuppressPolicy": "cfsQuota"},
        "nodeStrategies": [{**SPOT, "cpuSuppressThresholdPercent": 40}],
    },
)
ON_SPOT = msgspec.structs.replace(FACTS, labels={"pool": "spot"})
OFF = msgspec.structs.replace(
    POLICY, node_resource_threshold=policy_from(threshold={"nodeStrategies": [SPOT]}).node_resource_threshold
)


def of(facts: NodeFacts) -> dict:
    return {"facts_revision": revision_of(facts), "policy_version": POLICY.version}


def told(*samples: NodeSample) -> dict[str, list]:
    """What a worker says to these samples, by topic."""
    worker = Worker("w")
    worker.policy(policy_record(POLICY))
    kinds = {
        COMMAND.name: NodeCommand,
        METRIC.name: NodeMetric,
        ALLOCATABLE.name: NodeAllocatable,
        SCORE.name: NodeScore,
    }
    said: dict[str, list] = {name: [] for name in kinds}
    for out in worker.samples([record_of(one) for one in samples], START_MS):
        said[out.topic].append(decode(out.value, kinds[out.topic]))
    return said


@each_row("changes", "threshold_pct")
def test_suppress_goes_by_the_nodes_threshold(changes: dict, threshold_pct: int) -> None:
    facts = changed(FACTS, changes)
    decision = decide(sample(1), facts, PODS, POLICY)
    [command] = told(keyframe(1, facts=facts, **of(facts)))[COMMAND.name]

    assert decision.terms["ceiling_milli"] == 4_000 * threshold_pct // 100
    assert command.hold[0].terms == decision.terms


def test_suppress_may_be_off_on_some_nodes_alone() -> None:
    assert decide(sample(1), ON_SPOT, PODS, OFF).bound == "disabled"
    assert decide(sample(1), FACTS, PODS, OFF).bound != "disabled"


@each_row("changes", "reclaim_pct")
def test_batch_resources_go_by_the_nodes_colocation(changes: dict, reclaim_pct: int) -> None:
    facts = changed(FACTS, changes)
    [figure] = told(keyframe(1, facts=facts, **of(facts)))[ALLOCATABLE.name]

    assert figure.cpu_terms["margin_milli"] == 4_000 * (100 - reclaim_pct) // 100


def test_colocation_may_be_off_on_some_nodes_alone() -> None:
    off = policy_from(colocation={"enable": True, "nodeConfigs": [{**SPOT, "enable": False}]})
    worker = Worker("w")
    worker.policy(policy_record(off))
    changes = {"facts": ON_SPOT, **of(ON_SPOT), "policy_version": off.version}
    outs = worker.samples([record_of(keyframe(1, **changes))], START_MS)
    [figure] = [decode(out.value, NodeAllocatable) for out in outs if out.topic == ALLOCATABLE.name]

    assert figure.reason == "disabled"


def test_a_nodes_window_is_as_long_as_its_strategy_says() -> None:
    cluster, spot = (told(keyframe(1, facts=facts, **of(facts)))[METRIC.name] for facts in (FACTS, ON_SPOT))

    assert [metric.window_ms for metric in (*cluster, *spot)] == [10_000, 20_000]


def test_a_sample_whose_facts_are_unknown_leaves_the_window_as_it_is() -> None:
    """Which strategy holds is not known then; to begin anew would lose what was gathered."""
    first = keyframe(1, facts=ON_SPOT, **of(ON_SPOT))
    lost = sample(2, facts_revision="unheard-of", policy_version=POLICY.version)
    [*_, metric] = told(first, lost, sample(6, **of(ON_SPOT)))[METRIC.name]

    assert (metric.window_ms, metric.samples) == (20_000, 3)


@pytest.mark.parametrize("field", ["batchCPUThresholdPercent", "midUnallocatedPercent", "cpuReclaimThresholdPercent"])
def test_a_percentage_beyond_all_figures_sells_nothing_and_costs_no_answer(field: str) -> None:
    """Also where a cap hides it from the amount, the arithmetic does not fit in a record."""
    annotation = json.dumps({field: 2**63 - 1})
    facts = msgspec.structs.replace(FACTS, annotations={"node.koordinator.sh/colocation-strategy": annotation})
    said = told(keyframe(1, facts=facts, **of(facts)))
    [command], [figure] = said[COMMAND.name], said[ALLOCATABLE.name]

    assert command.answer == "set"
    assert figure.reason == "the node's strategy offers more than any machine has"


@pytest.mark.parametrize("ratio", ["1e17", "1e300", "1e305"])
def test_a_ratio_beyond_all_figures_sells_nothing_and_costs_no_answer(ratio: str) -> None:
    """Nobody validated it: it is a label."""
    facts = msgspec.structs.replace(FACTS, labels={"node.koordinator.sh/cpu-reclaim-ratio": ratio})
    said = told(keyframe(1, facts=facts, **of(facts)))
    [command], [figure] = said[COMMAND.name], said[ALLOCATABLE.name]

    assert command.answer == "set"
    assert (figure.batch_cpu_milli, figure.batch_mem_bytes) == (None, None)
    assert figure.reason == "the node's strategy offers more than any machine has"
