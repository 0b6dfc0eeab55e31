"""``slacktide queue run`` as a process of its own."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

from testbed.parts import Part


@contextlib.contextmanager
def decider(bootstrap: str, folder: Path, name: str = "one", *options: str) -> Iterator[Part]:
    arguments = ["queue", "run", "--bootstrap", bootstrap, "--process-name", name, "--session-timeout", "1.5", *options]
    part = Part(name, folder, arguments)
    part.start()
    try:
        yield part
    finally:
        part.kill()
