"""Reads an account's records from Kafka or export files, and formats the account as text, CSV and metrics."""

import asyncio
import csv
import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import click
import msgspec
from prometheus_client import CollectorRegistry, Gauge, write_to_textfile

from slacktide.agents.clock import SystemClock
from slacktide.deploy.cli.replay import source
from slacktide.deploy.runtime.line_file import ExportFileError
from slacktide.deploy.runtime.text import Moment, count, instant, table
from slacktide.schemas.codec import MALFORMED
from slacktide.schemas.connection import Cluster
from slacktide.schemas.errors import SlacktideError
from slacktide.schemas.topics import COMMAND, HOUR_MS, OUTCOME, POLICY, SAMPLE
from slacktide.streams.analysis.replay.lines import Header, header_of
from slacktide.streams.analysis.replay.policies import Proven
from slacktide.streams.analysis.savings.account import (
    VERSION,
    Account,
    Ages,
    NodeReport,
    Range,
    Report,
    Saved,
    Span,
    Suffered,
    Within,
    difference,
)

NODES_MAX = 20
LATE_MS = 60_000
"""A topic that begins this long after the span's start does not cover it."""
KINDS = Saved.__struct_fields__
HOUR_S = 3_600
REGISTRY = CollectorRegistry()
Files = Sequence[tuple[Header, Path]]
"""Export files with their headers, earliest first."""
TOPICS = tuple(topic.name for topic in (POLICY, SAMPLE, COMMAND, OUTCOME))
"""Policy and commands show which samples have a valid node proof."""


def text(report: Report) -> str:
    """Format the account as text and tables."""
    return "\n".join(_lines(report))


def _lines(report: Report) -> Iterator[str]:
    of_all = report.all
    yield f"{instant(report.since_ms)} to {instant(report.until_ms)}, {count(len(report.nodes), 'node')}"
    yield from _reach(report)
    if not of_all.samples:
        yield "no samples in the span: nothing to report"
        return
    yield ""
    head = ["BEST-EFFORT", "USED", "ADMITTED", "GAINED", "LEAST..MOST", "LOST", "NET", "LEAST..MOST"]
    yield table(head, [_saved("core-hours", of_all.cpu), _saved("GiB-hours", of_all.mem)])
    yield (
        "ADMITTED: what native requests would have admitted. LOST: work of pods before they were evicted or restarted."
    )
    yield f"{count(of_all.evictions, 'eviction')}, {count(of_all.restarts, 'restart')}"
    left = of_all.cpu.room_left, of_all.mem.room_left
    if all(left):
        yield (
            f"free for native requests: {left[0]:.3f} core-hours, {left[1]:.3f} GiB-hours; pods that did not "
            "fit on their node may have fit there"
        )
    yield ""
    head = ["OTHER PODS WHILE BEST-EFFORT", "HOURS", "THROTTLED", "CPU STALL", "PSI CPU", "MAX", "PSI MEM", "MAX"]
    yield table(head, [_harm("ran", of_all.busy), _harm("did not run", of_all.idle)])
    yield f"reaction of limits: {_ages(of_all.limits)}"
    yield f"reaction of evictions: {_ages(of_all.evicting)}"
    if len(report.nodes) > 1:
        yield ""
        head = ["NODE", "HOURS", "CORE-H GAINED", "LOST", "NET", "GIB-H GAINED", "LOST", "NET", "EVICTIONS"]
        most = sorted(report.nodes, key=lambda node: (-node.cpu.gained, node.node))
        yield table(head, [_node(node) for node in most[:NODES_MAX]])
        if len(most) > NODES_MAX:
            yield f"... and {count(len(most) - NODES_MAX, 'node')} more; --output csv lists all nodes"
    for number, what, why in (
        (of_all.undecided, "sample", "pods, facts or allocatable were unknown"),
        (report.unproven, "sample", "the node did not sign them"),
        (report.refused, "record", "they are not valid"),
    ):
        if number:
            yield f"{count(number, what)} left out because {why}"


def _reach(report: Report) -> Iterator[str]:
    """Report how far back samples and outcomes reach."""
    hours = (report.until_ms - report.since_ms) / HOUR_MS * len(report.nodes)
    share = f", {100 * report.all.covered_h / hours:.1f}% of the span" if hours else ""
    yield f"samples cover {report.all.covered_h:.3f} node-hours{share}"
    for what, topic in (("samples", SAMPLE), ("outcomes", OUTCOME)):
        first_ms = min((one.first_ms for one in report.read if one.topic == topic.name), default=None)
        kept = f"by default Kafka keeps them for {(topic.retention_ms or 0) // HOUR_MS} h"
        if first_ms is None:
            yield f"no {what} in the span; {kept}"
        elif first_ms > report.since_ms + LATE_MS:
            yield f"the first {what} are from {instant(first_ms)}, after the start of the span; {kept}"


def _saved(unit: str, saved: Saved) -> list[object]:
    ranges = f"{saved.gained_least:.3f}..{saved.gained_most:.3f}", f"{saved.net_least:.3f}..{saved.net_most:.3f}"
    used, admitted, gained, lost, net = (
        f"{figure:.3f}" for figure in (saved.used, saved.admitted, saved.gained, saved.lost, saved.net)
    )
    return [unit, used, admitted, gained, ranges[0], lost, net, ranges[1]]


def _harm(what: str, harm: Suffered) -> list[object]:
    cpu, mem = harm.cpu_some, harm.mem_some
    figures = harm.ls_throttled_pct, harm.ls_stall_pct, cpu.mean_pct, cpu.max_pct, mem.mean_pct, mem.max_pct
    return [what, f"{harm.hours:.3f}", *("-" if figure is None else f"{figure:.2f}%" for figure in figures)]


def _ages(ages: Ages) -> str:
    if not ages.acts:
        return "none"
    percentiles = f"p50 {ages.p50_ms} ms, p95 {ages.p95_ms} ms, p99 {ages.p99_ms} ms, max {ages.max_ms} ms"
    return f"{count(ages.acts, 'act')}, {percentiles}"


def _node(node: NodeReport) -> list[object]:
    parts = [f"{figure:.3f}" for one in (node.cpu, node.mem) for figure in (one.gained, one.lost, one.net)]
    return [node.node, f"{node.covered_h:.3f}", *parts, node.evictions]


def csv_text(report: Report) -> str:
    """Format a CSV row for each node, then the total. Columns are the JSON field paths."""

    def flat(fields: Mapping[str, object], above: str = "") -> Iterator[tuple[str, object]]:
        for name, value in fields.items():
            if isinstance(value, Mapping):
                yield from flat(value, f"{above}{name}.")
            else:
                yield f"{above}{name}", value

    rows = [dict(flat(msgspec.to_builtins(node))) for node in [*report.nodes, report.all]]
    out = io.StringIO()
    writer = csv.DictWriter(out, fieldnames=list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()


def _gauge(name: str, text: str, *labels: str) -> Gauge:
    return Gauge(f"slacktide_savings_{name}", text, labels, registry=REGISTRY)


UNTIL = _gauge("until_timestamp_seconds", "End of the span of the other figures.")
SPAN = _gauge("span_seconds", "Length of the span.")
COVERED = _gauge("covered_seconds", "Time in the span that samples cover.", "node")
CPU = _gauge("core_seconds", "CPU of best-effort pods in the span, by kind of figure.", "node", "kind")
MEMORY = _gauge("byte_seconds", "Memory of best-effort pods in the span, by kind of figure.", "node", "kind")
EVICTIONS = _gauge("evictions", "Best-effort pods evicted in the span.", "node")
RESTARTS = _gauge("restarts", "Best-effort containers restarted in the span.", "node")


def write_metrics(report: Report, file: Path) -> None:
    """Write all nodes' figures atomically. Raises ExportFileError if the file cannot be written."""
    UNTIL.set(report.until_ms / 1_000)
    SPAN.set((report.until_ms - report.since_ms) / 1_000)
    for metric in (COVERED, CPU, MEMORY, EVICTIONS, RESTARTS):
        metric.clear()
    for node in report.nodes:
        COVERED.labels(node.node).set(node.covered_h * HOUR_S)
        EVICTIONS.labels(node.node).set(node.evictions)
        RESTARTS.labels(node.node).set(node.restarts)
        for kind in KINDS:
            CPU.labels(node.node, kind).set(getattr(node.cpu, kind) * HOUR_S)
            MEMORY.labels(node.node, kind).set(getattr(node.mem, kind) * (HOUR_S << 30))
    try:
        write_to_textfile(str(file), REGISTRY)
    except OSError as exc:
        raise ExportFileError(f"{file}: {exc.strerror or exc}") from exc


class OffsetsError(SlacktideError):
    """The records of an earlier result are gone."""


class Earlier(msgspec.Struct, frozen=True, kw_only=True):
    """The parts of an earlier JSON result that select its records."""

    version: int
    since_ms: int
    until_ms: int
    only: Sequence[str]
    read: Sequence[Range]


def made(
    files: Iterable[Path], bootstrap: Cluster, since: Moment, until: Moment | None, nodes: tuple[str, ...]
) -> Report:
    """Compute the account of a span; relative times refer to the end of the last file, or without files to now.

    Raises:
        click.UsageError: the span's end precedes its start.
        ExportFileError, TraceError: a file is unreadable or invalid.
        LogError: Kafka cannot be read.
    """
    found = _headers(files)
    end_ms = max((header.until_ms for header, _ in found), default=SystemClock().wall_ms())
    until_ms = end_ms if until is None else until.at(end_ms)
    since_ms = since.at(until_ms)
    if found:
        since_ms = max(since_ms, min(header.since_ms for header, _ in found))
    if since_ms >= until_ms:
        raise click.UsageError(
            f"--since ({instant(since_ms)}) must be earlier than the end of the span ({instant(until_ms)})"
        )
    return _account(found, bootstrap, Span(since_ms, until_ms, nodes))


def again(files: Iterable[Path], bootstrap: Cluster, answer: Path) -> Report:
    """Repeat an earlier account with the same records.

    Raises OffsetsError: some records are gone, or the file is not a result.
    """
    sources, known = _headers(files), _earlier(answer)
    span = Span(known.since_ms, known.until_ms, tuple(known.only))
    found = _account(sources, bootstrap, span, Within(known.read))
    if why := difference(known.read, found.read):
        where = ", ".join(str(path) for _, path in sources) or str(bootstrap)
        raise OffsetsError(
            f"{where}: {why}; Kafka may have deleted them after their retention: use an export of that time"
        )
    return found


def _headers(files: Iterable[Path]) -> Files:
    found = []
    for path in files:
        with source.reading(path) as lines:
            found.append((header_of(lines.readline(), str(path)), path))
    return sorted(found, key=lambda one: (one[0].until_ms, one[0].since_ms, one[1]))


def _account(files: Files, bootstrap: Cluster, span: Span, within: Within | None = None) -> Report:
    """Compute the account of the files, or of Kafka if there are none."""
    account, judges = Account(span, within), list[Proven]()

    def begin(opened: source.Opened) -> source.Sink:
        judges.append(Proven(opened.policies, account.take))
        return judges[-1].take_all

    for _, path in files:
        source.from_file(path, None, None, begin)
        judges[-1].finish()
    if not files:
        asyncio.run(source.from_log(bootstrap, TOPICS, span.since_ms, span.until_ms, begin))
        judges[-1].finish()
    return account.finish(sum(one.dropped for one in judges))


def _earlier(path: Path) -> Earlier:
    """Read a result of ``slacktide savings --output json``. Raises OffsetsError if it is not one."""
    try:
        found = msgspec.json.decode(path.read_bytes(), type=Earlier)
    except OSError as exc:
        raise OffsetsError(f"{path}: {exc.strerror or exc}") from exc
    except MALFORMED as exc:
        raise OffsetsError(f"{path}: not a report of `slacktide savings --output json`: {exc}") from exc
    if found.version != VERSION:
        raise OffsetsError(f"{path}: version {found.version}; accepted: version {VERSION}, which this release writes")
    return found
