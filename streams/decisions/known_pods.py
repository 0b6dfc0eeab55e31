"""A pod list that many samples refer to. Values derived from the list are computed once, not per sample.

A worker keeps one list per node, for thousands of nodes. So names are in memory once, requests in arrays, and pods
as JSON, because rules seldom need whole pods. Apart from names and container ids, all pods of a workload have the same
JSON. It is in memory once for all nodes.

Some pods of the best-effort tier are not suppressed: critical pods, and mid pods with their own limit. kubeadm creates
kube-proxy without requests, so it is in the best-effort tier. A quota of that tier would starve it, and its liveness
probe would fail. Mid pods are in that tier because the kubelet ignores mid resources. Their own CPU limits throttle
them instead.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import cached_property
from itertools import compress
from sys import intern
from typing import Annotated, Any, Final, NamedTuple, Self
from weakref import WeakValueDictionary

import msgspec
from msgspec import Meta

from slacktide.schemas.bounds import AMOUNT_MAX, PODS_MAX
from slacktide.schemas.codec import MALFORMED
from slacktide.schemas.errors import BadMessageError
from slacktide.schemas.inventory import ENDED_PHASES, LIVE_PHASES, Pod, Pods
from slacktide.schemas.metric import Use
from slacktide.schemas.qos import effective_priority_class, effective_qos, is_best_effort, raw_qos
from slacktide.schemas.score import use_of
from slacktide.streams.decisions.cores.take import own_cpus
from slacktide.streams.decisions.cpu_list import cpu_list

CRITICAL_PRIORITY_MIN = 2_000_000_000
"""Priority of system-cluster-critical; system-node-critical is higher. Users may define only lower classes."""


def is_spared(pod: Pod) -> bool:
    """Return whether a pod is critical, in the best-effort tier, and not labeled BE."""
    critical = pod.priority is not None and pod.priority >= CRITICAL_PRIORITY_MIN
    return critical and pod.kube_qos == "BestEffort" and raw_qos(pod.qos_label) != "BE"


def is_unsuppressed(pod: Pod) -> bool:
    """Return whether the tier's quota must not apply to a pod: it is spared, or a mid pod with a CPU limit."""
    return is_spared(pod) or is_limited_mid(pod)


def is_limited_mid(pod: Pod) -> bool:
    """Return whether it is a best-effort mid pod, not labeled BE, whose containers all have a mid CPU limit."""
    mid = pod.kube_qos == "BestEffort" and raw_qos(pod.qos_label) != "BE" and bool(pod.requests.mid_cpu_milli)
    limited = (
        bool(pod.containers) and all(one.limits.mid_cpu_milli for one in pod.containers) and not pod.init_unlimited
    )
    return mid and limited and effective_priority_class(pod) == "koord-mid"


LOW_CLASSES = frozenset({"koord-batch", "koord-free"})
PROD: Final = "koord-prod"
BATCH: Final = "koord-batch"
POD: Final = "high", "lse", "prod", "batch", "request_milli", "request_bytes"
"""What reclaimed resources are computed from of a pod; the first four are 1 or 0.

``high``: has precedence over batch pods. The request counts if the pod is ``high`` and live.
"""
REQUEST_FIELDS = (
    "batch_cpu_milli",
    "batch_mem_bytes",
    "mid_cpu_milli",
    "mid_mem_bytes",
    "free_cpu_milli",
    "free_mem_bytes",
)
"""Fields of ``Resources`` for batch, mid and free resources."""
_COUNTED: Final = (*REQUEST_FIELDS, "prod_cpu_milli", "prod_mem_bytes")
"""Requests of live pods that are added up: of batch, mid and free resources, and those of prod pods."""
_LISTS = msgspec.json.Decoder(Pods)
_LISTED = msgspec.json.Decoder(Annotated[list[msgspec.Raw], Meta(max_length=PODS_MAX)])
_POD = msgspec.json.Decoder(Pod)
_HERE: Final = b"\0"
"""Placeholder for a container id. JSON never contains it."""
_ID_CHARS: Final = 64
_ID: Final = b'"id":"%b"'
_IDS: Final = re.compile(rb'"id":"([0-9a-f]{64})"')
_kinds: Final[WeakValueDictionary[bytes, PodKind]] = WeakValueDictionary()
"""Kinds of all pods in memory that were read from JSON, by ``PodKind.written``."""


class PodName(NamedTuple):
    """A pod's names and its effective classes."""

    uid: str
    namespace: str
    name: str
    priority_class: str
    qos: str


class HighPods(msgspec.Struct, frozen=True, gc=False):
    """Requests of live pods of neither batch nor free class, in list order."""

    uids: tuple[str, ...]
    cpu_milli: Sequence[int]
    mem_bytes: Sequence[int]
    lse: tuple[bool, ...]

    def rows(self) -> Iterator[tuple[str, int, int, bool]]:
        """Iterate over the pods."""
        return zip(self.uids, self.cpu_milli, self.mem_bytes, self.lse, strict=True)


class PodKind(msgspec.Struct, frozen=True, weakref=True):
    """Values derived from a pod without its names. The classes are the effective ones."""

    priority_class: str
    qos: str
    best_effort: bool
    """It is best-effort, and suppression applies."""
    live: bool
    """It is Running or Pending, and holds its requests."""
    there: bool
    """It has not ended."""
    lse: bool
    """Its class is LSE or it has exclusive CPUs: its CPU request is never reclaimed."""
    cpu_milli: int
    mem_bytes: int
    high: bool
    """It is live, and has precedence over batch pods."""
    counted: tuple[int, ...]
    """What a list adds up, see ``_COUNTED``."""
    row: bytes
    """The result of ``row_of``."""
    written: bytes = b""
    """The JSON without leading names, with ``_HERE`` for each container id; b"": not read from JSON."""
    exclusive_cpus: tuple[int, ...] = ()
    alone_cpus: tuple[int, ...] = ()
    """CPUs that a scheduler gave to an LSE pod."""


def row_of(priority_class: str, *, there: bool, live: bool, lse: bool, request: tuple[int, int]) -> bytes:
    """Return what reclaimed resources are computed from of a pod, as int64 [6], see ``POD``.

    ``request``: CPU in millicores and memory in bytes.
    """
    high = priority_class not in LOW_CLASSES
    counts = high and live
    cpu_milli, mem_bytes = (min(amount, AMOUNT_MAX) if counts else 0 for amount in request)
    classes = high, counts and lse, there and priority_class == PROD, priority_class == BATCH
    return array("q", (*classes, cpu_milli, mem_bytes)).tobytes()


class KnownPod(msgspec.Struct, frozen=True, gc=False):
    """Values derived from one pod."""

    name: PodName
    kind: PodKind
    ids: bytes = b""
    """Container ids, 32 bytes each."""

    @property
    def raw(self) -> bytes:
        """The JSON that the pod was read from."""
        written = self.kind.written
        if self.ids:
            ids = self.ids.hex().encode()
            for begin in range(0, len(ids), _ID_CHARS):
                written = written.replace(_HERE, _ID % ids[begin : begin + _ID_CHARS], 1)
        return written if written.startswith(b"{") else _names(self.name) + written


class KnownPods(Sequence[Pod]):
    """An immutable pod list with the values derived from it; those that are seldom read are derived when they are."""

    def __init__(self, pods: Sequence[Pod]) -> None:
        self._pods = pods
        known = self._known = pods.known if isinstance(pods, _Written) else [_known(pod) for pod in pods]
        self.uids = [pod.name.uid for pod in known]
        """In list order."""
        self.by_uid: Mapping[str, KnownPod] = dict(zip(self.uids, known, strict=True))
        """The last pod of a uid wins."""
        sums = list(map(sum, zip(*[pod.kind.counted for pod in known], strict=True))) or [0] * len(_COUNTED)
        self.asked = dict(zip(REQUEST_FIELDS, sums, strict=False))
        """Total batch, mid and free requests of live pods, by field of ``Resources``."""
        self.prod_request = use_of(*sums[len(REQUEST_FIELDS) :])
        self.exclusive = {pod.name.uid: pod for pod in known if pod.kind.exclusive_cpus and pod.kind.there}
        """Pods with exclusive CPUs that have not ended, by uid."""

    @cached_property
    def best_effort(self) -> AbstractSet[str]:
        """Return the uids of best-effort pods that suppression applies to."""
        return self._uids([pod.kind.best_effort for pod in self._known])

    @cached_property
    def alone_cpus(self) -> AbstractSet[int]:
        """Return the CPUs that a scheduler gave to LSE pods that are live."""
        return frozenset([cpu for pod in self._known if pod.kind.live for cpu in pod.kind.alone_cpus])

    @cached_property
    def live(self) -> AbstractSet[str]:
        """Return the uids of Running and Pending pods."""
        return self._uids([pod.kind.live for pod in self._known])

    @cached_property
    def there(self) -> AbstractSet[str]:
        """Return the uids of pods that have not ended."""
        return self._uids([pod.kind.there for pod in self._known])

    @cached_property
    def high(self) -> HighPods:
        """Return the requests of live pods of neither batch nor free class."""
        high = [pod for pod in self._known if pod.kind.high]
        return HighPods(
            tuple([pod.name.uid for pod in high]),
            _amounts([pod.kind.cpu_milli for pod in high]),
            _amounts([pod.kind.mem_bytes for pod in high]),
            tuple([pod.kind.lse for pod in high]),
        )

    @property
    def batch_asked(self) -> Use:
        """Return the total batch requests of live pods."""
        return use_of(self.asked["batch_cpu_milli"], self.asked["batch_mem_bytes"])

    @property
    def mid_asked(self) -> Use:
        """Return the total mid requests of live pods."""
        return use_of(self.asked["mid_cpu_milli"], self.asked["mid_mem_bytes"])

    @property
    def free_asked(self) -> Use:
        """Return the total free requests of live pods."""
        return use_of(self.asked["free_cpu_milli"], self.asked["free_mem_bytes"])

    @classmethod
    def packed(cls, raw: bytes, before: KnownPods | None = None) -> Self:
        """Read a list from JSON, and keep the JSON. Raises BadMessageError if the list is invalid.

        ``before``: the node's previous list: pods with the same JSON are not read again.
        """
        lately = before.by_hash() if before else {}
        try:
            pods = list(map(bytes, _LISTED.decode(raw)))
            hashes = array("q", map(hash, pods))
            known = [lately.get(its) or _known(_POD.decode(one), one) for its, one in zip(hashes, pods, strict=True)]
        except MALFORMED as exc:
            why = str(exc)
            try:
                _LISTS.decode(raw)  # names the path from the list's root
            except MALFORMED as of_list:
                why = str(of_list)
            raise BadMessageError("pods", why) from exc
        return cls(_Written(known, hashes))

    def each(self) -> Sequence[KnownPod]:
        """Return the values derived from each pod, in list order."""
        return self._known

    def written(self) -> Sequence[KnownPod]:
        """Return the pods if they were read from JSON; else none."""
        return self._known if isinstance(self._pods, _Written) else ()

    def by_hash(self) -> Mapping[int, KnownPod]:
        """Return the pods by a hash of their JSON; none if they were not read from JSON."""
        pods = self._pods
        return dict(zip(pods.hashes, pods.known, strict=True)) if isinstance(pods, _Written) else {}

    @property
    def raw(self) -> bytes:
        """The list as JSON. Each pod has the JSON that it was read from."""
        written = self.written()
        return b"[" + b",".join([pod.raw for pod in written]) + b"]" if written else msgspec.json.encode(list(self))

    def __len__(self) -> int:
        return len(self._pods)

    def __iter__(self) -> Iterator[Pod]:
        return iter(self._pods)

    def __getitem__(self, place: Any) -> Any:
        return self._pods[place]

    def _uids(self, chosen: Sequence[bool]) -> AbstractSet[str]:
        """Return the uids of the chosen pods. No string is copied."""
        if all(chosen):
            return self.by_uid.keys()
        return frozenset([self.by_uid[pod.name.uid].name.uid for pod in compress(self._known, chosen)])


class _Written(Sequence[Pod]):
    """Pods as JSON. Lists of one node share unchanged pods."""

    __slots__ = ("hashes", "known")

    def __init__(self, known: Sequence[KnownPod], hashes: Sequence[int]) -> None:
        self.known = known
        self.hashes = hashes

    def __len__(self) -> int:
        return len(self.known)

    def __iter__(self) -> Iterator[Pod]:
        return (_POD.decode(pod.raw) for pod in self.known)

    def __getitem__(self, place: Any) -> Any:
        if isinstance(place, slice):
            return [_POD.decode(pod.raw) for pod in self.known[place]]
        return _POD.decode(self.known[place].raw)


def known(pods: Sequence[Pod]) -> KnownPods:
    """Return the list as ``KnownPods``, or itself if it is one."""
    return pods if isinstance(pods, KnownPods) else KnownPods(pods)


def _known(pod: Pod, raw: bytes = b"") -> KnownPod:
    uid, namespace, name = pod.uid, intern(pod.namespace), pod.name
    written, ids = raw.removeprefix(_names(PodName(uid, namespace, name, "", ""))), b""
    if b'"id":"' in written and _HERE not in written:  # keep the container ids apart
        ids = bytes.fromhex(b"".join(_IDS.findall(written)).decode())
        written = _IDS.sub(_HERE, written)
    kind = (_kinds.get(written) if written else None) or _kind(pod, written)
    return KnownPod(PodName(uid, namespace, name, kind.priority_class, kind.qos), kind, ids)


def _names(pod: PodName) -> bytes:
    """Return the start of a pod's JSON, as agents write it."""
    return f'{{"uid":"{pod.uid}","namespace":"{pod.namespace}","name":"{pod.name}"'.encode()


def _kind(pod: Pod, written: bytes) -> PodKind:
    qos, priority_class = effective_qos(pod.qos_label, pod.kube_qos), effective_priority_class(pod)
    requests, live, there = pod.requests, pod.phase in LIVE_PHASES, pod.phase not in ENDED_PHASES
    request = cpu_milli, mem_bytes = requests.cpu_milli or 0, requests.mem_bytes or 0
    lse = qos == "LSE" or bool(pod.exclusive_cpus)
    high = live and priority_class not in LOW_CLASSES
    asked = [getattr(requests, field) or 0 for field in REQUEST_FIELDS]
    prod = request if high and priority_class != "koord-mid" else (0, 0)
    kind = PodKind(
        priority_class=priority_class,
        qos=intern(qos),
        best_effort=is_best_effort(pod) and not is_unsuppressed(pod),
        live=live,
        there=there,
        high=high,
        lse=lse,
        cpu_milli=cpu_milli,
        mem_bytes=mem_bytes,
        counted=(*asked, *prod) if live else (0,) * len(_COUNTED),
        row=row_of(priority_class, there=there, live=live, lse=lse, request=request),
        written=written,
        exclusive_cpus=tuple(cpu_list(pod.exclusive_cpus) or ()),
        alone_cpus=tuple(sorted(own_cpus(pod))) if raw_qos(pod.qos_label) == "LSE" else (),
    )
    if written:
        _kinds[written] = kind
    return kind


def _amounts(amounts: list[int]) -> Sequence[int]:
    """Pack the amounts into eight bytes each, unless one is too large."""
    try:
        return array("q", amounts)
    except OverflowError:
        return amounts
