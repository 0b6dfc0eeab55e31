"""What is written to wake a pod, and what follows when it cannot be written."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web
from kubernetes_asyncio.client import Configuration

from slacktide.agents.clock import SystemClock
from slacktide.agents.cluster.scheduler import metrics
from slacktide.agents.cluster.scheduler.notices import Waker
from slacktide.agents.cluster.scheduler.pod import SchedulerPod
from slacktide.agents.cluster.scheduler.view import View
from slacktide.agents.cluster.scheduler.waiting import Waiting
from slacktide.agents.kubernetes.access import Access
from slacktide.agents.kubernetes.api_server import ApiServer
from slacktide.streams.decisions.load.load_aware_estimator import Percents, Thresholds
from slacktide.streams.decisions.load.pod_placement import PlacementArgs, asking
from testbed.scheduler_pods import parsed

PATH = "/api/v1/namespaces/batch/pods/p/status"


def waits() -> SchedulerPod:
    return parsed({"metadata": {"name": "p", "namespace": "batch", "uid": "u"}, "spec": {"containers": []}})


@asynccontextmanager
async def server(statuses: list[int]) -> AsyncIterator[tuple[ApiServer, list[tuple[str, str, Any]]]]:
    """Answers with these statuses, then with 200; and what it was asked for."""
    asked: list[tuple[str, str, Any]] = []

    async def answer(request: web.Request) -> web.Response:
        asked.append((request.method, request.path, await request.json()))
        return web.json_response({}, status=statuses.pop(0) if statuses else 200)

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        host, port = runner.addresses[0][:2]
        async with ApiServer(Access(configuration=Configuration(host=f"http://{host}:{port}")), name="test") as api:
            yield api, asked
    finally:
        await runner.cleanup()


async def woken(api: ApiServer, until: Callable[[Waker], bool]) -> None:
    """One pod was refused by a node of which there is news since; until this is so."""
    pod, clock, view = waits(), SystemClock(), View(PlacementArgs())
    view.changed(pod, at_s=0.0)
    waiting = Waiting(view)
    waiting.refuse(pod, asking(pod.asked, view.args), ["a"], now_s=clock.mono_ns() / 1e9, decided_ms=1)
    view.limit("a", Thresholds(usage=Percents(cpu_pct=99, mem_pct=99)))
    waker = Waker(waiting, clock)
    running = asyncio.create_task(waker.run(api))
    try:
        async with asyncio.timeout(60):
            while not until(waker):  # noqa: ASYNC110 - nobody tells
                await asyncio.sleep(0.05)
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


def count() -> float:
    return float(metrics.WOKEN.collect()[0].samples[0].value)


async def test_an_annotation_of_that_very_pod_is_written_through_its_status() -> None:
    before = count()
    async with server([]) as (api, asked):
        await woken(api, lambda _: bool(asked))
    [(method, path, body)] = asked
    assert (method, path) == ("PATCH", PATH)
    [(name, time)] = body["metadata"].pop("annotations").items()
    assert name == "slacktide.io/woken"
    assert time.endswith("+00:00")
    assert body == {"metadata": {"uid": "u"}}
    assert count() - before <= 1


@pytest.mark.parametrize("status", [404, 409, 422])
async def test_a_pod_that_is_gone_is_no_trouble(status: int) -> None:
    before = count()
    async with server([status]) as (api, asked):
        await woken(api, lambda waker: bool(asked) and not waker.trouble)
    assert len(asked) == 1
    assert count() == before


async def test_after_an_error_it_is_written_again() -> None:
    troubles: list[str] = []

    def again(waker: Waker) -> bool:
        troubles.append(waker.trouble)
        return len(asked) == 2 and not waker.trouble

    async with server([500]) as (api, asked):
        await woken(api, again)
    assert any("500" in one for one in troubles)


async def test_nothing_is_left_of_an_error_once_another_replica_placed_the_pod() -> None:
    troubles: list[str] = []

    def placed(waker: Waker) -> bool:
        if waker.trouble:
            troubles.append(waker.trouble)
            waker._waiting.accept("u")
        return bool(troubles) and not waker.trouble

    async with server([500] * 100) as (api, _):
        await woken(api, placed)
    assert "500" in troubles[0]
