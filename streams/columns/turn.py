"""Samples with a known head, gathered to be decoded and decided together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Generic, TypeVar

import msgspec
import numpy as np

from slacktide.schemas.proof import Verdict
from slacktide.schemas.sample_columns_codec import BEGIN, LOOKS, MORE, NOW
from slacktide.streams.columns.block import Block, samples
from slacktide.streams.columns.head import FIT, PODS, Head, joined_numbers
from slacktide.streams.columns.looks import gates, text_behind
from slacktide.streams.columns.numbers import Columns, NoNumbersError, columns, is_sound, numbers
from slacktide.streams.columns.rings import Bools, Ints
from slacktide.streams.columns.screen import Screened, screen

N = TypeVar("N")

_decode = msgspec.json.Decoder(list[int]).decode
_NO_NUMBERS = np.zeros((0, 0), np.int64)


class Turn(Generic[N]):
    """Samples with a known head, in order."""

    COLUMNS: ClassVar = ("heads", "looks", "places", "quotas", "texts", "values", "verdicts")
    __slots__ = (*COLUMNS, "begun", "met", "numbers")

    def __init__(self) -> None:
        self.met: set[int] = set()
        """Heads that the turn's samples introduced."""
        self.numbers: Ints = _NO_NUMBERS
        """``Head.numbers`` of each sample, after ``read``."""
        self.begun: dict[int, tuple[str, int]] = {}
        """Boot and seq of each node's newest sample before the turn."""
        self.places: list[int] = []
        """Places of the samples among the records."""
        self.heads: list[Head[N]] = []
        self.looks: list[bytes] = []
        self.quotas: list[int] = []
        self.texts: list[bytes] = []
        self.values: list[bytes] = []
        self.verdicts: list[Verdict] = []

    def newest(self, head: Head[N]) -> tuple[str, int]:
        """Return boot and seq of the newest sample with this head."""
        heads, texts = self.heads[head.first :], self.texts[head.first :]
        # Their numbers are not decoded yet: invalid ones count as little as they do when they are.
        its = [alone(text) for one, text in zip(heads, texts, strict=True) if one is head]
        return head.of.boot_id, max((numbers[0] for numbers in its if numbers), default=-1)

    def first(self) -> Bools:
        """Find the samples that are the first of a head introduced in this turn."""
        seen: set[int] = set()
        found = np.zeros(len(self.heads), np.bool_)
        if self.met:
            for at, head in enumerate(self.heads):
                if id(head) in self.met and id(head) not in seen:
                    seen.add(id(head))
                    found[at] = True
        return found

    def kept(self, keep: Sequence[bool]) -> Turn[N]:
        """Return the samples for which ``keep`` is true."""
        found: Turn[N] = Turn()
        found.begun, found.met = self.begun, self.met
        for name in self.COLUMNS:
            setattr(found, name, [one for one, kept in zip(getattr(self, name), keep, strict=True) if kept])
        return found

    def read(self) -> Columns:
        """Decode the numbers of all samples. Raises NoNumbersError if a list is invalid, or does not match its pods."""
        self.numbers = joined_numbers(self.heads)
        return columns(numbers(self.texts), self.numbers[:, PODS])

    def readable(self) -> list[bool]:
        """Find the samples whose numbers can be decoded."""
        found: list[bool] = []
        for text, head in zip(self.texts, self.heads, strict=True):
            try:
                numbers([text])
            except NoNumbersError:
                found.append(False)
            else:
                found.append(text.count(b",") == head.commas)
        return found

    def screened(self, its: Columns) -> Screened:
        """Decide the samples; ``its``: the result of ``read``."""
        quotas_us = np.array(self.quotas, np.int64)
        return screen(self.numbers[:, FIT], samples(its, self.heads, quotas_us, gates(self.looks)))

    def block(self, its: Columns, newer: Sequence[bool], offsets: Sequence[int]) -> Block[N]:
        """Return the samples as input of the windows; ``offsets``: of all records."""
        return Block(
            heads=self.heads,
            numbers=self.numbers,
            values=self.values,
            offsets=[offsets[place] for place in self.places],
            quotas_us=self.quotas,
            newer=np.array(newer, np.bool_),
            columns=its,
            met=self.first(),
        )


def texts(value: bytes) -> tuple[bytes, bytes]:
    """Return the numbers of a sample and of its looks, undecoded; b"" twice: arrays cannot read it."""
    cut = value.find(NOW) if value.startswith(BEGIN) else -1
    return (b"", b"") if cut < 0 else texts_at(value, cut + len(NOW))


def texts_at(value: bytes, begin: int) -> tuple[bytes, bytes]:
    """Return them where the head ends. Unknown figures and rare fields are the rules'."""
    end = value.find(b"]", begin)
    text, looks, behind = value[begin:end], b"", end + 2
    if value.startswith(LOOKS, behind):
        looks, behind = text_behind(value, behind)
    return (b"", b"") if end < 0 or b"n" in text or value.startswith(MORE, behind) else (text, looks)


def alone(text: bytes) -> tuple[int, int] | None:
    """Decode the numbers of one sample, return its seq and observed_ms; None: they are invalid or out of range."""
    if text.translate(None, b"0123456789,-"):  # msgspec accepts 1.0 as an integer
        return None
    try:
        flat = _decode(b"[%b]" % text)
    except msgspec.DecodeError:
        return None
    return (flat[0], flat[1]) if is_sound(flat) else None
