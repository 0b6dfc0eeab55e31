"""Which of the console's words a picture shows, kept within its file: a word that changes makes the picture old."""

import json
import struct
import zlib
from collections.abc import Mapping
from pathlib import Path

from slacktide.schemas.text import json_of

WORDS = Path(__file__).parents[2] / "deploy/console/pages/words/en.json"
HEAD_BYTES = 8
NAME = b"console words\0"
LEAST_CHARS = 3


def shown(text: str) -> dict[str, str]:
    """The words that a page's text holds."""
    words: dict[str, str] = json_of(WORDS.read_text(), dict[str, str], where=str(WORDS))
    return {key: word for key, word in words.items() if len(word) >= LEAST_CHARS and word in text}


def with_words(png: bytes, words: Mapping[str, str]) -> bytes:
    """The picture with a chunk of text before its end."""
    body = b"tEXt" + NAME + json.dumps(words).encode()
    chunk = struct.pack(">I", len(body) - 4) + body + struct.pack(">I", zlib.crc32(body))
    at = png.rindex(b"IEND") - 4
    return png[:at] + chunk + png[at:]


def words_of(png: bytes) -> dict[str, str]:
    """The words that a picture shows; none where it holds no such chunk."""
    at = HEAD_BYTES
    while at < len(png):
        (size,) = struct.unpack_from(">I", png, at)
        kind, body = png[at + 4 : at + 8], png[at + 8 : at + 8 + size]
        if kind == b"tEXt" and body.startswith(NAME):
            return json_of(body.removeprefix(NAME), dict[str, str], where="the picture")
        at += 12 + size
    return {}
