"""Every sample is answered, nobody else is, and all answers to a sample decide the same."""

from collections.abc import Iterable

import msgspec

from slacktide.schemas.codec import encode
from slacktide.schemas.command import NodeCommand
from slacktide.schemas.sample import NodeSample
from slacktide.schemas.topics import COMMAND
from testbed.history.records import History
from testbed.history.verdict import Verdict, verdict

Name = tuple[str, str, int]


def name_of(message: NodeSample | NodeCommand) -> Name:
    """Node, boot and seq: what joins a sample and its answers."""
    return message.node, message.boot_id, message.seq


def decided(command: NodeCommand) -> bytes:
    """What a command decides, without when, by whom and from which offset."""
    return encode(msgspec.structs.replace(command, decided_ms=0, worker="", sample=None))


def unanswered(samples: Iterable[NodeSample], commands: Iterable[NodeCommand]) -> list[Name]:
    """Samples without an answer, each once."""
    answered = {name_of(command) for command in commands}
    return [name for name in dict.fromkeys(map(name_of, samples)) if name not in answered]


def every_sample_answered(history: History) -> Verdict:
    """At least one command per sample that a worker was there to read."""
    until_ms = history.until_ms
    due = [entry.body for entry in history.samples if until_ms is None or entry.at_ms < until_ms]
    missing = unanswered(due, [entry.body for entry in history.of(COMMAND, NodeCommand)])
    return verdict("every sample answered", len(due), map(str, missing))


def only_samples_answered(history: History) -> Verdict:
    """No command without its sample."""
    asked = {name_of(entry.body) for entry in history.samples}
    commands = [entry.body for entry in history.of(COMMAND, NodeCommand)]
    return verdict(
        "only samples answered", len(commands), (str(name_of(one)) for one in commands if name_of(one) not in asked)
    )


def answers_agree(history: History) -> Verdict:
    """Workers that answer one sample decide the same under the same id.

    One may have skipped it, for want of what another knew.
    """
    by_name: dict[Name, set[bytes]] = {}
    for entry in history.of(COMMAND, NodeCommand):
        decisions = by_name.setdefault(name_of(entry.body), set())
        if entry.body.answer != "skipped":
            decisions.add(decided(entry.body))
    return verdict("answers agree", len(by_name), (str(name) for name, said in by_name.items() if len(said) > 1))
