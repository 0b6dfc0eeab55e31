"""Watched files: the last good content stays in force, and nothing in a file can end its reader."""

import os
import re
from pathlib import Path

import pytest

from slacktide.agents.files import Watched, load_yaml
from slacktide.schemas.errors import ConfigError, Finding
from testbed.snapshots import refusal, situations, stable


def number(document: object, file: str) -> int:
    """A file that holds one whole number."""
    if not isinstance(document, int):
        raise ConfigError([Finding(file=file, field="content", value=repr(document), accepted="a whole number")])
    return document


def written(path: Path, text: str) -> None:
    """Write, and make sure that it shows: two writes may share a clock tick."""
    before = path.stat().st_mtime_ns if path.exists() else 0
    path.write_text(text)
    os.utime(path, ns=(before + 1_000_000, before + 1_000_000))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "policy.yaml"
    path.write_text("1")
    return path


def test_change_is_seen_once(path: Path) -> None:
    """A new content is a new value; the same content again is nothing to tell."""
    watched = Watched(path, number)
    assert (watched.value, watched.poll()) == (1, False)
    written(path, "2")

    assert (watched.poll(), watched.value, watched.refused) == (True, 2, "")
    assert watched.poll() is False
    written(path, "2")
    assert watched.poll() is False


@pytest.mark.parametrize("scalar", ["!!bool foo", "!!int ''", "!!int '-'", "!!float ''", "!!timestamp foo"])
def test_a_scalar_with_another_types_tag_is_refused(path: Path, scalar: str) -> None:
    path.write_text(f"a: {scalar}")
    with pytest.raises(ConfigError, match="one YAML document"):
        load_yaml(path)


def test_bad_content_leaves_the_last_good_in_force_and_says_so_once(path: Path) -> None:
    """The refusal names file, place, value and what is accepted; it ends with the next good content."""
    watched = Watched(path, number)
    written(path, "three")

    assert watched.poll() is True
    assert watched.value == 1
    assert watched.refused.splitlines() == [
        f"{path}: content: 'three': accepted: a whole number",
        f"the last valid {path} stays in force",
    ]
    assert watched.poll() is False
    written(path, "three")
    assert watched.poll() is False
    written(path, "1")
    assert (watched.poll(), watched.value, watched.refused) == (True, 1, "")


def test_file_that_vanishes_leaves_the_last_good_in_force(path: Path) -> None:
    """A missing file is an error at the start, later only a refusal."""
    watched = Watched(path, number)
    path.unlink()

    assert (watched.poll(), watched.value) == (True, 1)
    assert "no such file" in watched.refused
    assert watched.poll() is False
    with pytest.raises(ConfigError, match="no such file"):
        Watched(path, number)
    path.write_text("4")
    assert (watched.poll(), watched.value, watched.refused) == (True, 4, "")


def test_replaced_file_of_equal_size_and_time_is_seen(path: Path) -> None:
    """A ConfigMap's mount replaces files: a new inode is a new content."""
    watched = Watched(path, number)
    stamp = path.stat().st_mtime_ns
    other = path.with_name("other")
    other.write_text("7")
    os.utime(other, ns=(stamp, stamp))
    other.replace(path)

    assert (watched.poll(), watched.value) == (True, 7)


@situations(
    "content",
    {
        "an open bracket": b"a: [1",
        "two documents": b"a: 1\n---\nb: 2\n",
        "bytes of no encoding": b"a: \x80\x81",
        "a bell": b"a: \x07",
        "a list as a key": b"? [a]\n: 1",
        "a date that is none": b"d: 2024-13-45",
        "nested lists": b"- " * 200_000,
        "nested maps": b"{a: " * 200_000,
        "an alias": b"a: &x [1]\nb: *x\n",
        "a merge": b"a: &x {b: 1}\nc:\n  <<: *x\n",
        "too large": b"#" * (16 * 1024 * 1024 + 1),
        "a Python object": b"a: !!python/object/apply:os.getcwd []",
        "a folder": None,
    },
)
def test_content_that_cannot_be_read_is_refused(tmp_path: Path, content: bytes | None, snapshot) -> None:
    """Whatever is in the file, the answer is a ConfigError that says where and what is accepted."""
    path = tmp_path / "bad.yaml"
    path.mkdir() if content is None else path.write_bytes(content)
    said = stable(refusal(ConfigError, lambda: load_yaml(path)), tmp_path)
    words = r"(\.yaml|line \d+): (?!line).*(?=: accepted: one YAML)"
    assert re.sub(words, r"\1: <the parser's words>", said) == snapshot
