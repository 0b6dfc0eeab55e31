"""``slacktide audit``: actions on pods, as a list and as a tamper-evident export; and answers by quotas, as a list."""

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from functools import partial
from pathlib import Path

import click

from slacktide.agents.clock import SystemClock
from slacktide.deploy.cli.suggestions import Group, near
from slacktide.deploy.runtime import settings
from slacktide.deploy.runtime.text import (
    Moment,
    MomentType,
    Name,
    count,
    instant,
    output_option,
    show,
    show_result,
    table,
)
from slacktide.schemas.connection import Cluster, options
from slacktide.schemas.errors import LogError
from slacktide.schemas.outcome import NodeOutcome
from slacktide.schemas.pod_admission import QuotaUse
from slacktide.schemas.topics import AUDIT, POD_ADMISSION
from slacktide.streams.analysis.audit.acts import (
    Act,
    Answered,
    Choice,
    acts_of,
    admissions_of,
    content_of,
    prefilter,
    what,
)
from slacktide.streams.analysis.audit.chain import Chain
from slacktide.streams.analysis.audit.chain import verify as verified
from slacktide.streams.analysis.explain.offered import amount, resource_name
from slacktide.streams.analysis.explain.reclaimed import text_of as text_of_reclaim
from slacktide.streams.decisions.evict.node_evict import observed
from slacktide.streams.kafka import Tail, partition_counts
from slacktide.streams.records import Record, text_of

FETCH_WAIT_MS = 100
ALL = 1 << 60
"""No limit for the number of records."""
_ANSWERS_HEAD = ("WHEN", "POD", "BAND", "RESULT", "REQUESTED", "USED", "QUOTA")
_HEAD = ("WHEN", "POD", "NODE", "WHAT", "RULE", "OBSERVED", "POLICY", "CREDIT", "BY", "WHY")
since_option = click.option(
    "--since", type=MomentType(), help="Start: a time, or a duration before now. Without it: the oldest record."
)
until_option = click.option(
    "--until", type=MomentType(), help="End: a time, or a duration before now. Without it: now."
)


@click.group(cls=Group, epilog="Example: slacktide audit list --pod jobs/etl-x2lqp")
def command() -> None:
    """List which pods were evicted, throttled or frozen in the last 30 days, and export them to a verifiable file.

    It also lists how the quotas of namespaces answered for new pods.
    """


@command.command(name="list", epilog="Example: slacktide audit list --node node-1 --since 2d --bootstrap kafka-1:9092")
@click.option("--pod", type=Name(), default="", help="Only this pod (NAMESPACE/NAME), or all pods of a NAMESPACE.")
@click.option("--node", type=Name(), default="", help="Only records of this node.")
@since_option
@until_option
@settings.bootstrap_option
@output_option("text", "json")
def list_(bootstrap: Cluster, *, pod: str, node: str, since: Moment | None, until: Moment | None, output: str) -> None:
    """List actions on pods: time, rule, threshold, policy and credit.

    Records stay after pod and node are deleted. With -o json: a list of {"partition", "offset", "body"}, the
    body being a NodeOutcome.
    """
    choice = Choice(node=node, pod=pod)
    since_ms, until_ms = _span(since, until)
    keep, read = prefilter(choice), set[str]()

    def wanted(record: Record) -> bool:
        read.add(text_of(record.key or b""))
        return keep(record)

    found = acts_of(asyncio.run(_records(bootstrap, since_ms, until_ms, wanted)), choice)
    acts = found.acts
    text = partial(shown, acts) if acts else partial(nothing, node, read, since_ms, until_ms)
    show_result(acts, output, text)
    if found.unreadable:
        show(
            f"{count(found.unreadable, 'record')} cannot be decoded; `slacktide audit export` writes them undecoded",
            err=True,
        )


@command.command(epilog="Example: slacktide audit admissions --pod team-a --since 2d --bootstrap kafka-1:9092")
@click.option("--pod", type=Name(), default="", help="Only this pod (NAMESPACE/NAME), or all pods of a NAMESPACE.")
@since_option
@until_option
@settings.bootstrap_option
@output_option("text", "json")
def admissions(bootstrap: Cluster, *, pod: str, since: Moment | None, until: Moment | None, output: str) -> None:
    """List how quotas of namespaces answered for new pods: admitted, borrowed or over quota, with the numbers.

    A name that ends with - is the beginning of a name that Kubernetes made. With -o json: a list of {"partition",
    "offset", "body"}, the body being a PodAdmission.
    """
    since_ms, until_ms = _span(since, until)
    records = asyncio.run(_records(bootstrap, since_ms, until_ms, prefilter(Choice(pod=pod)), POD_ADMISSION.name))
    found = admissions_of(records, pod)
    empty = f"No quota has answered for a pod {_span_text(since_ms, until_ms)}"
    show_result(found, output, lambda: answers(found) if found else empty)


@command.command(epilog="Example: slacktide audit export november.jsonl --since 2026-11-01T00:00Z")
@click.argument("file", type=settings.file())
@since_option
@until_option
@settings.bootstrap_option
def export(file: Path, *, bootstrap: Cluster, since: Moment | None, until: Moment | None) -> None:
    """Write all records of the audit to FILE, as lines that are chained by hashes.

    It prints the hash of the last line. Keep it apart from the file: audit verify --hash compares it.
    """
    from slacktide.deploy.cli.replay.source import writing  # noqa: PLC0415

    since_ms, until_ms = _span(since, until)
    records = asyncio.run(_records(bootstrap, since_ms, until_ms))
    chain = Chain()
    with writing(file) as out:
        out.write(chain.first(since_ms=since_ms, until_ms=until_ms))
        for record in records:
            out.write(chain.line(**content_of(record)))
        out.write(chain.last())
    show(f"{count(len(records), 'record')} in {file}\nhash {chain.hash}")


@command.command(epilog="Example: slacktide audit verify november.jsonl --hash 1f0c...")
@click.argument("file", type=settings.file())
@click.option("--hash", "expected", metavar="HASH", help="Hash of the last line, which `audit export` printed.")
def verify(file: Path, *, expected: str | None) -> None:
    """Verify that no line of an exported FILE was changed, removed, inserted or moved.

    It prints each invalid line. Without --hash it cannot detect a chain that was recomputed from some line on. Exit
    code 1: a line is invalid.
    """
    from slacktide.deploy.cli.replay.source import reading  # noqa: PLC0415

    with reading(file) as lines:
        found = verified(lines)
    if 1 < found.lines <= found.faults_count:
        raise click.ClickException(
            f"{file}: none of its {found.lines} lines is from an audit export; give a file that slacktide audit "
            "export wrote"
        )
    for fault in found.faults:
        show(f"{file}: line {fault.line} {fault.what}")
    if found.faults_count > len(found.faults):
        show(f"{file}: and {found.faults_count - len(found.faults)} more")
    if found.faults:
        raise click.ClickException(
            f"{file}: {count(found.faults_count, 'fault')} in {count(found.lines, 'line')}; the export was changed "
            "after it was written"
        )
    if expected is not None and expected.lower() != found.hash:
        raise click.ClickException(
            f"{file}: the hash of the last line is {found.hash}, not {expected}: the file is another export, or "
            "its hashes were recomputed"
        )
    show(f"{file}: {count(found.lines - 2, 'record')}, all unchanged\nhash {found.hash}")


def _span(since: Moment | None, until: Moment | None) -> tuple[int, int]:
    now_ms = SystemClock().wall_ms()
    since_ms = 0 if since is None else since.at(now_ms)
    until_ms = now_ms + 1 if until is None else until.at(now_ms)
    if since_ms >= until_ms:
        raise click.UsageError(f"--since ({instant(since_ms)}) must be earlier than --until ({instant(until_ms)})")
    return since_ms, until_ms


async def _records(
    bootstrap: Cluster,
    since_ms: int,
    until_ms: int,
    wanted: Callable[[Record], bool] | None = None,
    topic: str = AUDIT.name,
) -> list[Record]:
    """Read a topic's wanted records in the order of broker time, from ``since_ms`` until before ``until_ms``.

    Raises LogError if the topic cannot be read to its end.
    """
    partitions = (await partition_counts(bootstrap, [topic]))[topic]
    if not partitions:
        raise LogError(
            f"{bootstrap}: topic {topic} does not exist; create it: slacktide topics apply {options(bootstrap)}"
        )
    async with Tail(bootstrap, FETCH_WAIT_MS, most=ALL) as tail:
        read = await tail.read({(topic, number): since_ms for number in range(partitions)}, wanted)
    within = (record for record in read.records if record.timestamp_ms < until_ms)
    return sorted(within, key=lambda record: (record.partition, record.offset))


def _span_text(since_ms: int, until_ms: int) -> str:
    return f"until {instant(until_ms)}" if not since_ms else f"from {instant(since_ms)} to {instant(until_ms)}"


def nothing(node: str, read: Collection[str], since_ms: int, until_ms: int) -> str:
    """Return the message for an empty result; ``node``: the selected one, "": any; ``read``: nodes with records."""
    span = _span_text(since_ms, until_ms)
    if not read:
        return f"The audit contains no record {span}: no pod was evicted, throttled or frozen"
    of = f"node {node}" if node and node not in read else "it"
    return (
        f"The audit contains no record of {of} {span}. It contains records of {count(len(read), 'node')}; "
        f"{near(node, read)}"
    )


def shown(acts: Sequence[Act]) -> str:
    """Format one row per action, and a summary."""
    sums = Counter(what(one.body) for one in acts)
    in_all = ", ".join(f"{number} {word}" for word, number in sorted(sums.items()))
    return f"{table(_HEAD, [_row(one.body) for one in acts])}\n{count(len(acts), 'act')}: {in_all}"


def _row(one: NodeOutcome) -> tuple[str, ...]:
    whom = one.concerns
    pod = "all best-effort pods" if whom is None else f"{whom.namespace}/{whom.name}"
    spent = "-" if one.spent is None else f"{one.spent.evictions} of epoch {one.spent.epoch}"
    seen = observed(one.terms) or "-"
    policy, why = one.policy_version or "-", "; ".join(filter(None, (text_of_reclaim(one), one.reason))) or "-"
    return instant(one.acted_ms), pod, one.node, what(one), one.rule, seen, policy, spent, one.origin, why


def answers(found: Sequence[Answered]) -> str:
    """Format one row per answer of a quota."""
    return table(_ANSWERS_HEAD, [_answer_row(one) for one in found])


def _answer_row(one: Answered) -> tuple[str, ...]:
    body = one.body

    def amounts(of: Callable[[QuotaUse], int | None]) -> str:
        return ", ".join("-" if one.quota is None else amount(of(one), one.resource) for one in body.uses)

    requested = ", ".join(f"{resource_name(one.resource)} {amount(one.asked, one.resource)}" for one in body.uses)
    used, quota = amounts(lambda one: one.used), amounts(lambda one: one.quota)
    name = f"{body.namespace}/{body.name}"
    return instant(body.decided_ms), name, body.band, body.result.replace("_", " "), requested, used, quota
