"""Make tests/replay/kueue.jsonl.gz anew: ``.venv/bin/python tests/replay/make_kueue.py``, some minutes.

It holds what the real Kueue makes of small worlds of queues (`testbed/kueue_worlds.py`), without and with fair sharing.
"""

import gzip
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

sys.path[:1] = [str(Path(__file__).parents[1])]

from testbed.brokers import running  # noqa: E402
from testbed.cluster.api_server import ApiServer  # noqa: E402
from testbed.cluster.jobs import job_controller  # noqa: E402
from testbed.cluster.kueue_record import Recording  # noqa: E402
from testbed.cluster.real_kueue import Kueue  # noqa: E402
from testbed.kueue_worlds import Answers, difference  # noqa: E402

RECORDED = Path(__file__).with_name("kueue.jsonl.gz")
TOGETHER = 30
"""Of 90 at once on a busy machine five came out otherwise: Kueue tries set-aside workloads again after a second."""
CLASSICAL, FAIR = range(270), range(1_000, 1_090)


def record(seeds: Sequence[int], *, fair: bool) -> list[Answers]:
    """Worlds on a Kueue of their own."""
    with running(ApiServer) as server, job_controller(server):
        kueue = Kueue(server, fair_sharing=fair)
        kueue.start()
        try:
            recording = Recording(server, kueue, seeds, fair=fair)
            found = recording.run()
        finally:
            kueue.stop()
    differ = [one.seed for one in found if difference(one)]
    sys.stdout.write(f"{len(found)} worlds, restless: {sorted(recording.restless)}, ours differ: {differ}\n")
    sys.stdout.flush()
    return found


def main() -> None:
    """Record all."""
    found: list[Answers] = []
    for seeds, fair in ((CLASSICAL, False), (FAIR, True)):
        for at in range(0, len(seeds), TOGETHER):
            found += record(seeds[at : at + TOGETHER], fair=fair)
            RECORDED.write_bytes(gzip.compress(msgspec.json.Encoder().encode_lines(found), mtime=0))


if __name__ == "__main__":
    main()
