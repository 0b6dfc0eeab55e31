"""The extender, under its own account, asked by a real kube-scheduler; with a real API server and a broker."""

import asyncio
import json
import logging
import signal
import time
import urllib.error
import urllib.request
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from slacktide.agents.cluster.scheduler import metrics, notices
from slacktide.agents.cluster.scheduler.notices import ANNOTATION as WOKEN
from slacktide.streams.decisions.load.load_aware_estimator import ANNOTATION
from testbed.brokers import EmbeddedBroker, free_port
from testbed.cluster.api_server import Json
from testbed.cluster.programs import Program
from testbed.cluster.scheduler_rig import SchedulerRig, Scheduling
from testbed.cluster.streaming_rig import SAID_S
from testbed.cluster.virtual_zones import VirtualZones

log = logging.getLogger(__name__)
pytestmark = pytest.mark.cluster
WOKEN_S = 10
"""From news of a node to a binding, on a slow machine. A kube-scheduler by itself tries a pod again after 20 s or more
(--pod-max-in-unschedulable-pods-duration)."""


@pytest.fixture
async def rig(at: Scheduling, embedded_broker: EmbeddedBroker) -> AsyncIterator[SchedulerRig]:
    embedded_broker.apply_topics(3)
    async with SchedulerRig(at, embedded_broker.bootstrap).streaming() as rig:
        yield rig


async def _burst(rig: SchedulerRig, *, counting: bool) -> list[int]:
    """A hundred pods at once on ten nodes, each busier by a little than the one before: pods per node, most first."""
    nodes = [rig.node(use=1_000 + 160 * number) for number in range(10)]
    extender = await rig.extender(counting=counting)
    await rig.pods(100)
    placed = await rig.until_placed(100)
    await extender.stop()
    return sorted((placed[node] for node in nodes), reverse=True)


async def test_a_burst_between_two_reports_is_spread(rig: SchedulerRig) -> None:
    spread = await _burst(rig, counting=True)
    assert spread[0] - spread[-1] <= 4, spread


async def test_a_burst_piles_up_where_pods_that_were_just_placed_do_not_count(rig: SchedulerRig) -> None:
    """The same burst: what a node sells holds twenty of them, and the five idlest nodes get nearly all."""
    piled = await _burst(rig, counting=False)
    assert sum(piled[:5]) >= 95, piled


async def test_a_stale_node_takes_none_and_the_log_says_so(rig: SchedulerRig) -> None:
    stale, other = rig.node(use=0, stale_ms=9_000), rig.node(use=2_000)
    await rig.extender()
    await rig.pods(5)
    assert await rig.until_placed(5) == {other: 5}
    await asyncio.sleep(0.5)
    told = await rig.placements()
    assert len({one.pod_uid for one in told}) == 5
    for one in told:
        assert (one.asked, one.passed) == (2, 1)
        assert [(each.reason, each.nodes) for each in one.refused] == [("stale", [stale])]
        assert [(each.node, each.bound) for each in one.best] == [(other, "scored")]


async def test_where_all_are_stale_a_pod_waits_and_its_condition_says_why(rig: SchedulerRig) -> None:
    node = rig.node(stale_ms=9_000)
    await rig.extender()
    await rig.pods(1)

    await _until_it_waits(rig)
    counted = metrics.WOKEN.collect()[0].samples[0].value
    rig.say(node)  # its agent is back
    assert await rig.until_placed(1) == {node: 1}
    assert metrics.WOKEN.collect()[0].samples[0].value - counted == 1


async def test_no_victim_is_looked_for_where_less_is_sold_than_the_node_shows(rig: SchedulerRig) -> None:
    """The log is ahead of the node's status: by that there is room, with a pod of lower priority and without."""
    node = rig.node(batch=6_000)
    await rig.extender()
    await rig.pods(1, cpu="1000", priorityClassName="koord-free")
    await rig.until_placed(1)
    rig.say(node, batch=2_000)
    await asyncio.sleep(2 * SAID_S)
    await rig.pods(1, cpu="1500")

    def said() -> str:
        return json.dumps([pod["status"].get("conditions") for pod in rig.listed()])

    async with asyncio.timeout(60):
        while "batch_short:cpu" not in await asyncio.to_thread(said):  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.1)
    assert "victim" not in said()


async def _until_it_waits(rig: SchedulerRig) -> None:
    """The only pod, for a node that is not silent."""

    def said() -> str:
        [pod] = rig.listed()
        return json.dumps(pod["status"].get("conditions", []))

    async with asyncio.timeout(60):
        while "its agent is silent" not in await asyncio.to_thread(said):  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.1)
    assert not rig.placed()


async def _events(rig: SchedulerRig, count: int) -> list[tuple[str, str]]:
    """The extender's Events in the test's namespace, once there are so many: reason and pod."""
    path = f"/apis/events.k8s.io/v1/namespaces/{rig.namespace}/events"
    async with asyncio.timeout(60):
        while True:
            items = (await asyncio.to_thread(rig.cluster.get, path))["items"]
            told = [one for one in items if one.get("reportingController") == "slacktide.io/scheduler"]
            if len(told) >= count:
                return sorted((one["reason"], one["regarding"]["name"]) for one in told)
            await asyncio.sleep(0.1)


@pytest.mark.nightly
async def test_an_extender_that_is_away_holds_nobody_up_and_each_pod_says_that_it_was_not_asked(
    rig: SchedulerRig,
) -> None:
    rig.node(), rig.node(stale_ms=9_000)
    await rig.pods(5)
    assert (await rig.until_placed(5)).total() == 5
    unasked = {pod["metadata"]["name"] for pod in rig.listed()}
    assert await rig.placements() == []
    await rig.extender()
    counted = metrics.UNASKED.collect()[0].samples[0].value
    await rig.pods(3)
    await rig.until_placed(8)
    assert await _events(rig, 5) == sorted(("PlacedWithoutLoad", name) for name in unasked)
    assert metrics.UNASKED.collect()[0].samples[0].value - counted == 5
    await asyncio.sleep(notices.SETTLED_S + notices.LOOK_S)
    assert len(await _events(rig, 5)) == 5, "those that were asked for are not told of"


async def test_a_pod_that_waited_until_the_extender_was_away_says_that_it_was_placed_without(rig: SchedulerRig) -> None:
    """It was asked about, and every node refused it."""
    node = rig.node(stale_ms=9_000)
    extender = await rig.extender()
    await rig.pods(1)
    await _until_it_waits(rig)
    await extender.stop()
    # As the bridge does; then the kube-scheduler asks again about pods that wait.
    sold = {"kubernetes.io/batch-cpu": "5900"}
    await asyncio.to_thread(
        rig.cluster.patch, f"/api/v1/nodes/{node}/status", {"status": {"capacity": sold, "allocatable": sold}}
    )
    assert await rig.until_placed(1) == {node: 1}
    await rig.extender()
    [pod] = rig.listed()
    assert await _events(rig, 1) == [("PlacedWithoutLoad", pod["metadata"]["name"])]


async def test_pods_of_another_scheduler_are_told_by_name(rig: SchedulerRig) -> None:
    node = rig.node()
    await rig.extender()
    longest = "a" * 196 + "-" + "b" * 56  # an Event's name has to be cut, and must not end a part of it so
    asks = {"requests": {"kubernetes.io/batch-cpu": "1"}, "limits": {"kubernetes.io/batch-cpu": "1"}}
    spec = {"nodeName": node, "containers": [{"name": "main", "image": "none", "resources": asks}]}
    labels = {"koordinator.sh/qosClass": "BE"}
    unread = {"koordinator.sh/cpuBurst": "[" * 1_000}
    await asyncio.to_thread(rig.cluster.pod, rig.namespace, longest, spec=spec, labels=labels, annotations=unread)
    await rig.pods(3, schedulerName="default-scheduler", nodeName=node)
    names = sorted(pod["metadata"]["name"] for pod in rig.listed())
    assert await _events(rig, 5) == [("FieldIgnored", longest), *(("NotScheduledByLoad", name) for name in names)]


async def test_a_restart_in_the_middle_of_a_burst_forgets_no_pod(rig: SchedulerRig) -> None:
    """What was bound is listed again, and what was asked for meanwhile was placed without it."""
    nodes = [rig.node(use=1_000 + 160 * number) for number in range(10)]
    first = await rig.extender()
    await rig.pods(50)
    await rig.until_placed(40)
    await first.stop()
    await rig.extender()
    await rig.pods(50)
    placed = await rig.until_placed(100)
    assert max(placed.values()) - min(placed[node] for node in nodes) <= 6, placed


@pytest.mark.nightly
async def test_another_scheduler_leads_on_in_the_middle_of_a_burst_and_each_pod_is_bound_once(
    at: Scheduling, rig: SchedulerRig
) -> None:
    """The one that led is killed; the other's extender has followed all the time, and oversells no node."""
    nodes = [rig.node(use=1_000 + 160 * number, batch=3_000) for number in range(10)]
    await rig.extender()
    second, port = Program("kube-scheduler", at.cluster.folder / "second-scheduler.log"), free_port()
    await rig.extender(port=port)

    def edit(config: Json) -> None:
        for extender in config["extenders"]:
            extender["urlPrefix"] = f"http://127.0.0.1:{port}"
        config["leaderElection"] |= {"leaseDuration": "4s", "renewDeadline": "3s", "retryPeriod": "1s"}

    await asyncio.to_thread(at.start, second, edit)
    try:
        making = asyncio.create_task(rig.pods(80))
        await rig.until_placed(20)
        at.program.stop(signal.SIGKILL)
        await making
        placed = await rig.until_placed(80)
    finally:
        await asyncio.to_thread(second.stop)
        if not at.program.running:
            await asyncio.to_thread(at.start)
    assert set(placed) <= set(nodes)
    assert max(placed.values()) <= 10, "what a node sells holds ten"
    path = f"/apis/events.k8s.io/v1/namespaces/{rig.namespace}/events"
    told = [one for one in (await asyncio.to_thread(rig.cluster.get, path))["items"] if one["reason"] == "Scheduled"]
    names = [one["regarding"]["name"] for one in told]
    assert names
    assert len(names) == len(set(names))
    assert not any(one.get("series") for one in told), "none was told of twice"


async def test_a_node_that_vanishes_in_the_middle_of_a_burst_takes_no_more_and_holds_nobody_up(
    rig: SchedulerRig,
) -> None:
    gone, others = rig.node(use=0, batch=60_000), {rig.node(use=1_000), rig.node(use=1_500)}
    await rig.extender()
    await rig.pods(10)
    assert (await rig.until_placed(10))[gone] > 0
    await asyncio.to_thread(rig.cluster.delete, f"/api/v1/nodes/{gone}")
    rig.forget(gone)
    before = await asyncio.to_thread(rig.placed)
    await rig.pods(20)
    placed = await rig.until_placed(30)
    assert placed[gone] == before[gone]
    assert set(placed) - {gone} == others


async def test_a_daemonsets_pod_goes_where_no_other_may(rig: SchedulerRig) -> None:
    """To a node over its threshold, and to a silent one; a best-effort pod waits."""
    busy, silent = rig.node(use=7_900), rig.node(stale_ms=9_000)
    await rig.extender()
    await rig.pods(1)
    wanted = {await rig.daemon_pod(node): node for node in (busy, silent)}
    await rig.until_placed(2)
    placed = {pod["metadata"]["name"]: pod["spec"].get("nodeName") for pod in rig.listed()}
    assert {name: placed.pop(name) for name in wanted} == wanted
    assert list(placed.values()) == [None]


async def test_a_node_with_a_lower_threshold_of_its_own_takes_none_and_one_that_cannot_be_read_changes_nothing(
    rig: SchedulerRig,
) -> None:
    strict, odd = rig.node(use=1_000), rig.node(use=3_000)
    await rig.describe(strict, {ANNOTATION: '{"usageThresholds": {"cpu": 10}}'})
    await rig.describe(odd, {ANNOTATION: "ten percent"})
    await rig.extender()
    await rig.pods(5)
    assert await rig.until_placed(5) == {odd: 5}


async def test_nodes_of_unequal_size_fill_by_what_they_sell(rig: SchedulerRig) -> None:
    """And one that vanishes takes no more, and holds nobody up."""
    large, small, gone = rig.node(cpu=16, batch=9_000), rig.node(cpu=8, batch=3_000), rig.node(batch=9_000)
    await rig.extender()
    await asyncio.to_thread(rig.cluster.delete, f"/api/v1/nodes/{gone}")
    rig.forget(gone)
    await rig.pods(20)
    placed = await rig.until_placed(20)
    assert placed[gone] == 0
    assert placed[large] > 2 * placed[small] > 0, placed


async def test_the_command_answers_over_http_and_tells_how_it_is(rig: SchedulerRig, tmp_path: Path) -> None:
    node = rig.node()
    with rig.command(tmp_path) as (program, url):
        pod = {"metadata": {"name": "p", "namespace": "n", "uid": "u"}, "spec": {"containers": []}}
        asked = json.dumps({"Pod": pod, "NodeNames": [node]}).encode()

        def ask() -> dict[str, object]:
            with urllib.request.urlopen(f"{rig.url}/filter", data=asked, timeout=60) as answer:
                return dict(json.load(answer))

        # Its figures are heard within the second in which they are said.
        async with asyncio.timeout(60):
            while (await asyncio.to_thread(ask))["NodeNames"] != [node]:  # noqa: ASYNC110
                await asyncio.sleep(0.1)
        with await asyncio.to_thread(urllib.request.urlopen, f"{url}/metrics", timeout=60) as answer:
            told = answer.read().decode()
        assert 'slacktide_scheduler_answers_total{result="answered",verb="filter"}' in told
        with pytest.raises(urllib.error.HTTPError, match="400") as refused:
            await asyncio.to_thread(urllib.request.urlopen, f"{rig.url}/filter", b"{}", 60)
        refused.value.close()
        program.stop()
        assert not program.running


async def test_of_three_pods_at_once_the_third_is_placed_as_soon_as_its_zone_is_known(rig: SchedulerRig) -> None:
    """Two nodes of two 8-CPU zones, pods of 6 CPUs: two in one zone would be refused by the kubelet."""
    nodes = [rig.node(cpu=16, use=0) for _ in range(2)]
    zones = VirtualZones(rig, nodes, pod_cpus=6)
    running = asyncio.create_task(zones.run())
    try:
        await asyncio.sleep(2 * SAID_S)
        await rig.extender()
        asks = {"cpu": "6", "memory": "128Mi"}
        container = {"name": "main", "image": "none", "resources": {"requests": asks, "limits": asks}}
        await rig.pods(3, containers=[container], priorityClassName="koord-prod")
        await rig.until_placed(2)
        third = await _until_refused(rig, "numa_over_reserved")
        zones.admitting = True
        placed = await rig.until_placed(3)
        placed_s = time.monotonic()
        async with asyncio.timeout(60):
            while len(zones.shown_s) < 3:  # noqa: ASYNC110 - nobody tells
                await asyncio.sleep(0.1)
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    assert sorted(placed.values()) == [1, 2]
    assert zones.refused == [], "no pod met a zone that was full"
    assert _woken(rig) == [third], "Kubernetes has no news of the others' zones"
    waited_s = placed_s - min(zones.shown_s.values())
    said = f"the third pod was bound {waited_s:.1f} s after the first zone was published"
    log.info(said)
    assert waited_s < WOKEN_S, said


async def test_a_pod_is_placed_as_soon_as_one_nodes_load_has_fallen(rig: SchedulerRig) -> None:
    """All nodes were over their threshold, and Kubernetes has no news of them."""
    [calm, _busy] = [rig.node(use=7_900) for _ in range(2)]
    await rig.extender()
    await rig.pods(1)
    name = await _until_refused(rig, "usage_exceeds_threshold")
    fallen_s = time.monotonic()
    rig.say(calm, use=1_000)
    assert await rig.until_placed(1) == {calm: 1}
    waited_s = time.monotonic() - fallen_s
    said = f"the pod was bound {waited_s:.1f} s after the load had fallen"
    log.info(said)
    assert waited_s < WOKEN_S, said
    assert _woken(rig) == [name]


async def _until_refused(rig: SchedulerRig, reason: str) -> str:
    """The name of the one pod that waits for this reason, once its condition has it."""

    def refused() -> list[str]:
        waiting = [pod for pod in rig.listed() if not pod["spec"].get("nodeName")]
        return [one["metadata"]["name"] for one in waiting if reason in json.dumps(one["status"].get("conditions"))]

    async with asyncio.timeout(60):
        while not (names := await asyncio.to_thread(refused)):  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.1)
    [name] = names
    return name


def _woken(rig: SchedulerRig) -> list[str]:
    """Pods that the extender woke."""
    return [pod["metadata"]["name"] for pod in rig.listed() if WOKEN in (pod["metadata"].get("annotations") or {})]
