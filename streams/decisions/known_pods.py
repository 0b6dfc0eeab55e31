"""A pod list that many samples name: what follows from the list alone is found once, not for each sample.

A worker keeps one for each of its nodes, by the ten thousand. So names are in memory once, requests in arrays, and the
pods themselves may lie packed, for rules look at whole pods only where something is to be done about them.
"""

from __future__ import annotations

import zlib
from array import array
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from itertools import compress
from sys import intern
from typing import Any, NamedTuple, Self

import msgspec

from slacktide.schemas.errors import BadMessageError
from slacktide.schemas.inventory import ENDED_PHASES, LIVE_PHASES, Pod, Pods
from slacktide.schemas.metric import Use
from slacktide.schemas.qos import effective_priority_class, effective_qos, is_best_effort
from slacktide.schemas.score import use_of
from slacktide.streams.decisions.spared_pods import is_spared

LOW_CLASSES = frozenset({"koord-batch", "koord-free"})
REQUEST_FIELDS = (
    "batch_cpu_milli",
    "batch_mem_bytes",
    "mid_cpu_milli",
    "mid_mem_bytes",
    "free_cpu_milli",
    "free_mem_bytes",
)
"""Of ``Resources``: what is sold by class."""
PACK_LEVEL = 1
_decoder = msgspec.json.Decoder(Pods)


class PodName(NamedTuple):
    """Who a pod is, and its effective classes."""

    uid: str
    namespace: str
    name: str
    priority_class: str
    qos: str


class HighPods(msgspec.Struct, frozen=True, gc=False):
    """Live pods that come before batch pods, in order of their list: what each asked for."""

    uids: tuple[str, ...]
    cpu_milli: Sequence[int]
    mem_bytes: Sequence[int]
    lse: tuple[bool, ...]

    def rows(self) -> Iterator[tuple[str, int, int, bool]]:
        """Pod by pod."""
        return zip(self.uids, self.cpu_milli, self.mem_bytes, self.lse, strict=True)


class KnownPods(Sequence[Pod]):
    """Never changed once it is made."""

    __slots__ = (
        "_pods",
        "asked",
        "batch_asked",
        "best_effort",
        "high",
        "live",
        "mid_asked",
        "names",
        "prod_request",
        "there",
    )

    def __init__(self, pods: Sequence[Pod]) -> None:
        self._pods = pods
        self.names: Mapping[str, PodName] = {pod.uid: _named(pod) for pod in pods}
        """By uid; the last one of a uid counts."""
        of_live = [pod.phase in LIVE_PHASES for pod in pods]
        self.best_effort = self._uids([is_best_effort(pod) and not is_spared(pod) for pod in pods])
        """Uids of best-effort pods, but for those that are spared."""
        self.live = self._uids(of_live)
        """Of pods that hold what they asked for."""
        self.there = self._uids([pod.phase not in ENDED_PHASES for pod in pods])
        """Of pods that have not ended."""
        live = list(compress(pods, of_live))
        self.asked = {field: sum(getattr(pod.requests, field) or 0 for pod in live) for field in REQUEST_FIELDS}
        """What live pods asked for together of what is sold by class, by field of ``Resources``."""
        self.batch_asked = use_of(self.asked["batch_cpu_milli"], self.asked["batch_mem_bytes"])
        """What live pods asked for together of batch resources."""
        self.mid_asked = use_of(self.asked["mid_cpu_milli"], self.asked["mid_mem_bytes"])
        """The same of mid resources."""
        classes = [(pod, effective_priority_class(pod)) for pod in live]
        self.prod_request = _together([pod for pod, klass in classes if klass not in LOW_CLASSES | {"koord-mid"}])
        """What live production pods asked for together."""
        self.high = self._high([pod for pod, klass in classes if klass not in LOW_CLASSES])
        """Live pods of neither batch nor free class, in order of the list."""

    @classmethod
    def packed(cls, raw: bytes) -> Self:
        """Read a list, and keep it packed.

        Raises:
            BadMessageError: these are no pods.

        """
        found = cls(_read(raw))
        found._pods = _Packed(raw, len(found))
        return found

    def __len__(self) -> int:
        return len(self._pods)

    @property
    def uids(self) -> Sequence[str]:
        """In order of the list."""
        names = self.names
        return tuple(names) if len(names) == len(self) else [pod.uid for pod in self]

    def __iter__(self) -> Iterator[Pod]:
        return iter(self._pods)

    def __getitem__(self, place: Any) -> Any:
        return self._pods[place]

    def _uids(self, chosen: Sequence[bool]) -> AbstractSet[str]:
        """All of them are in memory already."""
        if all(chosen):
            return self.names.keys()
        return frozenset(self.names[pod.uid].uid for pod in compress(self._pods, chosen))

    def _high(self, pods: Sequence[Pod]) -> HighPods:
        return HighPods(
            tuple([self.names[pod.uid].uid for pod in pods]),
            _amounts([pod.requests.cpu_milli or 0 for pod in pods]),
            _amounts([pod.requests.mem_bytes or 0 for pod in pods]),
            tuple([effective_qos(pod.qos_label, pod.kube_qos) == "LSE" for pod in pods]),
        )


class _Packed(Sequence[Pod]):
    """A fifth of the bytes that it was read from; unpacking thirty pods takes 40 us."""

    __slots__ = ("_count", "_raw")

    def __init__(self, raw: bytes, count: int) -> None:
        self._raw = zlib.compress(raw, PACK_LEVEL)
        self._count = count

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Pod]:
        return iter(_read(zlib.decompress(self._raw)))

    def __getitem__(self, place: Any) -> Any:
        return _read(zlib.decompress(self._raw))[place]


def known(pods: Sequence[Pod]) -> KnownPods:
    """The list itself, if it is known already."""
    return pods if isinstance(pods, KnownPods) else KnownPods(pods)


def _read(raw: bytes) -> list[Pod]:
    try:
        return _decoder.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as exc:
        raise BadMessageError("pods", str(exc)) from exc


def _named(pod: Pod) -> PodName:
    qos = effective_qos(pod.qos_label, pod.kube_qos)
    return PodName(pod.uid, intern(pod.namespace), pod.name, effective_priority_class(pod), intern(qos))


def _together(pods: Sequence[Pod]) -> Use:
    return use_of(sum(pod.requests.cpu_milli or 0 for pod in pods), sum(pod.requests.mem_bytes or 0 for pod in pods))


def _amounts(amounts: list[int]) -> Sequence[int]:
    """Eight bytes each, as far as they fit."""
    try:
        return array("q", amounts)
    except OverflowError:
        return amounts
