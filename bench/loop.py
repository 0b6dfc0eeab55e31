"""Worker and agent as processes of their own, against a broker: the loop that most parts measure."""

import contextlib
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from bench import log
from bench.node import Node
from bench.process import Running, Slacktide, environment
from bench.rig import Rig
from slacktide.schemas.policy import Policy

SELDOM = ("--republish", "30")
"""Of figures that did not change: as docs/silence.md allows once all readers are upgraded."""
ALL_NODES = ("--open-nodes-max", "20000")
"""No inventory lists the bench's nodes."""


@contextlib.contextmanager
def worker(
    rig: Rig,
    bootstrap: str,
    policy: Policy = log.POLICY_IN_FORCE,
    more: Sequence[str] = (),
    checkout: Path | None = None,
) -> Iterator[Slacktide]:
    """A ready worker that holds this policy, the bench's unless said otherwise.

    Args:
        rig: the run.
        bootstrap: the broker.
        policy: which it holds.
        more: its other arguments.
        checkout: of another version.

    """
    log.publish_policy(bootstrap, policy)
    with Slacktide(rig, "stream", "--bootstrap", bootstrap, *ALL_NODES, *more, checkout=checkout) as running:
        running.wait_ready()
        yield running


def fleet(
    rig: Rig,
    bootstrap: str,
    nodes: int,
    *,
    policy: Policy = log.POLICY_IN_FORCE,
    share: tuple[int, int] = (0, 1),
    history_s: int = 0,
) -> Running:
    """A process that sends samples of many nodes, a second apart, by the demo's policy or the usual one.

    Args:
        rig: the run.
        bootstrap: the broker.
        nodes: how many.
        policy: which the samples name.
        share: which share of the nodes, of how many.
        history_s: of event time, written at once before.

    """
    command = [sys.executable, "-m", "bench.generator", bootstrap, str(nodes)]
    command += ["--share", f"{share[0]}/{share[1]}", "--history", str(history_s)]
    if policy is log.USUAL_POLICY:
        command.append("--usual")
    return Running(rig, f"generator-{share[0]}", command, environment())


@contextlib.contextmanager
def agent(rig: Rig, bootstrap: str, node: Node, *more: str, interval_s: float = 1.0) -> Iterator[Slacktide]:
    """A ready agent on a node, with a state folder of its own and ``more`` arguments."""
    state = rig.folder / f"state-{len(list(rig.folder.iterdir()))}"
    arguments = ["--bootstrap", bootstrap, *node.arguments, *more]
    with Slacktide(
        rig, "agent", *arguments, "--sample-interval", str(interval_s), "--state-folder", str(state)
    ) as running:
        running.wait_ready()
        yield running
