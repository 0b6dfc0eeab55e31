"""Joins cgroups, then executes a program, so that all its work counts there.

``python -m slacktide.deploy.demo.join [GROUP_FILE …] -- PROGRAM [ARGUMENT …]``
"""

import os
import sys
from collections.abc import Sequence
from pathlib import Path


def command(module: str, *arguments: str, join: Sequence[Path]) -> list[str]:
    """Return the command line that runs a module in the cgroups of these ``cgroup.procs`` files."""
    return [sys.executable, "-m", __name__, *map(str, join), "--", sys.executable, "-m", module, *arguments]


def main(arguments: list[str]) -> None:
    """Join and execute."""
    split = arguments.index("--")
    for group in arguments[:split]:
        Path(group).write_text("0")  # 0: the writing process
    program = arguments[split + 1 :]
    os.execv(program[0], program)  # noqa: S606 no shell is wanted


if __name__ == "__main__":
    main(sys.argv[1:])
