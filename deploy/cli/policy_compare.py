"""``slacktide policy compare``: compares a shadow policy with the one in force, live or for the past."""

import asyncio
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass

import click

from slacktide.agents.clock import SystemClock
from slacktide.deploy.cli.suggestions import NotFoundError, near
from slacktide.deploy.runtime import settings
from slacktide.deploy.runtime.text import Duration, Name, count, output_option, show, show_result, table
from slacktide.schemas.connection import Cluster, options
from slacktide.schemas.errors import LogError
from slacktide.schemas.topics import ALLOCATABLE, COMMAND, SAMPLE, SHADOW_ALLOCATABLE, SHADOW_COMMAND
from slacktide.streams.analysis.comparison import Comparison, Offered, Tally, difference, report
from slacktide.streams.records import Record

NODES_SHOWN = 20
PODS_SHOWN = 10
GIB = 2**30
REFRESH_S = 1.0
FETCH_WAIT_MS = 200
FOLLOWED_MS = 30_000


class NoShadowError(LogError):
    """Kafka has no answers of a shadow policy."""


@click.command(epilog="Example: slacktide policy compare --bootstrap kafka-1:9092 --for 5m")
@settings.bootstrap_option
@click.option("--for", "for_ms", type=Duration(), help="How long to follow new records. Default 30s without --since.")
@click.option("--since", "since_ms", type=Duration(), help="How far back to read: 90s, 5m, 2h or 1d.")
@click.option("--node", type=Name(), help="Only records of this node.")
@output_option("text", "json", short=False)
def compare(bootstrap: Cluster, for_ms: int | None, since_ms: int | None, node: str | None, output: str) -> None:
    """Compare the real answers with those of a shadow (slacktide stream --shadow OTHER.yaml).

    It prints the share of equal answers, and differences: limits by rule, evictions, settings and resources. Totals
    come first, then nodes, the worst first. On a terminal it refreshes each second until Ctrl-C. Otherwise it prints
    once, at the end or on Ctrl-C.

    A shadow decides from the limits that the real policy set. The figures show its next step, not the long-term
    result. For that, replay the day: slacktide replay --policy OTHER.yaml.

    With --output json: {"policies": [{"real", "shadow", "samples"}, ...], "without_shadow", "all": FIGURES, "nodes":
    [FIGURES, ...]}, FIGURES: {"node", "agreement", "samples", "same", "undecided", "limits": {rule: {"tighter",
    "looser", "mean_milli", "greatest_milli"}}, "evicts_only_real": {pod: samples}, "evicts_only_shadow", "settings":
    {rule: samples}, "batch_cpu_milli": [real, shadow], "batch_mem_bytes": [real, shadow]}; differences are the
    shadow's minus the real one's. Exit code 1: there is no shadow, or Kafka cannot be read.
    """
    follow_ms = for_ms if for_ms is not None else 0 if since_ms is not None else FOLLOWED_MS
    compared = Comparison()
    live = output == "text" and sys.stdout.isatty() and follow_ms > 0

    def draw(waited_s: float) -> None:
        if live:
            click.clear()
            show(shown(compared, waited_s) if compared.shadows else "waiting for the shadow's first answer ...")

    reading = _Reading(bootstrap, node, compared)
    with suppress(KeyboardInterrupt):
        asyncio.run(reading.run(since_ms or 0, follow_ms, draw))
    if not compared.shadows and reading.shadowed:
        raise NotFoundError(
            f"{bootstrap}: no shadow has answered for node {node}; {near(node or '', reading.shadowed)}"
        )
    if not compared.shadows:
        raise NoShadowError(
            f"{bootstrap}: no shadow has answered in {reading.covered_s:.0f} s: start the workers with "
            f"`slacktide stream {options(bootstrap)} --shadow OTHER.yaml`"
        )
    if not live:
        show_result(plain(compared), output, lambda: shown(compared, reading.covered_s))


class _Reading:
    """Reads Kafka into a comparison."""

    def __init__(self, bootstrap: Cluster, node: str | None, compared: Comparison) -> None:
        self._bootstrap = bootstrap
        self._key = None if node is None else node.encode()
        self._compared = compared
        self._from_ms = 0
        self.covered_s = 0.0
        """Time that was read back and followed."""
        self.shadowed: set[str] = set()
        """Nodes with decisions of a shadow, including unselected ones."""

    async def run(self, since_ms: int, follow_ms: int, draw: Callable[[float], None]) -> None:
        """Read back, then follow. Raises LogError if Kafka cannot be read."""
        from slacktide.streams.kafka import WHOLE, Tail, places_of, present  # noqa: PLC0415 - not for --help

        topics = [topic.name for topic in (SAMPLE, COMMAND, SHADOW_COMMAND)]
        offered = [topic.name for topic in (ALLOCATABLE, SHADOW_ALLOCATABLE)]
        partitions = await present(self._bootstrap, [*topics, *offered])
        self._from_ms = SystemClock().wall_ms() - since_ms
        self.covered_s = since_ms / 1_000
        async with Tail(self._bootstrap, FETCH_WAIT_MS) as tail:
            since = dict.fromkeys(topics, self._from_ms) | dict.fromkeys(offered, WHOLE)
            for record in (await tail.read(places_of(partitions, since))).records:
                self._take(record)
            now_s = asyncio.get_running_loop().time
            begin_s = drawn_s = now_s()
            while (turn_s := now_s()) < begin_s + follow_ms / 1_000:
                for record in await tail.more():
                    self._take(record)
                self.covered_s = since_ms / 1_000 + now_s() - begin_s
                if turn_s - drawn_s >= REFRESH_S:
                    drawn_s = turn_s
                    draw(turn_s - begin_s)

    def _take(self, record: Record) -> None:
        if record.topic == SHADOW_COMMAND.name and record.key is not None and record.timestamp_ms >= self._from_ms:
            self.shadowed.add(record.key.decode(errors="backslashreplace"))
        if self._key is None or record.key == self._key:
            report(self._compared, record, self._from_ms)


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """All differences of one node, or of all together."""

    node: str
    """ "" : all."""
    agreement: float | None
    samples: int
    same: int
    undecided: int
    limits: dict[str, dict[str, int | None]]
    evicts_only_real: dict[str, int]
    evicts_only_shadow: dict[str, int]
    settings: dict[str, int]
    batch_cpu_milli: tuple[int, int]
    """The amounts by the policy in force and by the shadow."""
    batch_mem_bytes: tuple[int, int]


def _found(node: str, tally: Tally, offered: list[Offered]) -> Found:
    """Return the figures of one or several nodes."""
    both = [one for one in offered if one.real is not None and one.shadow is not None]
    return Found(
        node=node,
        agreement=tally.agreement,
        samples=tally.samples,
        same=tally.same,
        undecided=tally.skipped,
        limits={
            rule: {
                "tighter": limit.tighter,
                "looser": limit.looser,
                "mean_milli": limit.mean_milli,
                "greatest_milli": limit.greatest_milli if limit.measured else None,
            }
            for rule, limit in sorted(tally.limits.items())
        },
        evicts_only_real=dict(tally.evicts_real.most_common()),
        evicts_only_shadow=dict(tally.evicts_shadow.most_common()),
        settings=dict(sorted(tally.settings.items())),
        batch_cpu_milli=difference((one.real.batch_cpu_milli, one.shadow.batch_cpu_milli) for one in both),  # type: ignore[union-attr]
        batch_mem_bytes=difference((one.real.batch_mem_bytes, one.shadow.batch_mem_bytes) for one in both),  # type: ignore[union-attr]
    )


def _all_found(compared: Comparison) -> tuple[Found, list[Found]]:
    """Return the total, and each node, worst first."""
    each = [_found(node, tally, [compared.offered.get(node, Offered())]) for node, tally in compared.worst_first()]
    return _found("", compared.all(), [compared.offered.get(node, Offered()) for node in compared.nodes]), each


def plain(compared: Comparison) -> dict[str, object]:
    """Return what JSON shows."""
    whole, each = _all_found(compared)
    versions = compared.versions.most_common()
    policies = [{"real": real, "shadow": shadow, "samples": samples} for (real, shadow), samples in versions]
    return {"policies": policies, "without_shadow": compared.alone, "all": whole, "nodes": each}


def shown(compared: Comparison, waited_s: float) -> str:
    """Format the comparison for a terminal."""
    whole, each = _all_found(compared)
    return "\n\n".join(["\n".join(_head(compared, whole, waited_s)), *_tables(whole, each)])


def _head(compared: Comparison, whole: Found, waited_s: float) -> Iterator[str]:
    for (real, shadow), samples in compared.versions.most_common():
        yield f"policy {real}, shadow policy {shadow}: {count(samples, 'sample')}"
    yield (
        f"{_percent(whole.agreement)} of {count(whole.samples, 'answer')} are equal, for "
        f"{count(len(compared.nodes), 'node')}, after {waited_s:.0f} s"
    )
    if whole.undecided:
        yield f"{count(whole.undecided, 'sample')} not compared, because one of the policies could not decide"
    if compared.alone:
        yield (
            f"{count(compared.alone, 'sample')} without an answer of the shadow: a worker runs without --shadow, or "
            "lags"
        )
    cpu, mem = whole.batch_cpu_milli, whole.batch_mem_bytes
    yield (
        f"batch-cpu {_cores(cpu[0])} cores, shadow {_cores(cpu[1])} ({(cpu[1] - cpu[0]) / 1000:+.2f}); "
        f"batch-memory {_gib(mem[0])} GiB, shadow {_gib(mem[1])} ({(mem[1] - mem[0]) / GIB:+.2f})"
    )


def _tables(whole: Found, each: list[Found]) -> Iterator[str]:
    if whole.limits:
        rows = [
            (rule, limit["tighter"], limit["looser"], _milli(limit["mean_milli"]), _milli(limit["greatest_milli"]))
            for rule, limit in whole.limits.items()
        ]
        yield table(["LIMIT BY", "TIGHTER", "LOOSER", "MEAN", "GREATEST"], rows)
    pods = [(pod, "real", times) for pod, times in whole.evicts_only_real.items()]
    pods += [(pod, "shadow", times) for pod, times in whole.evicts_only_shadow.items()]
    if pods:
        yield _cut(table(["POD", "EVICTED ONLY BY", "SAMPLES"], pods[:PODS_SHOWN]), len(pods) - PODS_SHOWN, "pod")
    if whole.settings:
        yield table(["OTHER SETTINGS BY", "SAMPLES"], list(whole.settings.items()))
    if each:
        head = ["NODE", "SAME", "SAMPLES", "TIGHTER", "LOOSER", "GREATEST", "EVICTS ONLY REAL/SHADOW"]
        nodes = [_row(one) for one in each[:NODES_SHOWN]]
        yield _cut(table([*head, "BATCH-CPU", "BATCH-MEMORY"], nodes), len(each) - NODES_SHOWN, "node")


def _row(one: Found) -> tuple[object, ...]:
    limits = list(one.limits.values())
    changes = [limit["greatest_milli"] for limit in limits if limit["greatest_milli"] is not None]
    cpu, mem = one.batch_cpu_milli, one.batch_mem_bytes
    return (
        one.node,
        _percent(one.agreement),
        one.samples,
        sum(limit["tighter"] or 0 for limit in limits),
        sum(limit["looser"] or 0 for limit in limits),
        _milli(max(changes, key=abs, default=None)),
        f"{len(one.evicts_only_real)} / {len(one.evicts_only_shadow)}",
        f"{_cores(cpu[0])} -> {_cores(cpu[1])}",
        f"{_gib(mem[0])} -> {_gib(mem[1])} GiB",
    )


def _cut(text: str, more: int, noun: str) -> str:
    return f"{text}\n... and {count(more, f'more {noun}')}" if more > 0 else text


def _percent(part: float | None) -> str:
    """Format a share. It is never 100% if an answer differs."""
    if part is None:
        return "-"
    return "100%" if part == 1 else f"{min(part * 100, 99.9):.1f}%"


def _milli(change: int | None) -> str:
    return "-" if change is None else f"{change:+}m"


def _cores(milli: int) -> str:
    return f"{milli / 1000:.2f}"


def _gib(amount_bytes: int) -> str:
    return f"{amount_bytes / GIB:.2f}"
