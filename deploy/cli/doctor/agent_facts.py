"""Queries the agent that runs on this machine, if any, as a probe does."""

from __future__ import annotations

import http.client
import os
from pathlib import Path

from slacktide.agents.listening import reachable
from slacktide.deploy.cli.doctor.facts import AgentFacts
from slacktide.deploy.runtime.endpoints import PROCESS

ANSWER_S = 3.0


def gather(host: str, port: int, state_folder: Path, proc_mount: Path) -> AgentFacts | None:
    """Query the endpoints; None: no agent answers, and none locks the state folder. `slacktide up` uses another folder.

    Args:
        host: of its endpoints.
        port: of its endpoints.
        state_folder: locked by a running agent.
        proc_mount: /proc.
    """
    address = reachable(host)
    live = _ask(address, port, "/live")
    if live is None and not is_locked(state_folder / "lock", proc_mount):
        return None
    # Each request to an agent that does not answer waits for the timeout. Send only one.
    asked = {} if live is None else {path: _ask(address, port, path) for path in ("/ready", "/fresh")}
    unanswered = f"no answer within {ANSWER_S:g} s"
    return AgentFacts(
        url=f"http://{address}:{port}",
        not_live=unanswered if live is None else live,
        not_ready=asked.get("/ready") or "",
        not_fresh=asked.get("/fresh") or "",
    )


def is_locked(file: Path, proc_mount: Path) -> bool:
    """Return whether a process holds a lock (flock) on the file. Trying the lock could prevent an agent's start."""
    try:
        held = (proc_mount / "locks").read_text(errors="replace")
        status = file.stat()
    except OSError:
        return False
    wanted = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}:{status.st_ino}"
    return any(wanted in line.split() and "FLOCK" in line for line in held.splitlines())


def _ask(host: str, port: int, path: str) -> str | None:
    """Return the trouble; "": none; None: no process of Slacktide answers."""
    connection = http.client.HTTPConnection(host, port, timeout=ANSWER_S)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        if answer.getheader(PROCESS) is None:
            return None
        text = answer.read(4_096).decode(errors="replace").strip()
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()
    return "" if answer.status == http.HTTPStatus.OK else text or f"status {answer.status}"
