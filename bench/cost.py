"""Figures: what an agent with 100 pods costs, as shipped and with all that a policy can ask for: CPU time, memory."""

import json
import time
from contextlib import ExitStack

from bench import log, loop
from bench.node import NAME, node
from bench.plan import wobble
from bench.process import Slacktide
from bench.rig import Rig, wait
from bench.rows import Row, judged, told
from slacktide.deploy.demo.pods import DemoPod
from slacktide.schemas.policy import Policy, parse
from slacktide.schemas.topics import NODE_PARTITIONS
from slacktide.streams.kafka import partition_of

PODS = 100
NEIGHBOURS = 90
"""Other nodes in its partition, as of 1,000 nodes in 12 partitions."""
WARM_UP_S, KAFKA_S, EMBEDDED_S = 6.0, 30.0, 12.0
CORE_PCT, ALL_PCT, RSS_MB = 2.0, 2.5, 64.0
"""As shipped, and with everything on."""


EVERYTHING = {
    "colocation-config": {"enable": True},
    "resource-threshold-config": {
        "clusterStrategy": {
            "enable": True,
            "cpuSuppressPolicy": "cfsQuota",
            "cpuSuppressSignal": "both",
            "memoryEvictThresholdPercent": 95,
            "cpuEvictBESatisfactionLowerPercent": 20,
            "cpuEvictBESatisfactionUpperPercent": 40,
            "cpuEvictThresholdPercent": 99,
            "evictEnabledPriorityThreshold": 5999,
        }
    },
    "cpu-burst-config": {"clusterStrategy": {"policy": "auto", "cfsQuotaBurstPeriodSeconds": 60}},
    "resource-qos-config": {
        "clusterStrategy": {
            "beClass": {"cpuQOS": {"enable": True}, "memoryQOS": {"enable": True, "throttlingPercent": 80}},
            "lsClass": {"memoryQOS": {"enable": True, "minLimitPercent": 50, "lowLimitPercent": 80}},
        }
    },
}
"""Pressure, isolation, evictions, both bursts, QoS classes; thresholds that nothing here reaches."""


def measure(rig: Rig) -> list[Row]:
    """Through Apache Kafka, as shipped and with everything on; then for comparison through the embedded broker."""
    kafka = rig.kafka().bootstrap
    core_pct, rss_mb, said = _run(rig, kafka, "Apache Kafka", KAFKA_S)
    among_pct, _, among_said = _run(
        rig, kafka, f"Apache Kafka, {NEIGHBOURS} neighbours", KAFKA_S, neighbours=NEIGHBOURS
    )
    all_pct, all_mb, all_said = _run(rig, kafka, "Apache Kafka, everything on", KAFKA_S, _everything())
    with rig.embedded() as broker:
        other_pct, other_mb, other = _run(rig, broker.bootstrap, "embedded broker", EMBEDDED_S)
    return [
        judged(f"agent, {PODS} pods, 1 s: CPU time", f"<= {CORE_PCT:g}% of a core",
               f"{core_pct:.2f}% over {KAFKA_S:.0f} s; {said}", met=core_pct <= CORE_PCT, core_pct=core_pct),
        judged(f"agent, {PODS} pods, {NEIGHBOURS} neighbours in its partition: CPU time", f"<= {CORE_PCT:g}% of a core",
               f"{among_pct:.2f}% over {KAFKA_S:.0f} s; {among_said}", met=among_pct <= CORE_PCT, core_pct=among_pct),
        judged(f"agent, {PODS} pods: RSS", f"<= {RSS_MB:g} MB", f"{rss_mb:.1f} MB",
               met=rss_mb <= RSS_MB, rss_mb=rss_mb),
        judged(f"agent, {PODS} pods, everything on: CPU time", f"<= {ALL_PCT:g}% of a core",
               f"{all_pct:.2f}% over {KAFKA_S:.0f} s; {all_said}", met=all_pct <= ALL_PCT, core_pct=all_pct),
        judged(f"agent, {PODS} pods, everything on: RSS", f"<= {RSS_MB:g} MB", f"{all_mb:.1f} MB",
               met=all_mb <= RSS_MB, rss_mb=all_mb),
        told("the same through the embedded broker", f"{other_pct:.2f}% of a core, {other_mb:.1f} MB; {other}",
             core_pct=other_pct, rss_mb=other_mb),
    ]  # fmt: skip


def more_pods(count: int) -> list[DemoPod]:
    """Pods beside the demo's own, two of three latency-sensitive."""
    return [
        DemoPod(
            node=NAME,
            name=f"more-{number}",
            kind="besteffort" if number % 3 == 0 else "burstable",
            cpu_milli=10,
            limit_milli=20,
        )
        for number in range(count)
    ]


def _everything() -> Policy:
    name = {"name": "slo-controller-config", "namespace": "koordinator-system"}
    data = {key: json.dumps(value) for key, value in EVERYTHING.items()}
    return parse({"apiVersion": "v1", "kind": "ConfigMap", "metadata": name, "data": data}, "everything on").policy


def _run(
    rig: Rig,
    bootstrap: str,
    broker: str,
    measured_s: float,
    policy: Policy = log.POLICY_IN_FORCE,
    *,
    neighbours: int = 0,
) -> tuple[float, float, str]:
    rig.say(f"cost: agent with {PODS} pods on {broker}, {WARM_UP_S + measured_s:.0f} s")
    share = partition_of(NAME, NODE_PARTITIONS), NODE_PARTITIONS
    with ExitStack() as running:
        worker = running.enter_context(loop.worker(rig, bootstrap, policy=policy))
        if neighbours:
            running.enter_context(loop.fleet(rig, bootstrap, neighbours * NODE_PARTITIONS, share=share))
        return beside(rig, bootstrap, worker, measured_s)


def beside(rig: Rig, bootstrap: str, worker: Slacktide, measured_s: float) -> tuple[float, float, str]:
    """One whole agent, answered by a worker that runs: percent of a core, MB, and what became of its limit."""
    own = 3
    with (
        node(rig, more=more_pods(PODS - own), crunch=False) as one,
        loop.agent(rig, bootstrap, one) as agent,
    ):
        one.play(wobble(3, WARM_UP_S + measured_s))
        wait(WARM_UP_S, worker, agent)
        cpu_s, begin_s = agent.cpu_s(), time.monotonic()
        rss_mb = 0.0
        while time.monotonic() - begin_s < measured_s:
            wait(1.0, worker, agent)
            rss_mb = max(rss_mb, agent.rss_mb())
        core_pct = 100 * (agent.cpu_s() - cpu_s) / (time.monotonic() - begin_s)
        streamed = [one.result for one in log.outcomes(bootstrap, NAME) if one.origin == "stream"]
        said = f"{streamed.count('applied')} applied, {streamed.count('unchanged')} unchanged; {one.mode} node"
        return core_pct, rss_mb, said
