"""Records that nobody can use, of many kinds, from a seed."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from random import Random
from typing import Any

import msgspec

from slacktide.streams.records import Record
from testbed.samples import keyframe, raw_record

KEY = b"node-1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Malformed:
    kind: str
    key: bytes | None
    value: bytes
    named: bool
    """Whether it says which node, boot and seq it is of, so that the node can be answered ``skipped``."""


def _plain(seq: int) -> dict[str, Any]:
    return msgspec.json.decode(msgspec.json.encode(keyframe(seq)))


def _body(change: Callable[[dict[str, Any], Random], object]) -> Callable[[Random], bytes]:
    def made(rng: Random) -> bytes:
        body = _plain(rng.randrange(1, 1_000))
        change(body, rng)
        return json.dumps(body).encode()

    return made


def _deep(rng: Random) -> bytes:
    depth = rng.choice([2_000, 20_000, 100_000])
    return b'{"x":' + b"[" * depth + b"]" * depth + b"}"


def _wrong_type(*names: str) -> Callable[[dict[str, Any], Random], None]:
    def change(body: dict[str, Any], rng: Random) -> None:
        name = rng.choice(names)
        body[name] = rng.choice([[[]], "?" if name == "use" else {"a": []}, True, 1.5])

    return change


def _negative_count(body: dict[str, Any], rng: Random) -> None:
    body[rng.choice(["observed_ms", "interval_ms"])] = -rng.randrange(1, 2**40)


def _absurd_amount(body: dict[str, Any], rng: Random) -> None:
    amount = rng.choice([-1, -(2**62), 2**51, 2**63, 10**30])
    where = rng.choice([body["use"], body["pod_use"][rng.randrange(2)]])
    where[rng.choice(["cpu_milli", "mem_bytes"])] = amount


def _absurd_time(body: dict[str, Any], rng: Random) -> None:
    body["observed_ms"] = rng.choice([10**15, 2**63, 10**40])


def _no_period(body: dict[str, Any], _: Random) -> None:
    body["limits"]["be_cfs_period_us"] = 0


NAMELESS: dict[str, Callable[[Random], bytes]] = {
    "noise": lambda rng: rng.randbytes(rng.randrange(1, 200)),
    "empty": lambda _: b"",
    "not JSON": lambda rng: rng.choice([b"{", b"nul", b"<sample/>", b"\x00", b'{"node":}', b"\xef\xbb\xbf{}"]),
    "cut off": lambda rng: json.dumps(_plain(1)).encode()[: -rng.randrange(1, 800)],
    "no object": lambda rng: rng.choice([b"[]", b"1", b'"node-1"', b"null", b"true", b"1e400"]),
    "wrong type of identity": _body(_wrong_type("node", "boot_id", "seq", "observed_ms")),
    "no identity": _body(lambda body, rng: body.pop(rng.choice(["node", "boot_id", "seq", "observed_ms"]))),
    "negative seq": _body(lambda body, rng: body.update(seq=-rng.randrange(1, 2**40))),
    "not a number": _body(lambda body, rng: body["use"].update(cpu_milli=rng.choice([float("nan"), float("inf")]))),
    "endless number": lambda rng: b'{"seq":' + b"9" * rng.choice([400, 5_000]) + b"}",
    "deep": _deep,
    "no UTF-8": lambda rng: (
        json.dumps(_plain(1)).encode().replace(b"node-1", bytes([rng.randrange(0x80, 0xFF)]) + b"-1")
    ),
    "half a character": lambda _: json.dumps(_plain(1)).encode().replace(b'"node-1"', b'"\\ud800"'),
    "another node": _body(lambda body, _: body.update(node="node-2")),
}
NAMED = {
    "absurd amount": _body(_absurd_amount),
    "absurd time": _body(_absurd_time),
    "no period": _body(_no_period),
    "wrong type": _body(_wrong_type("use", "pod_use", "limits", "facts", "pods")),
    "negative count": _body(_negative_count),
    "field missing": _body(lambda body, rng: body.pop(rng.choice(["use", "pod_use", "interval_ms"]))),
}
KEYLESS = {"no key": None, "strange key": b"\xff\xfe", "long key": b"k" * 5_000}


def malformed(count: int, seed: int) -> Iterator[Malformed]:
    rng = Random(seed)
    kinds = [*NAMELESS, *NAMED, *KEYLESS]
    for number in range(count):
        kind = kinds[number % len(kinds)]
        if kind in KEYLESS:
            yield Malformed(kind=kind, key=KEYLESS[kind], value=json.dumps(_plain(1)).encode(), named=False)
        else:
            make = NAMELESS.get(kind) or NAMED[kind]
            yield Malformed(kind=kind, key=KEY, value=make(rng), named=kind in NAMED)


def bad_record(bad: Malformed, offset: int) -> Record:
    return raw_record(bad.value, key=bad.key, offset=offset)
