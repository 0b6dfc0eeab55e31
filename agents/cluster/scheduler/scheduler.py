"""The scheduler extender: reads figures and pods, serves a kube-scheduler over HTTP, publishes placements."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import msgspec
from aiohttp import web

from slacktide.agents.clock import Clock, SystemClock, mono_s
from slacktide.agents.cluster.events import IgnoredFields
from slacktide.agents.cluster.request_bounds import served
from slacktide.agents.cluster.scheduler import metrics
from slacktide.agents.cluster.scheduler.answers import Answers
from slacktide.agents.cluster.scheduler.gang_group import Now
from slacktide.agents.cluster.scheduler.held_places import HeldPlaces, Placements
from slacktide.agents.cluster.scheduler.metrics import ANSWER, ANSWERS
from slacktide.agents.cluster.scheduler.notices import MissedPods, Waker, WithoutBenefit
from slacktide.agents.cluster.scheduler.pod import SchedulerPod, parsed
from slacktide.agents.cluster.scheduler.topic_reader import Sent, TopicReader
from slacktide.agents.cluster.scheduler.view import View
from slacktide.agents.cluster.watching import PodSource
from slacktide.agents.kubernetes.access import Access
from slacktide.agents.kubernetes.api_server import ApiServer
from slacktide.agents.kubernetes.resource import PODS, ApiError
from slacktide.schemas.connection import Cluster
from slacktide.schemas.errors import BadMessageError, TextError
from slacktide.schemas.health import Health
from slacktide.schemas.text import answer_of
from slacktide.streams.decisions.cores.placement import CoresRefusal
from slacktide.streams.decisions.cores.take import written
from slacktide.streams.decisions.load.pod_placement import PlacementArgs
from slacktide.streams.tasks import until_one_ends


class _Question(msgspec.Struct, frozen=True, kw_only=True):
    name: str = msgspec.field(name="PodName")
    namespace: str = msgspec.field(name="PodNamespace")
    uid: str = msgspec.field(name="PodUID")
    node: str = msgspec.field(name="Node")


class Binder:
    """Answers the verb bind. A pod whose CPUs are gone is not bound: the kube-scheduler tries it again.

    The API server merges the annotations of a Binding into the pod when it writes the node's name:
    pkg/registry/core/pod/storage/storage.go, setPodNodeAndMetadata. So no kubelet ever sees the pod without its CPUs,
    and no CPUs are named on a pod that is not bound.
    Source: kubernetes v1.34, staging/src/k8s.io/kube-scheduler/extender/v1/types.go, ExtenderBindingArgs.
    """

    def __init__(self, view: View, api: ApiServer, clock: Clock) -> None:
        self._view, self._api, self._clock = view, api, clock

    async def bind(self, body: bytes) -> bytes:
        """Bind a pod to its node and CPUs. Raises BadMessageError if the request is invalid."""
        try:
            asked: _Question = answer_of(body, _Question, where="")
        except TextError as exc:
            raise BadMessageError("ExtenderBindingArgs", str(exc)) from exc
        return msgspec.json.encode({"Error": await self._bind(asked)})

    async def _bind(self, asked: _Question) -> str:
        """Return why it cannot be bound; "": it is."""
        at_s, key = self._clock.wall_ms() / 1000, (asked.namespace, asked.name)
        found = self._view.cores(key, asked.uid, asked.node, now_s=mono_s(self._clock), at_s=at_s)
        if found is None:
            return f"slacktide: pod {asked.namespace}/{asked.name} with uid {asked.uid} is not known yet"
        if isinstance(found, CoresRefusal):
            return f"slacktide: {found.reason}: {found.text}"
        binding: dict[str, Any] = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {
                "namespace": asked.namespace,
                "name": asked.name,
                "uid": asked.uid,
                "annotations": found.annotations,
            },
            "target": {"apiVersion": "v1", "kind": "Node", "name": asked.node},
        }
        try:
            await self._api.create(
                PODS, binding, dict[str, Any], namespace=asked.namespace, name=asked.name, sub="binding"
            )
        except ApiError as exc:
            return f"slacktide: {exc}"
        where = {"pod": f"{asked.namespace}/{asked.name}", "node": asked.node, "cpus": written(found.cpus)}
        log.info("bound to CPUs", extra=where)
        return ""


FILTER, PRIORITIZE, BIND = "filter", "prioritize", "bind"
QUESTION_BYTES_MAX = 16 * 1024 * 1024
"""A pod of 1.5 MiB, and the names of many thousand nodes."""


_Answer = Callable[[bytes], bytes | Awaitable[bytes]]


def serving(
    answers: Answers, lacking: Callable[[], str], host: str, port: int, binder: Binder | None = None
) -> AbstractAsyncContextManager[int]:
    """Serve until left; yields the port. Port 0 means any free port. Without ``binder`` no pods are bound.

    ``lacking``: why no request can be handled yet; "": it can. A kube-scheduler may ignore an extender's failure.

    Raises:
        ServerError: the server cannot listen on the address.
    """
    verbs: dict[str, _Answer] = {FILTER: answers.filter, PRIORITIZE: answers.prioritize}
    if binder is not None:
        verbs[BIND] = binder.bind
    handlers = {f"/{verb}": partial(_handle, verb, answer, lacking) for verb, answer in verbs.items()}
    return served(handlers, host, port, question_bytes_max=QUESTION_BYTES_MAX)


async def _handle(verb: str, answer: _Answer, lacking: Callable[[], str], request: web.Request) -> web.Response:
    try:
        body = await request.read()
    except web.RequestPayloadError as exc:  # malformed compression
        response = web.Response(status=400, text=str(exc))
    else:
        with ANSWER.labels(verb).time():
            response = await _response(verb, answer, body, lacking())
    ANSWERS.labels(verb, "answered" if response.status == web.HTTPOk.status_code else "failed").inc()
    return response


async def _response(verb: str, answer: _Answer, body: bytes, lacking: str) -> web.Response:
    if lacking:
        return web.Response(status=503, text=lacking)
    try:
        found = answer(body)
        text = found if isinstance(found, bytes) else await found
        return web.Response(body=text, content_type="application/json")
    except BadMessageError as exc:
        log.warning("cannot handle a request", extra={"verb": verb, "why": str(exc)})
        return web.Response(status=400, text=str(exc))
    except Exception:
        log.exception("cannot handle a request", extra={"verb": verb})
        return web.Response(status=500, text="internal error of the extender; see its log")


log = logging.getLogger(__name__)

NAME = "slacktide-scheduler"
BEAT_S = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerSettings:
    """Settings of one replica."""

    bootstrap: Cluster
    access: Access | None
    """None: without an API server bindings are unknown; a placed pod counts on its node for a while."""
    replica: str
    host: str
    port: int
    args: PlacementArgs = field(default_factory=PlacementArgs)
    gangs: bool = False
    """Whether pods of a gang wait until all of it have a node."""
    reservations: bool = False
    """Whether pending owners get the room of Reservations."""
    counting: bool = True
    """Whether pods count as soon as they are placed; False for measurements."""


async def run(settings: SchedulerSettings, stop: asyncio.Event, health: Health) -> None:
    """Serve until ``stop`` is set. Raises ServerError if the server cannot listen on the address."""
    scheduler = _Scheduler(settings, health)
    if settings.access is None:
        await scheduler.run(None, stop)
        return
    async with ApiServer(settings.access, name=NAME) as api:
        await scheduler.run(api, stop)


class _Scheduler:
    def __init__(self, settings: SchedulerSettings, health: Health) -> None:
        clock = SystemClock()
        self._clock, self._settings, self._health = clock, settings, health
        self._view = View(settings.args, counting=settings.counting)
        self._placements = Placements(settings.bootstrap, clock.wall_ms)
        self._reader = TopicReader(
            settings.bootstrap, self._view, settings.args, self._placements.to_dead_letter, clock
        )
        self._ignored = IgnoredFields("scheduler", settings.replica, clock.wall_ms)
        self._held = HeldPlaces(
            settings.bootstrap, self._view, lambda: self._pods.listed, clock, settings.replica,
            gangs=settings.gangs, reservations=settings.reservations,
        )  # fmt: skip
        self._answers = Answers(self._view, self._placements.publish, clock, self._held.gangs, self._held.reservations)
        self._pods = pod_source(self._view, self._answers, clock, self._ignored)
        self._sent = Sent(
            settings.bootstrap,
            self._view,
            lambda uid: self._answers.answered(uid) or self._held.holds(uid),
            lambda: self._pods.listed,
            clock,
            self._answers.waiting.leave,
        )
        self._waker = Waker(self._answers.waiting, clock)
        self._without_benefit = WithoutBenefit(self._view, clock, settings.replica)
        self._missed = MissedPods(settings.bootstrap, self._view, self._answers.answered, clock, settings.replica)

    async def run(self, api: ApiServer | None, stop: asyncio.Event) -> None:
        """Run until ``stop`` is set, or a task fails."""
        settings = self._settings
        try:
            binder = None if api is None else Binder(self._view, api, self._clock)
            async with serving(self._answers, self._lacking, settings.host, settings.port, binder) as port:
                log.info("serving", extra={"host": settings.host, "port": port})
                works = [self._reader.run(), self._placements.run(), self._report(), stop.wait()]
                if api is not None:
                    works += [
                        self._pods.run(api),
                        self._sent.run(),
                        self._without_benefit.run(api),
                        self._missed.run(api),
                        self._waker.run(api),
                        self._ignored.run(api),
                    ]
                    if settings.gangs or settings.reservations:
                        works.append(self._held.run(api))
                await until_one_ends(*works)
        finally:
            await self._placements.close()
            await self._held.close()

    def _lacking(self) -> str:
        """Return why no pod can be judged yet; after the first complete read always ""."""
        if not self._reader.whole:
            return self._reader.trouble or "reading the topics"
        if self._settings.access is None:
            return ""
        if not self._pods.listed:
            return self._pods.trouble
        if not self._sent.whole:
            return self._sent.following.trouble or "placements are being read"
        return self._held.lacking

    def _troubles(self) -> dict[str, str]:
        """Return errors by part; "": none."""
        found = {"log": self._reader.trouble or self._placements.away}
        if self._settings.access is not None:
            if self._pods.listed:
                found["log"] = found["log"] or self._sent.following.trouble or self._held.log_trouble
            found["pods"] = self._pods.trouble
            found["events"] = self._without_benefit.trouble or self._missed.trouble or self._ignored.trouble
            found["wakes"] = self._waker.trouble
            found["places"] = self._held.trouble
        return found

    async def _report(self) -> None:
        while True:
            nodes, silent, assumed = self._view.counts(mono_s(self._clock))
            metrics.NODES.set(nodes)
            metrics.SILENT.set(silent)
            metrics.ASSUMED.set(assumed)
            metrics.WAITING.set(len(self._answers.waiting))
            metrics.GANGS.clear()
            for state, count in self._answers.gangs.count().items():
                metrics.GANGS.labels(state).set(count)
            metrics.WITHOUT_BENEFIT.set(len(self._view.without_benefit))
            troubles = self._troubles()
            for of, why in troubles.items():
                metrics.TROUBLE.labels(of).set(bool(why))
            self._health.not_ready = self._lacking()
            self._health.not_fresh = "; ".join(f"{of}: {why}" for of, why in troubles.items() if why)
            await asyncio.sleep(BEAT_S)


def pod_source(view: View, answers: Answers, clock: Clock, ignored: IgnoredFields) -> PodSource[SchedulerPod]:
    """Follow pods for this view, and for the gangs and reservations of these answers."""
    timed = _Timed(view, answers, clock)
    return PodSource(parsed, timed, "it is not counted on any node", ignored, timed.blind)


class _Timed:
    """Adds the time to each change."""

    def __init__(self, view: View, answers: Answers, clock: Clock) -> None:
        self._view, self._gangs, self._reservations, self._clock = view, answers.gangs, answers.reservations, clock

    def whole(self, pods: Iterable[SchedulerPod]) -> None:
        listed, now = list(pods), Now.by(self._clock)
        self._view.whole(listed, at_s=now.wall_ms / 1_000)
        self._gangs.whole(listed, now)
        self._reservations.whole(listed, now)

    def changed(self, pod: SchedulerPod) -> None:
        now = Now.by(self._clock)
        self._view.changed(pod, at_s=now.wall_ms / 1_000)
        self._gangs.changed(pod, now)
        self._reservations.changed(pod, now)

    def gone(self, key: tuple[str, str]) -> None:
        self._view.gone(key)
        self._gangs.gone(key)
        self._reservations.gone(key, Now.by(self._clock))

    def blind(self, blind: bool) -> None:  # noqa: FBT001
        self._view.blind(blind, now_s=mono_s(self._clock))
