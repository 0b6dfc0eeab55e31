"""The stream processors of Slacktide, in one page.

============== =================================== ==========================================================
processor      reads                               writes
============== =================================== ==========================================================
decide         samples                             commands
aggregate      answered samples                    NodeMetric, allocatable and score of nodes; their segments
tick           positions, silent nodes             ticks, heartbeats, removals of silent nodes
read_policy    policies, and inventories           dead letters
read_forecast  forecasts of nodes                  dead letters
rebuild        segments and backfill               nothing: it fills windows of partitions that were taken over
fold_jobs      events of Jobs' pods                statuses of Jobs
learn          minutes of services on nodes        profiles and slopes of services
learn_latency  latencies of services               the same
govern         outcomes, metrics, credits          leases of eviction credit
decide_queue   queues, workloads, outcomes         decisions and states of the queue
============== =================================== ==========================================================

A message is a turn, a part of a whole fetch, and never a single sample, so Faust's cost is paid once per turn. The
driver in ``engine.transport`` makes turns, and commits what is answered. The processors have no rules of their own:
``worker`` decides, aggregates and rebuilds, ``jobs`` folds, ``learning`` learns, ``governor`` grants, ``queue`` admits.
None of these knows Kafka. A cluster has one governor and one queue, and each reads several topics in one order: they
elect a leader (``engine.leader_election``) instead of sharing out partitions, and a term outlives the rebalances of an
app. Jobs and services are folded in one app, because each membership of a group costs heartbeats and held fetches.

No channel joins the processors of an app. Faust suspends channels during a rebalance, and waits for agents meanwhile:
an agent that puts something into a channel would wait for itself.
"""

import asyncio
from collections.abc import Callable

import faust

from slacktide.schemas.access import FOLDS_GROUP
from slacktide.schemas.health import Health
from slacktide.schemas.topics import JOB_POD, SAMPLE, SERVICE_MINUTE, SERVICE_SLI
from slacktide.streams.engine import queueing
from slacktide.streams.engine.app import App
from slacktide.streams.engine.folding import BEATS, FETCH_WAIT_MS, LOOK_S, PUBLISH_S, Folding, FoldSettings
from slacktide.streams.engine.governing import govern
from slacktide.streams.engine.leader_election import run_until_stopped
from slacktide.streams.engine.session import Session, WorkerSettings, keep_connected
from slacktide.streams.engine.ticking import TICK_S
from slacktide.streams.engine.transport import Turn
from slacktide.streams.engine.writing import FIGURES_S
from slacktide.streams.jobs.folder import SOURCE
from slacktide.streams.proofs import Judge, Proofs
from slacktide.streams.records import Writer
from slacktide.streams.worker import Worker

__all__ = ["decide_queue", "decide_samples", "fold", "folds_app", "govern", "samples_app"]

decide_queue = queueing.run


def samples_app(session: Session, settings: WorkerSettings) -> App:
    """Declare what a worker does with the samples of its partitions."""
    app = App(settings.group, session, settings.bootstrap, settings.session_timeout_ms, settings.fetch_wait_ms)
    samples = app.topic(SAMPLE.name)

    @app.agent(samples)
    async def decide(turns: faust.StreamT[Turn]) -> None:
        async for turn in turns:
            await app.attempt(session.decide, turn, app.member)
            await app.attempt(session.figures.aggregate)

    @app.timer(FIGURES_S)
    async def aggregate() -> None:
        await app.attempt(session.figures.publish_due)

    @app.timer(TICK_S)
    async def tick() -> None:
        await app.attempt(session.ticking.tick)

    @app.task
    async def read_policy() -> None:
        await app.attempt(session.operator_records.run)

    @app.task
    async def read_forecast() -> None:
        await app.attempt(session.forecasting.run)

    @app.task
    async def rebuild() -> None:
        await app.attempt(session.rebuilding.run)

    return app


def folds_app(folding: Folding, settings: FoldSettings) -> App:
    """Declare what a worker does with its share of the Jobs and of the services."""
    app = App(FOLDS_GROUP, folding, settings.bootstrap, settings.session_timeout_ms, FETCH_WAIT_MS, BEATS)
    agents = {JOB_POD.name: "fold_jobs", SERVICE_MINUTE.name: "learn", SERVICE_SLI.name: "learn_latency"}

    async def take(turns: faust.StreamT[Turn]) -> None:
        async for turn in turns:
            await app.attempt(folding.fold, turn, app.member)

    for topic in folding.sources:
        app.agent(app.topic(topic), name=agents[topic])(take)

    @app.timer(PUBLISH_S)
    async def publish() -> None:
        await app.attempt(folding.publish, app.member)

    @app.timer(LOOK_S)
    async def look() -> None:
        await app.attempt(folding.look, app.member)

    @app.task
    async def read_policy() -> None:
        await app.attempt(folding.read_policy)

    @app.task
    async def wait_for_topics() -> None:
        await app.attempt(folding.wait_for_topics)

    return app


async def decide_samples(
    worker: Worker, settings: WorkerSettings, stop: asyncio.Event, health: Health, now_ms: Callable[[], int]
) -> None:
    """Answer samples until ``stop`` is set, then finish the turn, commit, and leave the group.

    Raises Exception for a programming error; Kafka outages are waited out.
    """

    async def work(session: Session) -> None:
        await samples_app(session, settings).run(stop)

    await keep_connected(work, worker, settings, stop, health, now_ms)


async def fold(
    settings: FoldSettings, stop: asyncio.Event, now_ms: Callable[[], int], judge: Judge | None = None
) -> None:
    """Fold events of Jobs and minutes of services until ``stop`` is set. ``judge``: as of a worker."""
    proofs = Proofs(Writer(SOURCE), judge)

    async def work() -> None:
        folding = Folding(settings, now_ms, proofs)
        try:
            await folding.connect()
            await folds_app(folding, settings).run(stop, folding.publish)
        finally:
            await folding.close()

    await run_until_stopped(
        work,
        stop,
        away="no statuses of Jobs, no slopes of services: %s; trying until it works",
        failed="the folding of Jobs and services has failed; the worker goes on, and this begins again",
    )
