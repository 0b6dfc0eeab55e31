"""Passes objects of the API server and their changes to functions: of any kind, the pods, and the policy."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from contextlib import aclosing, suppress
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar, cast

import msgspec

from slacktide.agents.cluster.events import IgnoredFields
from slacktide.agents.ignored import IGNORED
from slacktide.agents.kubernetes.api_server import ApiServer, Changed, Gone, Over, Trouble, Update, Whole, follow
from slacktide.agents.kubernetes.objects import Pod
from slacktide.agents.kubernetes.resource import CONFIGMAPS, PODS
from slacktide.schemas.errors import ConfigError, TextError, failure
from slacktide.schemas.policy import DEFAULT, Policy, parse, refusal, refused_file
from slacktide.schemas.text import answer_of

log = logging.getLogger(__name__)

S = TypeVar("S")
O = TypeVar("O")  # noqa: E741 - an object of the API server
P = TypeVar("P")
P_contra = TypeVar("P_contra", contravariant=True)

ABSENT_S = 10.0
"""A ConfigMap that is recreated within this time counts as unchanged."""


async def inform(
    updates: AsyncGenerator[Update[O], None],
    whole: Callable[[list[O]], Awaitable[None] | None],
    changed: Callable[[O], object],
    gone: Callable[[str, str], object],
    trouble: Callable[[str], object],
) -> None:
    """Pass on what ``follow`` yields until cancelled.

    ``gone`` receives namespace and name. ``trouble`` receives why the API server cannot be read. It receives "" after
    each other update was passed on.
    """
    async with aclosing(updates):
        async for update in updates:
            match update:
                case Whole(items=items):
                    if (passing := whole(items)) is not None:
                        await passing
                case Changed(object=item):
                    changed(item)
                case Gone(name=name, namespace=namespace):
                    gone(namespace, name)
            trouble(update.why if isinstance(update, Trouble) else "")


def each_alone(kind: str) -> Callable[[Callable[[S, O], None]], Callable[[S, O], None]]:
    """Decorate a method that takes one object: whatever its users wrote into it, an error costs this object alone."""

    def decorated(take: Callable[[S, O], None]) -> Callable[[S, O], None]:
        def guarded(self: S, item: O) -> None:
            try:
                take(self, item)
            except Exception as exc:  # noqa: BLE001 - see above
                ignored(kind, item, exc)

        guarded.__doc__ = take.__doc__
        return guarded

    return decorated


def ignored(kind: str, item: object, exc: Exception) -> None:
    """Count and log an object that cannot be used."""
    IGNORED.labels(kind, "object").inc()
    log.warning("ignored an object", extra={"kind": kind, "object": _name(item), "why": failure("read", exc)})


class PolicyListener(Protocol):
    """Receives policies, on the event loop's thread."""

    def policy(self, policy: Policy) -> None:
        """Apply a policy."""

    def policy_trouble(self, why: str) -> None:
        """Note why the policy cannot be read or is invalid; "": all is well."""

    async def policy_refused(self, api: ApiServer, document: dict[str, Any], text: str) -> None:
        """Report an invalid ConfigMap to its owner, such as by an Event. It raises no ApiError."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigMapName:
    """Namespace and name of the operator's ConfigMap."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"ConfigMap {self.namespace}/{self.name}"


class PolicySource:
    """Follows one ConfigMap. If it is invalid, the last valid policy stays in force, even an earlier leader's."""

    def __init__(self, listener: PolicyListener, last: Policy | None, config_map: ConfigMapName) -> None:
        self._listener, self._last, self._config_map = listener, last, config_map
        self._absent: asyncio.TimerHandle | None = None
        self._why = ""
        """What is wrong with the ConfigMap."""
        self.refused = ""
        """Which errors it has, and what stays in force; "": it is valid or absent."""

    async def run(self, api: ApiServer) -> None:
        """Run until cancelled."""
        name = self._config_map
        following = follow(api, CONFIGMAPS, dict, namespace=name.namespace, fields=f"metadata.name={name.name}")
        try:
            async with aclosing(following) as events:
                async for one in events:
                    match one:
                        case Trouble(why=why):
                            self._listener.policy_trouble(why)
                        case Changed(object=document) | Whole(items=[document]):
                            self._there(document)
                            if self.refused:
                                await self._listener.policy_refused(api, document, self.refused)
                        case Whole() | Gone():
                            if self._absent is None:
                                self._absent = asyncio.get_running_loop().call_later(ABSENT_S, self._default)
                        case Over():
                            self._listener.policy_trouble(self._why)
        finally:
            self._back()

    def _there(self, document: dict[str, Any]) -> None:
        self._back()
        self.refused = ""
        try:
            parsed = parse({**document, "kind": "ConfigMap"}, str(self._config_map))  # list items have no kind
        except ConfigError as exc:
            refused, last = refused_file(exc.findings), self._last
            self.refused = refusal(refused, "" if last is None else last.version)
            log.error("%s: %s", self._config_map, self.refused)  # noqa: TRY400 - the message is complete
            self._is(self.refused, None if last is None else msgspec.structs.replace(last, refused=refused))
            return
        for note in parsed.notes:
            log.warning("%s", note)
        self._is("", parsed.policy)

    def _default(self) -> None:
        self.refused = ""
        self._is(f"{self._config_map} does not exist: all strategies are disabled", DEFAULT)

    def _back(self) -> None:
        if self._absent is not None:
            self._absent.cancel()
            self._absent = None

    def _is(self, why: str, policy: Policy | None) -> None:
        self._why, self._last = why, policy
        self._listener.policy_trouble(why)
        if policy is not None:
            self._listener.policy(policy)


YIELD_EVERY = 100


class PodListener(Protocol[P_contra]):
    """Keeps the pods of the cluster."""

    def whole(self, pods: Iterable[P_contra], /) -> None:
        """Replace all pods."""

    def changed(self, pod: P_contra, /) -> None:
        """Add or update a pod."""

    def gone(self, key: tuple[str, str], /) -> None:
        """Remove a pod, by namespace and name."""


RawPod = Pod | msgspec.Raw


class PodSource(Generic[P]):
    """Passes all pods and their changes to a listener.

    ``parse`` raises BadMessageError for an invalid pod. It passes on what it ignores, for ``fields``.
    ``ignored``: the effect of ignoring an invalid pod, for the log.
    ``blind`` receives with each event whether the API server cannot be read.
    """

    def __init__(
        self,
        parse: Callable[[Pod, Callable[[str], object]], P],
        listener: PodListener[P],
        ignored: str,
        fields: IgnoredFields,
        blind: Callable[[bool], None] = lambda _: None,
    ) -> None:
        self.trouble = "pods were not listed yet"
        """Why pods cannot be read; "": they can."""
        self.listed = False
        self._fields = fields
        self._parse, self._listener, self._ignored, self._blind = parse, listener, ignored, blind

    async def run(self, api: ApiServer) -> None:
        """Run until cancelled."""
        gone = self._listener.gone
        updates = follow(api, PODS, cast("type[RawPod]", msgspec.Raw), each=_decoded)
        await inform(updates, self._whole, self._changed, lambda *key: gone(key), self._troubled)

    async def _whole(self, items: list[RawPod]) -> None:
        pods = []
        for number, item in enumerate(items, 1):
            if (pod := self._read(item)) is not None:
                pods.append(pod)
            if number % YIELD_EVERY == 0:
                await asyncio.sleep(0)
        self._listener.whole(pods)
        self.listed = True

    def _changed(self, item: RawPod) -> None:
        if (pod := self._read(item)) is not None:
            self._listener.changed(pod)

    def _troubled(self, why: str) -> None:
        self._blind(bool(why))
        if why and not self.trouble:
            log.warning("cannot list pods at the API server", extra={"why": why})
        self.trouble = why

    def _read(self, given: RawPod) -> P | None:
        """Read a pod; None: it is invalid, which is logged. One invalid pod must not hide the others."""
        notes: list[str] = []
        item: object = given
        try:
            item = read = given if isinstance(given, Pod) else cast("Pod", answer_of(given, Pod, where="the pod"))
            pod = self._parse(read, notes.append)
        except Exception as exc:  # noqa: BLE001 - see above
            IGNORED.labels("pods", "object").inc()
            if isinstance(item, msgspec.Raw):
                with suppress(TextError):
                    item = answer_of(item, dict, where="the pod")
            log.warning(
                "ignored an invalid pod: %s", self._ignored, extra={"pod": _name(item), "why": failure("read", exc)}
            )
            return None
        self._fields.take("Pod", _metadata(item), notes)
        return pod


def _decoded(given: RawPod) -> RawPod:
    """One that cannot be decoded stays as it is, until it is read. The others take less memory."""
    with suppress(TextError):
        return given if isinstance(given, Pod) else cast("Pod", answer_of(given, Pod, where="the pod"))
    return given


def _metadata(item: object) -> dict[str, Any]:
    """Return an object's metadata; empty without it."""
    metadata = item.get("metadata") if isinstance(item, dict) else getattr(item, "metadata", None)
    return msgspec.to_builtins(metadata) if metadata else {}


def _name(item: object) -> str:
    named = _metadata(item)
    return f"{named.get('namespace', '')}/{named.get('name')}".removeprefix("/")
