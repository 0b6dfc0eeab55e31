"""What a comparison of a shadow's answers with the real ones counts, and what it says."""

import json
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from slacktide.deploy.cli.policy_compare import plain, shown
from slacktide.deploy.runtime.text import rendered
from slacktide.schemas.codec import decode
from slacktide.schemas.command import NodeCommand
from slacktide.schemas.policy import Policy
from slacktide.schemas.sample import Limits, NodeSample, NodeUse
from slacktide.schemas.topics import COMMAND, SHADOW_COMMAND
from slacktide.streams.analysis.comparison import Comparison, Taken, Tally, compare, report
from slacktide.streams.records import Out, Record
from slacktide.streams.worker import Worker
from slacktide.streams.worker.one_by_one import Shadow
from testbed.policies import policy_from
from testbed.samples import GIB, START_MS, SUPPRESS, keyframe, policy_record, record_of

TIGHT = policy_from(
    colocation={"enable": True, "metricAggregateDurationSeconds": 10, "cpuReclaimThresholdPercent": 40},
    threshold={
        "clusterStrategy": {
            "enable": True,
            "cpuSuppressPolicy": "cfsQuota",
            "cpuSuppressThresholdPercent": 45,
            "memoryEvictThresholdPercent": 30,
        }
    },
)


def records(policy: Policy, *samples: NodeSample) -> list[Record]:
    """All that the log holds of samples answered under SUPPRESS with this shadow beside."""
    worker = Worker("w")
    worker.policy(policy_record())
    worker.shadow = shadow = Shadow("w", policy)
    taken = [record_of(each) for each in samples]
    outs = worker.samples(taken, START_MS)
    outs += [out for seen in shadow.take() for out in shadow.decisions(seen, START_MS)]
    return taken + [_read(out) for out in outs]


def _read(out: Out) -> Record:
    return Record(topic=out.topic, partition=0, offset=0, timestamp_ms=START_MS, key=out.key, value=out.value)


def compared(*told: Record) -> Comparison:
    comparison = Comparison()
    for record in told:
        report(comparison, record)
    return comparison


seqs = st.lists(st.tuples(st.sampled_from(["node-1", "node-2"]), st.integers(1, 20)), min_size=1, max_size=20)
quotas = st.none() | st.integers(2_000, 400_000)


@given(seqs, quotas, st.integers(0, 5_000), st.randoms(use_true_random=False))
def test_the_same_policy_agrees_on_all_in_any_order_and_however_often_a_record_is_read(
    named: list[tuple[str, int]], quota_us: int | None, used_milli: int, rng: Random
) -> None:
    use = NodeUse(cpu_milli=used_milli, mem_bytes=4 * GIB)
    samples = [keyframe(seq, node, use=use, limits=Limits(be_cfs_quota_us=quota_us)) for node, seq in named]
    told = records(SUPPRESS, *samples)
    told += rng.choices(told, k=5)
    rng.shuffle(told)
    comparison = compared(*told)

    assert comparison.all().agreement == 1
    assert comparison.all().samples == len(set(named))
    assert comparison.alone == 0


def test_a_tighter_shadow_is_told_by_rule_by_pod_and_by_what_it_sells() -> None:
    """4 CPUs: real 65% - 1 CPU, one step up from 1.1 to 1.5; shadow 45% - 1 CPU = 0.8. Memory: 5 of 16 GiB is 31%."""
    use = NodeUse(cpu_milli=1_500, mem_bytes=5 * GIB)
    comparison = compared(*records(TIGHT, *[keyframe(seq, use=use) for seq in (1, 2)]))
    tally = comparison.all()

    assert (tally.samples, tally.same) == (2, 0)
    limit = tally.limits["cpu_suppress"]
    assert (limit.tighter, limit.looser, limit.mean_milli, limit.greatest_milli) == (2, 0, -700, -700)
    assert (dict(tally.evicts_real), dict(tally.evicts_shadow)) == ({}, {"jobs/batch": 2})
    said = json.loads(rendered(plain(comparison), "json", text=str))
    assert said["policies"] == [{"real": SUPPRESS.version, "shadow": TIGHT.version, "samples": 2}]
    real_milli, shadow_milli = said["all"]["batch_cpu_milli"]
    assert real_milli > shadow_milli > 0


def test_a_limit_that_only_one_names_is_measured_against_what_is_in_force() -> None:
    """The real policy keeps 1.6 CPUs, the shadow would cut them to 0.8."""
    comparison = compared(*records(TIGHT, keyframe(1, limits=Limits(be_cfs_quota_us=160_000))))

    assert comparison.all().limits["cpu_suppress"].greatest_milli == -800


def test_a_limit_in_force_that_cannot_be_is_other_and_not_measured() -> None:
    """What an agent says of itself went through no hands but its own."""
    said = records(TIGHT, keyframe(1, limits=Limits(be_cfs_quota_us=160_000)))
    real, shadow = (
        next(decode(one.value, NodeCommand) for one in said if one.topic == topic.name)
        for topic in (COMMAND, SHADOW_COMMAND)
    )
    tally = Tally()
    compare(tally, Limits(be_cfs_quota_us=1, be_cfs_period_us=0), real, shadow)

    assert (tally.samples, tally.same, tally.limits) == (1, 0, {})


def test_a_limit_lifted_is_looser_and_not_measured() -> None:
    off = policy_from(threshold={"clusterStrategy": {"enable": False}})
    limit = compared(*records(off, keyframe(1))).all().limits["cpu_suppress"]

    assert (limit.tighter, limit.looser, limit.mean_milli) == (0, 1, None)


def test_what_one_of_both_cannot_decide_is_not_compared_but_counted() -> None:
    tally = compared(*records(TIGHT, keyframe(1, policy_version="next"))).all()

    assert (tally.samples, tally.skipped, tally.agreement) == (0, 1, None)


def test_the_node_that_agrees_least_comes_first() -> None:
    quiet = records(SUPPRESS, keyframe(1, "node-1"))
    loud = records(TIGHT, keyframe(1, "node-2"))

    assert [name for name, _ in compared(*quiet, *loud).worst_first()] == ["node-2", "node-1"]


def test_the_text_names_policies_rules_pods_and_nodes() -> None:
    use = NodeUse(cpu_milli=1_500, mem_bytes=5 * GIB)
    text = shown(compared(*records(TIGHT, keyframe(1, use=use))), 30)

    assert f"policy {SUPPRESS.version}, shadow policy {TIGHT.version}: 1 sample" in text
    assert "0.0% of 1 answer are equal, for 1 node, after 30 s" in text
    assert any(line.split() == ["cpu_suppress", "1", "0", "-700m", "-700m"] for line in text.splitlines())
    assert any(line.split() == ["jobs/batch", "shadow", "1"] for line in text.splitlines())


def test_answers_that_the_shadow_left_out_are_told() -> None:
    """The newest may still come; those of 5 s ago will not."""
    told = [record for record in records(SUPPRESS, keyframe(1)) if ".shadow." not in record.topic]
    comparison = compared(*told)
    before = comparison.alone
    worker = Worker("w")
    worker.policy(policy_record())
    for out in worker.samples([record_of(keyframe(2))], START_MS + 6_000):
        report(comparison, _read(out))

    assert (before, comparison.alone) == (0, 1)


def test_of_a_sample_a_comparison_reads_only_what_it_asks() -> None:
    comparison = Comparison()
    comparison.sample(Taken(node="node-1", boot_id="b", seq=1))

    assert comparison.nodes == {}
