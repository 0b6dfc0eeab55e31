"""Encodes NodeMetric, allocatable and score of many nodes at once, from templates and numbers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import chain, compress
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np

from slacktide.schemas.allocatable import OFFERED, NodeAllocatable, Prediction
from slacktide.schemas.codec import encode
from slacktide.schemas.message import Terms
from slacktide.schemas.metric import Aggregate, NodeMetric, PodMetric, Spread, Use
from slacktide.schemas.score import NOTHING, NodeScore, Statistic
from slacktide.streams.columns.lines import FIRST, escaped, mark, template, text
from slacktide.streams.columns.node_figures import AMOUNT_MAX, Sampled
from slacktide.streams.columns.offered import BATCH_TERMS, FREE_TERMS, MID_TERMS, OfferInputs, offered
from slacktide.streams.columns.rings import LENGTHS_S, Bools, Ints
from slacktide.streams.decisions.because import in_unit
from slacktide.streams.decisions.known_pods import PodName

_pack, _unpack = msgspec.msgpack.Encoder().encode, msgspec.msgpack.Decoder(list[list[int]]).decode


class Due(NamedTuple):
    """Nodes whose figures are published, in columns."""

    named: Sequence[Sampled]
    """The sample of each node."""
    offers: Sequence[OfferInputs]
    windows_ms: Sequence[int]
    inventory_revisions: Sequence[str]
    late: Sequence[int]
    covered_ms: Sequence[int]
    samples: Sequence[int]
    own: Ints
    """int64 [n, 2, 2]: node and system, CPU and memory."""
    pods: Ints
    """int64 [N, 2]"""
    counts: Ints
    aggregates: Ints
    """int64 [n, 3, 21]: per length the coverage, then average and percentiles of each figure."""
    suppressed_milli: Ints
    """CPU limit of best-effort pods; a large number: unlimited."""
    over_line: Bools


class Packed(NamedTuple):
    """One node's records in a sixth of their memory, as shared templates."""

    lines: tuple[bytes, ...]
    """Of the metric before its pods, of the pods, of the metric behind them, of the allocatable and of the score."""
    numbers: bytes
    """The packed numbers of each template."""

    def figures(self) -> Figures:
        """Build the records."""
        return _figures(tuple(zip(self.lines, _unpack(self.numbers), strict=True)))


class Figures(NamedTuple):
    """One node's encoded records, and their packed form."""

    metric: bytes
    allocatable: bytes
    score: bytes
    packed: Packed


def publish(due: Due, policy_version: str) -> list[Figures | None]:
    """Build the records of plain nodes; None: reclaimed resources are out of range, and the scalar rules refuse them.

    Raises MarksError if a name looks like a mark.
    """
    its = offered(due.offers, due.own, due.pods, due.counts)
    left = np.maximum(0, its.figures - its.asked)
    own, pods = due.own.reshape(-1, 4).tolist(), due.pods.ravel().tolist()
    aggregates = due.aggregates.reshape(len(own), -1).tolist()
    statistics = due.aggregates[:, :, :11].reshape(len(own), -1).tolist()
    allocatable = np.concatenate(
        [its.figures[:, :2], its.batch_terms.reshape(-1, 16), its.figures[:, 2:4], its.mid_terms.reshape(-1, 22)], 1
    ).tolist()
    free = np.concatenate([its.figures[:, 4:], its.free_terms.reshape(-1, 18)], 1).tolist()
    floored = ((its.asked > its.offered) << np.arange(len(OFFERED))).sum(1).tolist()
    suppressed = (due.suppressed_milli < its.asked[:, 0]).tolist()
    sound = (its.offered.max(1) <= AMOUNT_MAX).tolist()
    asked, lefts, prod_use = its.asked.tolist(), left.tolist(), its.prod_use.tolist()
    found: list[Figures | None] = []
    begin = 0
    for at, (named, offer) in enumerate(zip(due.named, due.offers, strict=True)):
        end = begin + 2 * len(offer.names)
        its_pods, begin = pods[begin:end], end
        if not sound[at]:
            found.append(None)
            continue
        lines = _Lines(offer, named, policy_version, due.windows_ms[at], due.inventory_revisions[at])
        front, late = (named.seq, named.observed_ms, due.covered_ms[at]), due.late[at]
        amounts = [part[tier : tier + 2] for tier in (0, 2, 4) for part in (asked[at], lefts[at])]
        shown = tuple(any(pair) for pair in amounts)
        its_amounts = chain.from_iterable(compress(amounts, shown))
        peaks = (offer.forecast.prod_reclaimable, offer.forecast.prod_peak)
        predicted = [value for use in peaks if use is not None for value in (use.cpu_milli, use.mem_bytes)]
        before, behind = lines.metric(late=bool(late))
        score = lines.score(shown, suppressed=suppressed[at], over_line=bool(due.over_line[at]))
        parts = (
            (before, (*front, due.samples[at], *own[at])),
            (offer.pods_line, its_pods),
            (behind, (*aggregates[at], *([late] if late else ()), *predicted)),
            (lines.allocatable(floored[at]), (*front, *allocatable[at], *(free[at] if offer.offers_free else ()))),
            (score, (*front[:2], *own[at], *prod_use[at], *statistics[at], *its_amounts)),
        )
        found.append(_figures(parts))
    return found


def _figures(parts: Sequence[tuple[bytes, Sequence[int]]]) -> Figures:
    lines, numbers = zip(*parts, strict=True)
    packed = Packed(lines, _pack(numbers))
    front, pods, back, allocatable, score = (line % tuple(its) for line, its in parts)
    return Figures(front + pods + back, allocatable, score, packed)


_Shared = tuple[bytes, Sequence[bytes]]
"""A template that nodes share, and its texts behind the names."""


class _Lines:
    def __init__(self, offer: OfferInputs, named: Sampled, policy_version: str, window_ms: int, inventory: str) -> None:
        self._offer, self._named, self._version = offer, named, policy_version
        self._window_ms, self._inventory = window_ms, inventory
        self._key = (window_ms, inventory, named.boot_id)

    def metric(self, *, late: bool) -> tuple[bytes, bytes]:
        """Return the templates before and behind the pods."""

        def shared() -> _Shared:
            pods = [_HERE] if self._offer.pods_line else []
            forecast = self._offer.forecast
            parts = _Forecast(*map(bool, (forecast.revision, forecast.prod_reclaimable, forecast.prod_peak)))
            return _metric(self._window_ms, parts, pods=bool(pods), late=late), [*pods, *self._names_forecast()]

        before, *behind = self._line(("metric", late), shared)
        return before, behind[0] if behind else b""

    def allocatable(self, floored: int) -> bytes:
        def shared() -> _Shared:
            prediction, free = self._offer.forecast.prediction, self._offer.offers_free
            more = [] if prediction is None else [*self._names_forecast(), escaped(encode(prediction))]
            return _allocatable(self._window_ms, floored, self._inventory, predicted=bool(more), free=free), more

        return self._line(("allocatable", floored), shared)[0]

    def _names_forecast(self) -> Sequence[bytes]:
        revision = self._offer.forecast.revision
        return [text(revision)] if revision else []

    def score(self, shown: tuple[bool, ...], *, suppressed: bool, over_line: bool) -> bytes:
        whole, inventory = self._offer.facts.allocatable, self._inventory
        use = Use(cpu_milli=whole.cpu_milli or 0, mem_bytes=whole.mem_bytes or 0)
        case = ("score", shown, suppressed, over_line)
        return self._line(
            case, lambda: (_score(use, shown, inventory, suppressed=suppressed, over_line=over_line), [])
        )[0]

    def _line(self, case: tuple[object, ...], shared: Callable[[], _Shared]) -> Sequence[bytes]:
        key, lines = (case, self._key), self._offer.lines
        line = lines.get(key)
        if line is None:
            named = self._named
            names = named.node, named.boot_id, self._version, named.facts_revision, named.pods_revision
            shape, more = shared()
            line = lines[key] = (shape % (*map(text, names), *more)).split(_HERE)
        return line


class _Forecast(NamedTuple):
    revision: bool
    reclaimable: bool
    peak: bool


_HERE: Final = b"\x7f"
"""Placeholder of the pods of a NodeMetric. No name contains it."""
_NAMES: Final = tuple(mark(number) for number in range(5))
_REVISION: Final = mark(6)
_REVISION_TEXT: Final = f'"{_REVISION}"'.encode()
_PREDICTION: Final = Prediction(state=mark(7), observed_ms=0)
_TEXTS: Final = tuple(f'"{one}"'.encode() for one in _NAMES)
_POD: Final = PodMetric(uid=mark(5), use=NOTHING)


def pod_line(name: PodName) -> bytes:
    """Return the template of one pod of a NodeMetric, which takes two figures."""
    marks = _Marks()
    pod = PodMetric(**name._asdict(), use=marks.use())
    return template(encode(pod), (), marks.given) % ()


@lru_cache(maxsize=64)
def _metric(window_ms: int, forecast: _Forecast, *, pods: bool, late: bool) -> bytes:
    marks = _Marks()
    front = _front(marks)
    metric = NodeMetric(
        **front,
        window_ms=window_ms,
        covered_ms=marks.next(),
        samples=marks.next(),
        node_use=marks.use(),
        system_use=marks.use(),
        pods=[_POD] if pods else [],
        aggregates=[
            Aggregate(
                window_ms=length_s * 1_000,
                covered_ms=marks.next(),
                node_cpu_milli=marks.spread(),
                node_mem_bytes=marks.spread(),
                system_cpu_milli=marks.spread(),
                system_mem_bytes=marks.spread(),
            )
            for length_s in LENGTHS_S
        ],
        late=marks.next() if late else 0,
        forecast_revision=_REVISION if forecast.revision else "",
        prod_reclaimable=marks.use() if forecast.reclaimable else None,
        prod_peak=marks.use() if forecast.peak else None,
    )
    texts = [encode(_POD)] * pods + [_REVISION_TEXT] * forecast.revision
    return template(encode(metric), (*_TEXTS, *texts), marks.given)


@lru_cache(maxsize=256)
def _allocatable(window_ms: int, floored: int, inventory: str, *, predicted: bool, free: bool) -> bytes:
    marks = _Marks()
    figures = NodeAllocatable(
        **_front(marks),
        window_ms=window_ms,
        covered_ms=marks.next(),
        batch_cpu_milli=marks.next(),
        batch_mem_bytes=marks.next(),
        cpu_terms=marks.terms(BATCH_TERMS, "milli"),
        mem_terms=marks.terms(BATCH_TERMS, "bytes"),
        mid_cpu_milli=marks.next(),
        mid_mem_bytes=marks.next(),
        mid_cpu_terms=marks.terms(MID_TERMS, "milli"),
        mid_mem_terms=marks.terms(MID_TERMS, "bytes"),
        floored=[field for bit, field in enumerate(OFFERED) if floored >> bit & 1],
        inventory_revision=inventory,
        forecast_revision=_REVISION if predicted else "",
        prediction=_PREDICTION if predicted else None,
        free_cpu_milli=marks.next() if free else None,
        free_mem_bytes=marks.next() if free else None,
        free_cpu_terms=marks.terms(FREE_TERMS, "milli") if free else {},
        free_mem_terms=marks.terms(FREE_TERMS, "bytes") if free else {},
    )
    texts = (_REVISION_TEXT, encode(_PREDICTION)) if predicted else ()
    return template(encode(figures), (*_TEXTS, *texts), marks.given)


@lru_cache(maxsize=256)
def _score(whole: Use, shown: tuple[bool, ...], inventory: str, *, suppressed: bool, over_line: bool) -> bytes:
    marks = _Marks()
    score = NodeScore(
        **_front(marks),
        allocatable=whole,
        use=marks.use(),
        system_use=marks.use(),
        prod_use=marks.use(),
        statistics=[
            Statistic(
                window_ms=length_s * 1_000,
                covered_ms=marks.next(),
                cpu_milli=marks.spread(),
                mem_bytes=marks.spread(),
            )
            for length_s in LENGTHS_S
        ],
        batch_asked=marks.use() if shown[0] else NOTHING,
        batch_left=marks.use() if shown[1] else NOTHING,
        mid_asked=marks.use() if shown[2] else NOTHING,
        mid_left=marks.use() if shown[3] else NOTHING,
        free_asked=marks.use() if shown[4] else NOTHING,
        free_left=marks.use() if shown[5] else NOTHING,
        pressure=["cpu_suppressed"] * suppressed + ["mem_over_line"] * over_line,
        inventory_revision=inventory,
    )
    return template(encode(score), _TEXTS, marks.given)


def _front(marks: _Marks) -> dict[str, Any]:
    node, boot_id, policy, facts, pods = _NAMES
    return {
        "node": node,
        "boot_id": boot_id,
        "seq": marks.next(),
        "observed_ms": marks.next(),
        "policy_version": policy,
        "facts_revision": facts,
        "pods_revision": pods,
    }


class _Marks:
    def __init__(self) -> None:
        self.given = 0

    def next(self) -> int:
        self.given += 1
        return FIRST + self.given - 1

    def use(self) -> Use:
        return Use(cpu_milli=self.next(), mem_bytes=self.next())

    def spread(self) -> Spread:
        return Spread(avg=self.next(), p50=self.next(), p90=self.next(), p95=self.next(), p99=self.next())

    def terms(self, names: Sequence[str], unit: str) -> Terms:
        return {name if name.endswith("_pct") else in_unit(unit, name)[0]: self.next() for name in names}
