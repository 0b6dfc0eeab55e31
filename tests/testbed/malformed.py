"""Records that nobody can use, of many kinds, from a seed."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from random import Random
from typing import Any

import msgspec

from slacktide.streams.records import Record
from testbed.samples import body_of, keyframe, raw_record

KEY = b"node-1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Malformed:
    kind: str
    key: bytes | None
    value: bytes
    named: bool
    """Whether it says which node, boot and seq it is of, so that the node can be answered ``skipped``."""


def _plain(seq: int) -> dict[str, Any]:
    return msgspec.json.decode(body_of(keyframe(seq)))


def _written(body: dict[str, Any]) -> bytes:
    return json.dumps(body, separators=(",", ":")).encode()


def _body(change: Callable[[dict[str, Any], Random], object]) -> Callable[[Random], bytes]:
    def made(rng: Random) -> bytes:
        body = _plain(rng.randrange(1, 1_000))
        change(body, rng)
        return _written(body)

    return made


def _nested(rng: Random) -> bytes:
    depth = rng.choice([2_000, 20_000, 100_000])
    return b"[" * depth + b"]" * depth


def _wrong_identity(body: dict[str, Any], rng: Random) -> None:
    container, name = rng.choice([(body["of"], "node"), (body["of"], "boot_id"), (body["now"], 0), (body["now"], 1)])
    container[name] = rng.choice([[[]], {"a": []}, True, 1.5])


def _no_identity(body: dict[str, Any], rng: Random) -> None:
    container, name = rng.choice([(body["of"], "node"), (body["of"], "boot_id"), (body, "of"), (body, "now")])
    del container[name]


def _wrong_type(body: dict[str, Any], rng: Random) -> None:
    parts = [(body, name) for name in ("more", "psi", "throttled", "facts", "pods")]
    container, name = rng.choice([*parts, (body["now"], 3)])
    container[name] = rng.choice(["?", True, 1.5])


def _negative_time(body: dict[str, Any], rng: Random) -> None:
    body["now"][rng.choice([1, 2])] = -rng.randrange(1, 2**40)


def _absurd_amount(body: dict[str, Any], rng: Random) -> None:
    body["now"][rng.choice([3, 4, *range(6, 10)])] = rng.choice([-2, -(2**62), 2**51, 2**63, 10**30])


def _absurd_time(body: dict[str, Any], rng: Random) -> None:
    body["now"][1] = rng.choice([10**15, 2**63, 10**40])


WHOLE = _written(_plain(1))
NUMBERS_END = WHOLE.index(b"]", WHOLE.index(b'"now":[')) + 1
NAMELESS: dict[str, Callable[[Random], bytes]] = {
    "noise": lambda rng: rng.randbytes(rng.randrange(1, 200)),
    "empty": lambda _: b"",
    "not JSON": lambda rng: rng.choice([b"{", b"nul", b"<sample/>", b"\x00", b'{"of":{}', b"\xef\xbb\xbf{}"]),
    "cut off": lambda rng: WHOLE[: rng.randrange(1, NUMBERS_END - 1)],
    "no object": lambda rng: rng.choice([b"[]", b"1", b'"node-1"', b"null", b"true", b"1e400"]),
    "an object for each pod": lambda _: msgspec.json.encode(keyframe(1)),
    "wrong type of identity": _body(_wrong_identity),
    "no identity": _body(_no_identity),
    "negative seq": _body(lambda body, rng: body["now"].__setitem__(0, -rng.randrange(1, 2**40))),
    "not a number": _body(lambda body, rng: body["now"].__setitem__(3, rng.choice([float("nan"), float("inf")]))),
    "endless number": lambda rng: b'{"of":{"node":' + b"9" * rng.choice([400, 5_000]) + b"}",
    "deep": lambda rng: b'{"of":{"x":' + _nested(rng) + b'},"now":[1,2]}',
    "no UTF-8": lambda rng: WHOLE.replace(b"node-1", bytes([rng.randrange(0x80, 0xFF)]) + b"-1"),
    "half a character": lambda _: WHOLE.replace(b'"node-1"', b'"\\ud800"'),
    "another node": _body(lambda body, _: body["of"].update(node="node-2")),
    "no period": _body(lambda body, _: body["of"]["limits"].update(be_cfs_period_us=0)),
}
NAMED = {
    "absurd amount": _body(_absurd_amount),
    "absurd time": _body(_absurd_time),
    "wrong type": _body(_wrong_type),
    "negative time": _body(_negative_time),
    "a number missing": _body(lambda body, _: body["now"].pop()),
    "cut off behind the numbers": lambda rng: WHOLE[: rng.randrange(NUMBERS_END + 1, len(WHOLE))],
    "deep behind the numbers": lambda rng: WHOLE[:-1] + b',"psi":' + _nested(rng) + b"}",
}
KEYLESS = {"no key": None, "strange key": b"\xff\xfe", "long key": b"k" * 5_000}


def malformed(count: int, seed: int) -> Iterator[Malformed]:
    rng = Random(seed)
    kinds = [*NAMELESS, *NAMED, *KEYLESS]
    for number in range(count):
        kind = kinds[number % len(kinds)]
        if kind in KEYLESS:
            yield Malformed(kind=kind, key=KEYLESS[kind], value=WHOLE, named=False)
        else:
            make = NAMELESS.get(kind) or NAMED[kind]
            yield Malformed(kind=kind, key=KEY, value=make(rng), named=kind in NAMED)


def bad_record(bad: Malformed, offset: int) -> Record:
    return raw_record(bad.value, key=bad.key, offset=offset)
