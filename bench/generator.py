"""Sends a fleet's samples, each node once a second, all spread evenly: ``python -m bench.generator --help``."""

import argparse
import asyncio

import uvloop

from bench.fleet import name_of
from bench.log import POLICY_IN_FORCE, USUAL_POLICY
from bench.send import Batches, batches
from bench.stamp import StampedNode
from slacktide.agents.clock import SystemClock
from slacktide.schemas.policy import Policy
from slacktide.schemas.topics import NODE_PARTITIONS, SAMPLE
from slacktide.streams.kafka import partition_of

SLICE_S = 0.02
"""Nodes whose turn comes within one go out together."""
HISTORY_STEP_S = 20


def due(count: int, from_s: float, until_s: float) -> list[int]:
    """Places of ``count`` nodes whose turn lies within (from, until]: each once a second, spread evenly."""
    return [turn % count for turn in range(int(from_s * count) + 1, int(until_s * count) + 1)]


def fleet(count: int, share: int, of: int, policy: Policy) -> list[StampedNode]:
    """The nodes of one share: those in its partitions."""
    shares = (partition_of(name_of(number), NODE_PARTITIONS) % of for number in range(count))
    return [StampedNode(number, policy) for number, its in enumerate(shares) if its == share]


async def generate(bootstrap: str, nodes: list[StampedNode], history_s: int) -> None:
    """Until the process is ended."""
    clock = SystemClock()
    async with batches(bootstrap, SAMPLE.name) as out:
        await _history(out, nodes, clock.wall_ms(), history_s)
        sent_s, start_ns = 0.0, clock.mono_ns()
        while True:
            await asyncio.sleep(max(0.0, sent_s + SLICE_S - (clock.mono_ns() - start_ns) / 1e9))
            until_s = (clock.mono_ns() - start_ns) / 1e9
            now_ms = clock.wall_ms()
            for place in due(len(nodes), sent_s, until_s):
                await out.add(nodes[place].stamp(now_ms))
            await out.flush()
            sent_s = until_s


async def _history(out: Batches, nodes: list[StampedNode], now_ms: int, history_s: int) -> None:
    step_ms = HISTORY_STEP_S * 1000
    for at_ms in range(now_ms - history_s * 1000, now_ms, step_ms):
        for node in nodes:
            await out.add(node.stamp(at_ms, step_ms))


def main() -> None:
    """Run until ended."""
    parser = argparse.ArgumentParser(description="Send a fleet's samples.")
    parser.add_argument("bootstrap", metavar="BROKER")
    parser.add_argument("nodes", type=int)
    parser.add_argument("--share", default="0/1", metavar="N/OF", help="of several generators each has its partitions")
    parser.add_argument("--history", type=int, default=0, metavar="SECONDS", help="so much is written at once, before")
    parser.add_argument("--usual", action="store_true", help="samples name the usual policy, not the demo's")
    asked = parser.parse_args()
    share, of = map(int, asked.share.split("/"))
    nodes = fleet(asked.nodes, share, of, USUAL_POLICY if asked.usual else POLICY_IN_FORCE)
    uvloop.run(generate(asked.bootstrap, nodes, asked.history))


if __name__ == "__main__":
    main()
