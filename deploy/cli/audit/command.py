"""``slacktide audit``: list, export, verify."""

from __future__ import annotations

import asyncio
from pathlib import Path

import click
import msgspec

from slacktide.agents.clock import SystemClock
from slacktide.deploy.cli.moment import Moment, MomentType
from slacktide.deploy.cli.suggestions import Group
from slacktide.deploy.runtime import settings
from slacktide.deploy.runtime.text import Name, count, instant, show, show_json
from slacktide.schemas.connection import Cluster

since_option = click.option(
    "--since", type=MomentType(), help="Start: a time, or a duration before now. Without it: the oldest record."
)
until_option = click.option(
    "--until", type=MomentType(), help="End: a time, or a duration before now. Without it: now."
)


@click.group(cls=Group, epilog="Example: slacktide audit list --pod jobs/etl-x2lqp")
def command() -> None:
    """List which pods were evicted, throttled or frozen in the last 30 days, and export them to a verifiable file."""


@command.command(name="list", epilog="Example: slacktide audit list --node node-1 --since 2d --bootstrap kafka-1:9092")
@click.option("--pod", type=Name(), default="", help="Only this pod (NAMESPACE/NAME), or all pods of a NAMESPACE.")
@click.option("--node", type=Name(), default="", help="Only records of this node.")
@since_option
@until_option
@settings.bootstrap_option
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
def list_(bootstrap: Cluster, *, pod: str, node: str, since: Moment | None, until: Moment | None, output: str) -> None:
    """List actions on pods: time, rule, threshold, policy and credit.

    Records stay after pod and node are deleted. With -o json: a list of {"partition", "offset", "body"}, the
    body being a NodeOutcome.
    """
    from slacktide.deploy.cli.audit import listing  # noqa: PLC0415 - the client: not for --help
    from slacktide.streams.audit.acts import Choice, acts_of, prefilter  # noqa: PLC0415
    from slacktide.streams.records import Record, text_of  # noqa: PLC0415

    choice = Choice(node=node, pod=pod)
    since_ms, until_ms = _span(since, until)
    keep, read = prefilter(choice), set[str]()

    def wanted(record: Record) -> bool:
        read.add(text_of(record.key or b""))
        return keep(record)

    found = acts_of(asyncio.run(listing.audit_records(bootstrap, since_ms, until_ms, wanted)), choice)
    if output == "json":
        show_json(msgspec.json.format(msgspec.json.encode(found.acts), indent=2))
    else:
        show(listing.shown(found.acts) if found.acts else listing.nothing(node, read, since_ms, until_ms))
    if found.unreadable:
        show(
            f"{count(found.unreadable, 'record')} cannot be decoded; `slacktide audit export` writes them undecoded",
            err=True,
        )


@command.command(epilog="Example: slacktide audit export november.jsonl --since 2026-11-01T00:00Z")
@click.argument("file", type=settings.file())
@since_option
@until_option
@settings.bootstrap_option
def export(file: Path, *, bootstrap: Cluster, since: Moment | None, until: Moment | None) -> None:
    """Write all records of the audit to FILE, as lines that are chained by hashes.

    It prints the hash of the last line. Keep it apart from the file: audit verify --hash compares it.
    """
    from slacktide.deploy.cli.audit.listing import audit_records  # noqa: PLC0415
    from slacktide.deploy.cli.replay.source import writing  # noqa: PLC0415
    from slacktide.streams.audit.acts import content_of  # noqa: PLC0415
    from slacktide.streams.audit.chain import Chain  # noqa: PLC0415

    since_ms, until_ms = _span(since, until)
    records = asyncio.run(audit_records(bootstrap, since_ms, until_ms))
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
    from slacktide.streams.audit.chain import verify as verified  # noqa: PLC0415

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
