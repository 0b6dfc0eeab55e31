"""Make tests/replay/koordinator_*.gz anew: ``.venv/bin/python tests/replay/make_koordinator.py``, some minutes.

They hold what the real koord-manager makes of generated pods, and of generated NodeMetrics.
"""

import gzip
import sys
from pathlib import Path

import msgspec

sys.path[:1] = [str(Path(__file__).parents[1])]

from testbed.cluster.koordinator_record import NodesRecording, PodsRecording, koordinator, koordinators  # noqa: E402
from testbed.koordinator_pods import Asked, Recorded, world  # noqa: E402

PODS, NODES = (Path(__file__).with_name(f"koordinator_{name}.gz") for name in ("pods.json", "nodes.jsonl"))
WORLDS, LOADS = range(10), range(100)


def main() -> None:
    """Record all."""
    encoder = msgspec.json.Encoder()
    with koordinator(webhooks=True) as (server, manager):
        recording = PodsRecording(server, koordinators(manager))
        worlds = {seed: world(seed) for seed in WORLDS}
        asked = [Asked(seed, name, pod, answer) for seed in worlds for name, pod, [answer] in recording.run(seed)]
        PODS.write_bytes(gzip.compress(encoder.encode(Recorded(worlds, asked)), mtime=0))
    with koordinator(webhooks=False) as (server, _):
        NODES.write_bytes(gzip.compress(encoder.encode_lines(NodesRecording(server).run(LOADS)), mtime=0))


if __name__ == "__main__":
    main()
