"""Batch work that counts what it gets done: ``python -m bench.frontier.batch KIND COUNTER``.

COUNTER is a file that holds the count as text, written anew at least each tenth of a second while the work runs.
"""

import ctypes
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

WRITE_EVERY_S = 0.1
COPY_BYTES = 32 << 20
FUNCTIONS = 60
FFMPEG = (
    *("ffmpeg", "-nostdin", "-loglevel", "error", "-f", "lavfi", "-i", "testsrc2=size=1280x720:rate=30"),
    *("-c:v", "libx264", "-preset", "veryfast", "-threads", "2", "-stats_period", "0.1", "-progress", "pipe:1"),
    *("-f", "null", "-"),
)
PROGRAMS = {"encode": "ffmpeg", "compile": "gcc"}
"""What a kind needs beyond Python."""


def spin() -> Iterator[int]:
    """Registers only."""
    while True:
        sum(range(20_000))
        yield 1


def stream() -> Iterator[int]:
    """Memory larger than the caches, copied."""
    here, there = ctypes.create_string_buffer(COPY_BYTES), ctypes.create_string_buffer(COPY_BYTES)
    while True:
        ctypes.memmove(there, here, COPY_BYTES)
        yield 1


def compile_() -> Iterator[int]:
    """A C file of many small functions, again and again: short processes, files, caches."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "source.c")
        source.write_text("".join(_function(number) for number in range(FUNCTIONS)))
        while True:
            subprocess.run(["gcc", "-O2", "-c", "-o", "/dev/null", str(source)], check=True)
            yield 1


def encode() -> Iterator[int]:
    """Video without end; one is a frame."""
    with subprocess.Popen(FFMPEG, stdout=subprocess.PIPE, text=True) as ffmpeg:
        before = 0
        for line in ffmpeg.stdout or ():
            if line.startswith("frame="):
                frames = int(line.removeprefix("frame="))
                yield frames - before
                before = frames


KINDS = {"spin": spin, "stream": stream, "compile": compile_, "encode": encode}


def lacks(kind: str) -> str | None:
    """The program that this machine lacks for it."""
    name = PROGRAMS.get(kind)
    return name if name is not None and shutil.which(name) is None else None


def _function(number: int) -> str:
    return (
        f"int f{number}(int a, int *b) {{ int s = {number}; for (int i = 0; i < a; i++) "
        f"s += b[i] * (i ^ {number}) + (s >> 3); return s; }}\n"
    )


def main(kind: str, counter: Path) -> None:
    """Work until killed."""
    done, written_s = 0, 0.0
    with counter.open("w") as file:
        for count in KINDS[kind]():
            done += count
            if (now_s := time.monotonic()) - written_s >= WRITE_EVERY_S:
                written_s = now_s
                file.seek(0)
                file.write(f"{done:20}")
                file.flush()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
