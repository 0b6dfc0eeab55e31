"""``slacktide assess`` on a thousand nodes and seven days in a real Prometheus: how long, and in how much memory.

Run it as ``PYTHONPATH=tests .venv/bin/python -m bench.assess``, with ``--nodes`` for fewer.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from testbed.recorded_cluster import START_S, World, prometheus, write_blocks

BLOCK_HOURS = 2
"""promtool reads its whole input once per block: one input per block."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--days", type=int, default=7)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for hour in range(0, asked.days * 24, BLOCK_HOURS):
            world = World(nodes=asked.nodes, hours=BLOCK_HOURS, start_s=START_S + hour * 3600)
            write_blocks(folder / "series.txt", world, folder / "data")
        end_s = START_S + asked.days * 86_400 - 300
        with prometheus(folder, None) as url:
            recording, page = folder / "recording.gz", folder / "page.html"
            live = ["--prometheus", url, "--since", f"{asked.days}d", "--until", _utc(end_s)]
            _timed("live", [*live, "--record", str(recording), "--html", str(page)])
            _timed("recording", ["--from", str(recording)])
            sizes = f"recording {recording.stat().st_size >> 20} MiB, page {page.stat().st_size >> 10} KiB\n"
            sys.stdout.write(sizes)


def _utc(at_s: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(at_s))


def _timed(what: str, arguments: list[str]) -> None:
    begun_s = time.monotonic()
    command = [str(Path(sys.executable).with_name("slacktide")), "assess", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        printed = process.stdout.read()
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0
    took_s = time.monotonic() - begun_s
    sys.stdout.write(f"{what}: {took_s:.1f} s, {used.ru_maxrss >> 10} MiB at most\n{printed}\n")


if __name__ == "__main__":
    main()
