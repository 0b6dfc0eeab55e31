"""``slacktide policy compare`` beside a worker with a shadow, on real brokers."""

import asyncio
import json
import signal
import sys

import pytest

from slacktide.streams.worker.one_by_one import Shadow
from testbed.policies import policy_from
from testbed.samples import SUPPRESS, keyframe
from testbed.stream_rig import Rig
from testbed.waiting import soon

pytestmark = pytest.mark.nightly  # on Apache Kafka

NODES = [f"node-{number}" for number in range(6)]
TIGHT = policy_from(
    colocation={"enable": True, "metricAggregateDurationSeconds": 10},
    threshold={"clusterStrategy": {"enable": True, "cpuSuppressPolicy": "cfsQuota", "cpuSuppressThresholdPercent": 45}},
)


async def begun(rig: Rig, *arguments: str) -> asyncio.subprocess.Process:
    """The command, running."""
    words = ["-m", "slacktide.deploy.cli.main", "policy", "compare", "--bootstrap", rig.bootstrap, *arguments]
    return await asyncio.create_subprocess_exec(
        sys.executable, *words, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )


async def compare(rig: Rig, *arguments: str) -> tuple[int, str, str]:
    """Run the command: exit code, output, errors."""
    process = await begun(rig, *arguments)
    out, err = await process.communicate()
    return process.returncode or 0, out.decode(), err.decode()


async def test_it_follows_a_shadow_live_and_looks_up_what_was_said(rig: Rig) -> None:
    async with rig.worker(shadow=Shadow("w", TIGHT)):
        following = asyncio.create_task(compare(rig, "--for", "5s", "--output", "json"))
        for seq in range(1, 25):
            await rig.send([keyframe(seq, node) for node in NODES])
            await asyncio.sleep(0.2)
        code, out, err = await following
        looked_up = await soon(
            lambda: compare(rig, "--since", "1h", "--node", "node-3"),
            "the shadow's last answer is there, too",
            enough=lambda found: "of 24 answers" in found[1],
        )

    assert code == 0, err
    said = json.loads(out)
    assert {(each["real"], each["shadow"]) for each in said["policies"]} == {(SUPPRESS.version, TIGHT.version)}
    assert {each["node"] for each in said["nodes"]} == set(NODES)
    assert said["all"]["samples"] > 0
    limit = said["all"]["limits"]["cpu_suppress"]
    assert (limit["mean_milli"], limit["greatest_milli"]) == (-700, -700)
    assert said["all"]["agreement"] == 0
    assert looked_up[0] == 0, looked_up[2]
    assert "0.0% of 24 answers are equal, for 1 node" in looked_up[1]


async def test_ctrl_c_ends_it_with_what_was_compared_until_then(rig: Rig) -> None:
    async with rig.worker(shadow=Shadow("w", TIGHT)):
        process = await begun(rig, "--for", "1h", "--output", "json")
        for seq in range(1, 25):
            await rig.send([keyframe(seq, node) for node in NODES])
            await asyncio.sleep(0.2)
        process.send_signal(signal.SIGINT)
        out, err = await process.communicate()

    assert process.returncode == 0, err
    assert json.loads(out)["all"]["samples"] > 0


async def test_a_node_that_no_shadow_answers_for_is_told_with_those_that_are_near(rig: Rig) -> None:
    async with rig.worker(shadow=Shadow("w", TIGHT)):
        await rig.send([keyframe(1, node) for node in NODES])
        code, out, err = await compare(rig, "--for", "4s", "--since", "1h", "--node", "node-33")

    assert (code, out) == (1, "")
    assert "no shadow has answered for node node-33; known: node-3, " in err


async def test_it_says_how_to_start_a_shadow_where_there_is_none(rig: Rig) -> None:
    async with rig.worker():
        await rig.send([keyframe(1, node) for node in NODES])
        await rig.answered([keyframe(1, node) for node in NODES])
        code, out, err = await compare(rig, "--since", "1h")

    assert (code, out) == (1, "")
    assert "no shadow has answered" in err
    assert f"slacktide stream --bootstrap {rig.bootstrap} --shadow OTHER.yaml" in err
