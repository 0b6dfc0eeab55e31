"""Damage anywhere in one node's records costs that node at most: what others are told is the same to the byte."""

from collections.abc import Sequence
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from slacktide.schemas.codec import decode
from slacktide.schemas.command import NodeCommand
from slacktide.schemas.dead_letter import DeadLetter
from slacktide.schemas.inventory import Resources, revision_of
from slacktide.schemas.sample import Limits
from slacktide.schemas.sample_columns_codec import encoded
from slacktide.schemas.topics import COMMAND, DEAD_LETTER, SAMPLE
from slacktide.streams.records import Out, Record
from slacktide.streams.rendering import record_of as written
from slacktide.streams.worker import Worker
from testbed.chains import logged
from testbed.samples import BATCH, PODS, SERVICE, START_MS, keyframe, policy_record, sample

BAD = "node-1"
NODES = ("node-0", BAD, "node-2")
AT_ONCE = 3
"""Samples of each node in one fetch."""
NOW = b',"now":['
FREE = msgspec.structs.replace(BATCH, requests=Resources(free_cpu_milli=100))
LISTS = {"rules publish": [SERVICE, FREE], "other list": [SERVICE]}


def value_of(node: str, seq: int, kind: str) -> bytes:
    """A sample as its node's last one, or one that the rules answer, whose figures they compute, or of other pods."""
    pods = LISTS.get(kind, PODS)
    changes: dict[str, Any] = {"pods_revision": revision_of(pods)}
    if kind == "rules answer":
        changes["limits"] = Limits(be_cfs_quota_us=110_000, be_cpuset="0-1")
    if kind != "plain" or seq == 1:
        return encoded(keyframe(seq, node, pods=pods, **changes), pods)
    return encoded(sample(seq, node, **changes), pods)


def record_of(node: str, seq: int, value: bytes) -> Record:
    offset, at_ms = seq * len(NODES) + NODES.index(node), START_MS + seq * 1_000
    return logged(value, SAMPLE, key=node, offset=offset, at_ms=at_ms)


def fetches(kinds: Sequence[str]) -> list[list[Record]]:
    """Three fetches, each with some samples of each node; ``kinds``: of the bad node's, except in the first."""
    return [
        [
            record_of(node, seq, value_of(node, seq, kinds[seq - begin] if node == BAD and begin > 1 else "plain"))
            for seq in range(begin, begin + AT_ONCE)
            for node in NODES
        ]
        for begin in (1, 1 + AT_ONCE, 1 + 2 * AT_ONCE)
    ]


def told(turns: Sequence[Sequence[Record]]) -> tuple[list[Out], list[set[str]]]:
    """What a worker writes, and whose figures its heartbeats cover, turn by turn."""
    reader = Worker("w", republish_ms=1_000)
    reader.policy(policy_record())
    outs: list[Out] = []
    covered = []
    for number, turn in enumerate(turns):
        now_ms = START_MS + (number + 1) * AT_ONCE * 1_000
        outs += reader.answers(turn, now_ms)
        outs += reader.figures(now_ms)
        covered.append(set(reader.covering.covered(0, ())))
    return outs, covered


def of_others(outs: Sequence[Out]) -> list[tuple[str, bytes]]:
    return sorted((out.topic, written(out)) for out in outs if out.key != BAD.encode())


ALONE = told([[record for record in turn if record.key != BAD.encode()] for turn in fetches(["plain"] * AT_ONCE)])


def letters(outs: Sequence[Out]) -> list[DeadLetter]:
    return [decode(out.value, DeadLetter) for out in outs if out.topic == DEAD_LETTER.name]


def check(turns: Sequence[Sequence[Record]]) -> list[Out]:
    """Others are told the same, and each sample of the bad node is answered, or laid aside, once."""
    outs, covered = told(turns)
    assert of_others(outs) == of_others(ALONE[0])
    assert [its - {BAD} for its in covered] == [its - {BAD} for its in ALONE[1]]
    sent = {record.offset for turn in turns for record in turn if record.key == BAD.encode()}
    own = [out for out in outs if out.key == BAD.encode()]
    answered = [decode(out.value, NodeCommand).sample.offset for out in own if out.topic == COMMAND.name]
    assert len(answered) == len(set(answered))
    assert sent <= {*answered, *(letter.offset for letter in letters(own))}
    return own


def damaged(value: bytes, how: str, at: float, junk: bytes) -> bytes:
    place = int(at * len(value))
    if how == "truncated":
        return value[:place]
    if how == "spliced":
        return value[:place] + junk + value[place + len(junk) :]
    if how == "inserted":
        return value[:place] + junk + value[place:]
    numbers = value.index(NOW) + len(NOW)
    if how == "numbers":
        return value[:numbers] + junk + value[value.index(b"]", numbers) :]
    return value[:-1] + b"," + junk + b"}"


JUNK = st.sampled_from(
    [b'"psi":"x"', b'"psi":[1e999]', b'"pods":[{}]', b'"pods":"x"', b'"facts":{"name":3}', b'"more":{}', b"\xff", b"]",
     b"[", b"{", b'"', b",", b"n", b"-", b"x", b"%d", b"\x7f5\x7f", b"1e5", b"9" * 30, b"-9223372036854775808",
     b"1,2,-9223372036854775808,3", b"[" * 2_000, b""]
) | st.binary(max_size=12)  # fmt: skip
HOW = st.sampled_from(["truncated", "spliced", "inserted", "numbers", "behind"])
KINDS = st.lists(st.sampled_from(["plain", "keyframe", "rules answer", *LISTS]), min_size=AT_ONCE, max_size=AT_ONCE)
DAMAGES = st.dictionaries(st.integers(0, AT_ONCE - 1), st.tuples(HOW, st.floats(0, 0.999), JUNK), min_size=1)


@given(KINDS, DAMAGES)
def test_damage_in_a_record_costs_its_own_node_alone(
    kinds: list[str], damages: dict[int, tuple[str, float, bytes]]
) -> None:
    turns = fetches(kinds)
    for which, (how, at, junk) in damages.items():
        place = which * len(NODES) + NODES.index(BAD)
        record = turns[1][place]
        turns[1][place] = msgspec.structs.replace(record, value=damaged(record.value or b"", how, at, junk))
    check(turns)


def test_what_is_invalid_behind_the_numbers_costs_the_figures_not_the_answer() -> None:
    """Arrays answer by the numbers; the rules, which compute these figures, read all of the sample."""
    *before, last = fetches(["rules publish"] * AT_ONCE)
    own = [msgspec.structs.replace(one, value=damaged(one.value or b"", "behind", 0, b'"psi":"x"')) for one in last]

    outs = check([*before, [one if one.key == BAD.encode() else good for one, good in zip(own, last, strict=True)]])

    found = {(letter.offset, "at `$.psi`" in letter.reason) for letter in letters(outs)}
    assert found
    assert found <= {(one.offset, True) for one in own}
    answers = [decode(out.value, NodeCommand) for out in outs if out.topic == COMMAND.name]
    assert "skipped" not in {one.answer for one in answers}
