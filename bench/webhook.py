"""What the webhook costs: admissions per CPU second called directly, and what it adds to creating a pod."""

import asyncio
import base64
import json
import statistics
import time
from typing import Any

import aiohttp
import msgspec
import psutil
import yaml

from bench.rig import CannotRunError, Rig
from bench.rows import Row, judged
from slacktide.agents.cluster.webhook import review
from slacktide.agents.cluster.webhook.mutation import admission, priority_class_of, profile_of
from testbed.brokers import running
from testbed.cluster.api_server import ApiServer
from testbed.cluster.webhook import COLOCATED, PROFILES, Webhook, install, until_asked
from testbed.rungs import lacks_api

ADMISSIONS, BRIEF_ADMISSIONS = 5_000, 500
PER_CPU_S_MIN = 500
CREATES, BRIEF_CREATES = 600, 60
CREATES_PER_S = 30
ADDED_MS_MAX = 5.0
WARM = 50
LEFT_OUT = "kube-system"
"""About whose pods nobody is asked."""


def measure(rig: Rig) -> list[Row]:
    """A pod as a Job's controller makes it, with the quick start's profile in force."""
    if (lack := lacks_api()) is not None:
        raise CannotRunError(str(lack))
    with running(ApiServer) as api:
        install(api)
        api.apply(PROFILES)
        batch = api.namespace("batch", COLOCATED)
        question = _question(api, batch)
        webhook = Webhook(api, api.folder)
        webhook.start()
        try:
            until_asked(api, batch)
            admissions = BRIEF_ADMISSIONS if rig.brief else ADMISSIONS
            rig.say(f"webhook: {admissions} admissions called directly")
            rule = _rule(question, admissions)
            served = asyncio.run(_served(webhook, question, admissions))
            creates = BRIEF_CREATES if rig.brief else CREATES
            rig.say(f"webhook: {creates} pods created, {CREATES_PER_S} a second, every other one asked about")
            with_ms, without_ms = _created(api, batch, creates)
        finally:
            webhook.stop()
    added_ms = statistics.median(with_ms) - statistics.median(without_ms)
    return [
        judged(
            "webhook, called directly",
            f">= {PER_CPU_S_MIN} admissions per CPU second",
            f"{served:,.0f} over HTTPS; the rule alone, JSON to JSON, {rule:,.0f}",
            met=served >= PER_CPU_S_MIN,
            n=admissions,
            served=served,
            rule=rule,
        ),
        judged(
            f"webhook, {CREATES_PER_S} pods created a second",
            f"<= {ADDED_MS_MAX:g} ms added at the median",
            f"{added_ms:.1f} ms: {_said(with_ms)} with it, {_said(without_ms)} without",
            met=added_ms <= ADDED_MS_MAX,
            n=creates,
            added_ms=added_ms,
        ),
    ]


def _pod(number: int) -> dict[str, Any]:
    asked = {"cpu": "2", "memory": "4Gi"}
    command = ["python", "-c", "print('Job completed!')"]
    container = {"name": "worker", "image": "python:3.9", "command": command}
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "data-processing-job", "uid": "1", "controller": True}
    metadata = {"name": f"job-{number}", "labels": {"app-type": "batch"}, "ownerReferences": [owner]}
    containers = [container | {"resources": {"requests": asked, "limits": asked}}]
    return {"metadata": metadata, "spec": {"containers": containers, "restartPolicy": "Never"}}


def _question(api: ApiServer, namespace: str) -> bytes:
    """As the API server asks: with all that it has filled in."""
    pod = api.post(f"/api/v1/namespaces/{LEFT_OUT}/pods", _pod(0))
    pod.pop("status")
    user = {"username": "system:serviceaccount:kube-system:job-controller", "groups": ["system:authenticated"]}
    request = {"uid": "705ab4f5", "operation": "CREATE", "namespace": namespace, "object": pod, "userInfo": user}
    return json.dumps({"apiVersion": review.API_VERSION, "kind": review.KIND, "request": request}).encode()


def _rule(question: bytes, times: int) -> float:
    """Admissions per CPU second of the rule, from the question's bytes to the answer's."""
    profiles = [profile_of(one) for one in yaml.safe_load_all(PROFILES)]
    classes = {"koord-batch": priority_class_of({"value": 5000})}
    began_s = time.process_time()
    for _ in range(times):
        request = review.asked(question)
        done = admission(request, profiles, classes, COLOCATED)
        assert done.patch
        review.allowed(request, done.patch)
    return times / (time.process_time() - began_s)


async def _served(webhook: Webhook, question: bytes, times: int) -> float:
    """Admissions per CPU second of the webhook's process, asked one after the other over one connection."""
    process = psutil.Process(webhook.process.pid)
    headers = {"Content-Type": "application/json"}
    url = f"{webhook.url}/mutate-pods"
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=False), headers=headers) as session:

        async def ask() -> None:
            async with session.post(url, data=question) as answer:
                told = msgspec.json.decode(await answer.read())
            assert base64.b64decode(told["response"]["patch"])

        for _ in range(WARM):
            await ask()
        before_s = _cpu_s(process)
        for _ in range(times):
            await ask()
        return times / (_cpu_s(process) - before_s)


def _cpu_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def _created(api: ApiServer, namespace: str, times: int) -> tuple[list[float], list[float]]:
    """Milliseconds of creations that the webhook is asked about, and of those in turn with them that it is not."""
    took: dict[str, list[float]] = {namespace: [], LEFT_OUT: []}
    began_s = time.monotonic()
    for number in range(2 * WARM + times):
        where = (namespace, LEFT_OUT)[number % 2]
        time.sleep(max(0.0, began_s + number / CREATES_PER_S - time.monotonic()))
        before_s = time.perf_counter()
        api.post(f"/api/v1/namespaces/{where}/pods", _pod(number + 1))
        took[where].append((time.perf_counter() - before_s) * 1000)
    return took[namespace][WARM:], took[LEFT_OUT][WARM:]


def _said(took_ms: list[float]) -> str:
    return f"{statistics.median(took_ms):.1f} ms (p99 {statistics.quantiles(took_ms, n=100)[98]:.1f})"
