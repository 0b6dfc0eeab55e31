"""What a scheduler's part decided is in the log whenever it stops, and is looked for there by others."""

import asyncio
import json
from contextlib import aclosing
from datetime import UTC, datetime, timedelta
from typing import cast

import aiohttp

from slacktide.agents.clock import SystemClock
from slacktide.agents.cluster.scheduler.held_places import Placements
from slacktide.agents.cluster.scheduler.metrics import UNASKED
from slacktide.agents.cluster.scheduler.notices import LOOK_S, SETTLED_S, MissedPods
from slacktide.agents.cluster.scheduler.scheduler import SchedulerSettings, run
from slacktide.agents.cluster.scheduler.topic_reader import Sent
from slacktide.agents.cluster.scheduler.view import View
from slacktide.agents.kubernetes.api_server import ApiServer
from slacktide.schemas.codec import decode, encode
from slacktide.schemas.connection import Cluster
from slacktide.schemas.health import Health
from slacktide.schemas.metric import NodeMetric, Use
from slacktide.schemas.placement import PodPlacement, RankedNode
from slacktide.schemas.policy.message import KEY
from slacktide.schemas.score import NodeScore
from slacktide.schemas.topics import METRIC, PLACEMENT, POLICY, SCORE
from slacktide.streams.decisions.load.pod_placement import PlacementArgs
from slacktide.streams.kafka import Sender, read_topic
from slacktide.streams.records import Out
from testbed.brokers import EmbeddedBroker, free_port
from testbed.cluster.bridge_rig import until
from testbed.policies import policy_from
from testbed.scheduler_pods import parsed
from testbed.waiting import soon


async def test_what_was_answered_last_is_told_before_it_stops(embedded_broker: EmbeddedBroker) -> None:
    """Else the other replica would say of a pod that nobody was asked about it."""
    embedded_broker.apply_topics(3)
    health, stop, port = Health(), asyncio.Event(), free_port()
    settings = SchedulerSettings(
        bootstrap=embedded_broker.cluster, access=None, replica="one", host="127.0.0.1", port=port
    )
    running = asyncio.create_task(run(settings, stop, health))
    async with aiohttp.ClientSession() as session:

        async def ask(name: str) -> int:
            body = {"Pod": {"metadata": {"name": name, "namespace": "n", "uid": name}}, "NodeNames": ["a"]}
            async with session.post(f"http://127.0.0.1:{port}/filter", data=json.dumps(body)) as answer:
                return answer.status

        async def told() -> set[str]:
            async with aclosing(read_topic(embedded_broker.cluster, PLACEMENT.name)) as records:
                return {decode(one.value, PodPlacement).name async for one in records}

        await until(lambda: not health.not_ready)
        assert await ask("first") == 200
        await soon(told, "it is connected")
        assert [await ask(f"pod-{number}") for number in range(50)] == [200] * 50
        stop.set()
        await running

    assert await told() >= {f"pod-{number}" for number in range(50)}


async def test_the_policy_in_force_sets_the_thresholds(embedded_broker: EmbeddedBroker) -> None:
    """It is followed: the next pod is judged by it. The refusal that events show names its key."""
    embedded_broker.apply_topics(3)
    sender = Sender(embedded_broker.cluster, client_id="test", acks="1", timeout_s=5)
    await sender.connect([SCORE.name, METRIC.name, POLICY.name])
    used, whole = Use(cpu_milli=500, mem_bytes=0), Use(cpu_milli=2_000, mem_bytes=2**33)
    known = {"node": "a", "boot_id": "b", "seq": 1, "observed_ms": 1, "policy_version": "p", "facts_revision": "f",
             "pods_revision": "r"}  # fmt: skip
    window = {"window_ms": 300_000, "covered_ms": 300_000}
    score = NodeScore(**known, allocatable=whole, use=used, prod_use=used, batch_left=whole)
    metric = NodeMetric(**known, **window, samples=1, node_use=used, system_use=used)
    await sender.send([Out(topic=one, key=b"a", value=encode(body)) for one, body in
                       ((SCORE.name, score), (METRIC.name, metric))])  # fmt: skip
    health, stop, port = Health(), asyncio.Event(), free_port()
    settings = SchedulerSettings(
        bootstrap=embedded_broker.cluster, access=None, replica="one", host="127.0.0.1", port=port
    )
    running = asyncio.create_task(run(settings, stop, health))
    resources = {"requests": {"cpu": "2"}}
    pod = {"metadata": {"name": "p", "namespace": "n", "uid": "u"}, "spec": {"containers": [{"resources": resources}]}}

    async with aiohttp.ClientSession() as session:

        async def refusal() -> str:
            body = json.dumps({"Pod": pod, "NodeNames": ["a"]})
            async with session.post(f"http://127.0.0.1:{port}/filter", data=body) as answer:
                refused: dict[str, str] = (await answer.json())["FailedAndUnresolvableNodes"]
                return refused.get("a", "")

        await until(lambda: not health.not_ready)
        assert await refusal() == (
            "slacktide: usage_exceeds_threshold:cpu: over placement-config usageThresholds.cpu 65 percent: "
            "node uses 25 percent "
            "with the pods assigned to it, pod counts 1700m (estimatedScalingFactors.cpu 85 percent of 2000m)"
        )
        looser = policy_from(placement={"usageThresholds": {"cpu": 0}})
        await sender.send([Out(topic=POLICY.name, key=KEY.encode(), value=encode(looser))])
        await soon(refusal, "the policy is followed", enough="".__eq__)
        stop.set()
        await running
    await sender.close()


async def test_while_the_log_was_away_others_could_not_tell_whom_they_were_asked_about(
    embedded_broker: EmbeddedBroker,
) -> None:
    """When it is back they need a moment: nobody complains of their pods before."""
    embedded_broker.apply_topics(1)
    view, clock = View(PlacementArgs()), SystemClock()
    missed = MissedPods(Cluster(f"127.0.0.1:{free_port()}"), view, lambda _: False, clock, "two")
    nobody = cast("ApiServer", None)
    running = asyncio.create_task(missed.run(nobody))
    since = {"type": "PodScheduled", "status": "True", "lastTransitionTime": datetime.now(UTC).isoformat()}
    spec = {"schedulerName": "koord-scheduler", "nodeName": "a"}
    metadata = {"name": "p", "namespace": "n", "uid": "u"}
    view.changed(parsed({"metadata": metadata, "spec": spec, "status": {"conditions": [since]}}), at_s=0.0)

    await until(lambda: missed.trouble)
    missed._bootstrap = embedded_broker.cluster
    await until(lambda: not missed.trouble)
    others = Placements(embedded_broker.cluster, clock.wall_ms)
    others.publish(PodPlacement(pod_uid="u", namespace="n", name="p", decided_ms=clock.wall_ms(), asked=1, passed=1))
    await others.close()
    await asyncio.sleep(SETTLED_S + 3)

    assert (running.done(), missed.trouble, UNASKED._value.get()) == (False, "", 0)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_a_pod_that_waited_for_its_volumes_was_asked_about_long_before_it_was_bound(
    embedded_broker: EmbeddedBroker,
) -> None:
    """A kube-scheduler binds it when they are there, up to ten minutes after the extender's answer."""
    embedded_broker.apply_topics(1)
    view, clock = View(PlacementArgs()), SystemClock()
    others = Placements(embedded_broker.cluster, clock.wall_ms)
    others.publish(PodPlacement(pod_uid="u", namespace="n", name="p", decided_ms=clock.wall_ms(), asked=1, passed=1))
    await others.close()
    asked = datetime.now(UTC)
    bound = (asked + timedelta(minutes=5)).isoformat()
    since = {"type": "PodScheduled", "status": "True", "lastTransitionTime": bound}
    metadata = {"name": "p", "namespace": "n", "uid": "u", "creationTimestamp": asked.isoformat()}
    spec = {"schedulerName": "koord-scheduler", "nodeName": "a"}
    view.changed(parsed({"metadata": metadata, "spec": spec, "status": {"conditions": [since]}}), at_s=0.0)
    missed = MissedPods(embedded_broker.cluster, view, lambda _: False, clock, "two")
    running = asyncio.create_task(missed.run(cast("ApiServer", None)))
    await asyncio.sleep(SETTLED_S + 3 * LOOK_S)

    assert (running.done(), missed.trouble, UNASKED._value.get()) == (False, "", 0)


async def test_a_pod_that_all_nodes_refused_was_not_placed_by_the_extender(embedded_broker: EmbeddedBroker) -> None:
    """It waited; then the extender went away, and the scheduler put it somewhere."""
    embedded_broker.apply_topics(1)
    clock = SystemClock()
    others = Placements(embedded_broker.cluster, clock.wall_ms)
    pods = []
    for uid, passed in (("waited", 0), ("placed", 1)):
        now_ms = clock.wall_ms()
        others.publish(PodPlacement(pod_uid=uid, namespace="n", name=uid, decided_ms=now_ms, asked=1, passed=passed))
        since = {"type": "PodScheduled", "status": "True", "lastTransitionTime": datetime.now(UTC).isoformat()}
        metadata = {"name": uid, "namespace": "n", "uid": uid}
        pods.append(parsed({"metadata": metadata, "spec": {"nodeName": "a"}, "status": {"conditions": [since]}}))
    await others.close()
    missed = MissedPods(embedded_broker.cluster, View(PlacementArgs()), lambda _: False, clock, "two")

    assert await missed._placed(pods) == {"placed"}


async def test_an_extender_that_starts_in_the_middle_of_a_burst_counts_what_was_sent_and_not_bound_yet(
    embedded_broker: EmbeddedBroker,
) -> None:
    """By the placements of others. A pod that is bound elsewhere, or that nobody takes any more, does not count."""
    embedded_broker.apply_topics(1)
    view, clock = View(PlacementArgs()), SystemClock()
    others = Placements(embedded_broker.cluster, clock.wall_ms)
    asks = {"kubernetes.io/batch-cpu": "1000", "kubernetes.io/batch-memory": "1Gi"}

    def pod(name: str, node: str = "") -> dict[str, object]:
        spec = {"nodeName": node, "schedulerName": "koord-scheduler", "containers": [{"resources": {"requests": asks}}]}
        return {"metadata": {"name": name, "namespace": "n", "uid": f"uid-{name}"}, "spec": spec}

    def place(name: str, node: str) -> None:
        best = [RankedNode(node=node, level=10, score_permille=1, bound="scored")] if node else []
        now_ms, passed = clock.wall_ms(), len(best)
        others.publish(
            PodPlacement(
                pod_uid=f"uid-{name}", namespace="n", name=name, decided_ms=now_ms, asked=1, passed=passed, best=best
            )
        )

    def assumed() -> dict[str, str]:
        return {uid: one.node for uid, one in view._assumed.items()}

    for name in ("sent", "refused", "bound", "own"):
        place(name, "a")
    place("refused", "")
    await others.close()
    listed: list[bool] = []
    answered: list[str] = []
    sent = Sent(
        embedded_broker.cluster,
        view,
        lambda uid: uid == "uid-own",
        lambda: bool(listed),
        clock,
        lambda uid, _decided_ms: answered.append(uid),
    )
    running = asyncio.create_task(sent.run())
    for name, node in (("sent", ""), ("refused", ""), ("bound", "b"), ("own", "")):
        view.changed(parsed(pod(name, node)), at_s=0.0)
    listed.append(True)
    await until(lambda: sent.whole)
    at_first = assumed()
    view.changed(parsed(pod("later")), at_s=0.0)
    others = Placements(embedded_broker.cluster, clock.wall_ms)
    place("later", "b")
    await others.close()
    await until(lambda: "uid-later" in assumed())
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)

    assert at_first == {"uid-sent": "a"}
    assert view._nodes["a"].pods.keys() == {"uid-sent"}
    assert assumed() == {"uid-sent": "a", "uid-later": "b"}
    assert answered == [f"uid-{name}" for name in ("sent", "refused", "bound", "own", "refused", "later")]
