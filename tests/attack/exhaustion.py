"""What would use up a process: long pod lists, connections, names; and what killed processes leave."""

import contextlib
import json
import socket
import time
from collections.abc import Callable
from pathlib import Path

from attack.listing import attack
from attack.target import Target
from attack.wire import Raw
from slacktide.schemas.topics import SAMPLE
from testbed.parts import Part
from testbed.samples import body_of, keyframe


@attack
def pods_that_have_ended(target: Target) -> Callable[[], None]:
    """A node's list keeps completed pods of Jobs by the thousand; its own agent goes on sending."""
    file = target.victim.inventory
    before = file.read_text()
    described = json.loads(before)
    shape = json.dumps(described["items"][-1])
    for number in range(target.dice.randrange(2_300, 3_000)):
        pod = json.loads(shape)
        name = f"job-{number}-{'x' * 180}"
        pod["metadata"] |= {"name": name, "uid": f"uid-{name}"}
        pod["status"]["phase"] = target.dice.choice(["Succeeded", "Failed"])
        described["items"].append(pod)
    write(file, json.dumps(described))
    time.sleep(12)  # past a keyframe

    def undo() -> None:
        write(file, before)

    return undo


def write(file: Path, text: str) -> None:
    """Whole at once: agents watch it."""
    part = file.with_suffix(".part")
    part.write_text(text)
    part.replace(file)


@attack
def half_open_connections(target: Target) -> Callable[[], None]:
    """To the endpoints of agents and workers: requests that begin and never end."""
    begun = [b"", b"G", b"GET /metrics HTTP/1.1\r\nHost: x\r\n", b"GET /ready HTTP/1.1\r\nX: " + b"y" * 4_096]
    held: list[socket.socket] = []
    for part in target.system.parts:
        for number in range(1_500):
            with contextlib.suppress(OSError):
                door = socket.create_connection(("127.0.0.1", part.port), timeout=2)
                held.append(door)
                door.sendall(begun[number % len(begun)])

    def answers() -> None:
        for part in target.system.parts:
            target.wait(lambda part=part: "slacktide" in asked(part), f"{part.name} serves /metrics", 60)
        for door in held:
            door.close()

    return answers


def asked(part: Part) -> str:
    """Its metrics; "" where it does not answer in time."""
    try:
        return part.ask("metrics")
    except OSError:
        return ""


@attack
def kill_again_and_again(target: Target) -> Callable[[], None]:
    """Nothing temporary is left by processes that could not tidy up."""
    left = {path.name for path in target.system.temporary.iterdir()}
    parts = target.dice.sample(target.system.parts, 2)
    for _ in range(2):
        for part in parts:
            part.kill()
            part.start()
        time.sleep(target.dice.uniform(0.3, 2.0))
    for part in parts:
        part.wait_ready()

    def nothing_left() -> None:
        assert {path.name for path in target.system.temporary.iterdir()} <= left

    return nothing_left


@attack
def thousands_of_invented_names(target: Target) -> None:
    """Each sends one sample, and none is a node."""
    names = [f"ghost-{target.dice.randrange(1 << 60):x}" for _ in range(10_000)]
    target.liars.update(names)
    shape = body_of(keyframe(1, "NAME"))
    target.system.put(*(Raw(SAMPLE.name, name.encode(), shape.replace(b"NAME", name.encode())) for name in names))
