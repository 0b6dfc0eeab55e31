"""The audit's file: whoever changes, removes, inserts or moves a line is found, and the line is named."""

import hashlib
import json
from pathlib import Path

from click.testing import CliRunner
from hypothesis import assume, given
from hypothesis import strategies as st

from slacktide.deploy.cli.main import cli
from slacktide.streams.analysis.audit.chain import Chain, Fault, Verified, verify

BODIES = st.lists(st.dictionaries(st.text(max_size=5), st.integers() | st.text(max_size=8), max_size=3), max_size=8)


def exported(bodies: list[dict]) -> list[bytes]:
    chain = Chain()
    return [chain.first(since_ms=1), *(chain.line(body=body) for body in bodies), chain.last()]


def faults(lines: list[bytes]) -> list[int]:
    """Their lines; a file is read by its newlines, however it was written."""
    return [fault.line for fault in verify(b"".join(lines).splitlines(keepends=True)).faults]


@given(BODIES)
def test_what_was_not_changed_has_no_fault_and_its_hash_stands_for_all_of_it(bodies: list[dict]) -> None:
    lines = exported(bodies)

    assert verify(lines) == Verified(lines=len(bodies) + 2, hash=json.loads(lines[-1])["hash"], faults=[])
    assert [json.loads(line)["body"] for line in lines[1:-1]] == bodies


@given(BODIES, st.data())
def test_any_changed_byte_is_found_in_its_line(bodies: list[dict], data: st.DataObject) -> None:
    lines = exported(bodies)
    at = data.draw(st.integers(0, len(lines) - 1))
    byte = data.draw(st.integers(0, len(lines[at]) - 2))  # the newline: below
    other = data.draw(st.integers(0, 255).filter(lambda one: one not in {lines[at][byte], *b"\n\r"}))
    lines[at] = lines[at][:byte] + bytes([other]) + lines[at][byte + 1 :]

    assert verify(lines).faults[0].line == at + 1


@given(BODIES, st.data())
def test_removed_lines_are_found_where_they_were(bodies: list[dict], data: st.DataObject) -> None:
    lines = exported(bodies)
    at = data.draw(st.integers(0, len(lines) - 1))
    until = data.draw(st.integers(at + 1, len(lines)))
    assume(until - at < len(lines))
    del lines[at:until]

    assert faults(lines) == [at + 1]


def test_an_empty_file_and_one_of_other_lines_are_no_exports() -> None:
    assert verify([]).faults == [Fault(line=1, what="is missing: the file is empty")]
    assert faults([b"{}\n", b"\xff\n"]) == [1, 2, 3]
    assert verify([Chain().line(body={})]).faults[0].line == 1, "it begins as no export does"


@given(BODIES, st.data())
def test_an_inserted_line_is_found_though_its_own_hash_is_right(bodies: list[dict], data: st.DataObject) -> None:
    lines = exported(bodies)
    at = data.draw(st.integers(1, len(lines) - 1))
    before = json.loads(lines[at - 1])
    forged = Chain()
    forged.number, forged.hash = before["number"], before["hash"]
    lines.insert(at, forged.line(body={"forged": True}))

    assert faults(lines) == [at + 2], "the line behind it follows another one"


@given(BODIES, st.data())
def test_a_line_that_stands_twice_is_found(bodies: list[dict], data: st.DataObject) -> None:
    lines = exported(bodies)
    copied, at = (data.draw(st.integers(0, len(lines) - 1)), data.draw(st.integers(0, len(lines))))
    lines.insert(at, lines[copied])

    again = at + 1 if at > copied else at + 2 if at == copied else at + 1
    assert again in faults(lines)


@given(BODIES, st.data())
def test_lines_that_changed_places_are_both_found(bodies: list[dict], data: st.DataObject) -> None:
    lines = exported(bodies)
    one, other = sorted(data.draw(st.lists(st.integers(0, len(lines) - 1), min_size=2, max_size=2, unique=True)))
    lines[one], lines[other] = lines[other], lines[one]

    found = faults(lines)
    assert found[0] == one + 1
    assert other + 1 in found


@given(BODIES)
def test_a_cut_newline_is_found(bodies: list[dict]) -> None:
    lines = exported(bodies)

    assert faults([*lines[:-1], lines[-1].removesuffix(b"\n")]) == [len(lines)]


@given(BODIES, st.data())
def test_a_chain_that_was_computed_anew_has_another_hash(bodies: list[dict], data: st.DataObject) -> None:
    assume(bodies)
    at = data.draw(st.integers(0, len(bodies) - 1))
    forged = [*bodies[:at], {"forged": True}, *bodies[at + 1 :]]
    assume(forged != bodies)

    assert verify(exported(forged)).faults == []
    assert verify(exported(forged)).hash != verify(exported(bodies)).hash


def test_any_tool_can_recompute_a_hash() -> None:
    first, second = exported([])

    text, _, digest = second.partition(b',"hash":"')
    assert hashlib.sha256(text).hexdigest().encode() == digest.removesuffix(b'"}\n')
    assert json.loads(second)["previous"] == json.loads(first)["hash"]


def test_a_file_of_another_kind_is_one_error(tmp_path: Path) -> None:
    """And not one for each of its lines."""
    file = tmp_path / "day.jsonl"
    file.write_text('{"node":"a"}\n' * 3)
    result = CliRunner().invoke(cli, ["audit", "verify", str(file)])

    assert result.exit_code == 1
    assert result.output == (
        f"Error: {file}: none of its 3 lines is from an audit export; give a file that slacktide audit export wrote\n"
    )
