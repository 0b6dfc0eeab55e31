"""Devices by zone, from the kubelet's checkpoint and its podresources API: whole, torn, and unanswered."""

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from slacktide.agents.node.zones.reading import METHOD, SOCKET, ZonesReader, allocatable_resources
from slacktide.agents.node.zones.record import DEVICE_STATE, held_devices, zoned_devices
from slacktide.schemas.errors import ZonesError
from slacktide.schemas.zones import BoundPod
from testbed.podresources import (
    DATA,
    END_STREAM,
    HEADERS,
    PING,
    SERVERS,
    answered,
    checkpoint,
    device,
    field,
    frame,
    kubelet_socket,
)
from testbed.zone_tree import Tree, two_zones

A, B = "example.com/deviceA", "example.com/deviceB"
DEVICES = device(A, "a0", 0) + device(A, "a1", 1) + device(B, "b0", 1) + device(B, "far") + device(B, "both", 0, 1)
CPUS = field(2, b"\x00\x01\x02")
"""Allocatable CPUs, which the same answer has."""


@pytest.fixture
def tree() -> Iterator[Tree]:
    """In a folder of a short name: a socket's has 107 characters at most."""
    with tempfile.TemporaryDirectory() as folder:
        tree = two_zones(Path(folder))
        (tree.kubelet / DEVICE_STATE).parent.mkdir()
        yield tree


def holds(tree: Tree, **held: dict[str, dict[int, list[str]]]) -> None:
    (tree.kubelet / DEVICE_STATE).write_text(checkpoint(held))


def free(tree: Tree, *uids: str) -> list[dict[str, int]]:
    return [zone.available.devices for zone in tree.record(*uids).zones]


def test_devices_are_by_zone_and_those_that_pods_hold_are_not_available(tree: Tree) -> None:
    holds(tree, p={A: {0: ["a0"]}, B: {-1: ["far"]}}, q={B: {0: ["both"], 1: ["both"]}})
    with kubelet_socket(tree.kubelet / SOCKET, answered(DEVICES + CPUS)):
        record = tree.record("p", "q")

    assert record.missing == []
    assert [zone.allocatable.devices for zone in record.zones] == [{A: 1, B: 1}, {A: 1, B: 2}]
    assert [zone.available.devices for zone in record.zones] == [{A: 0, B: 0}, {A: 1, B: 1}]
    assert record.pods == [BoundPod(uid="p", zones=[0]), BoundPod(uid="q", zones=[0, 1])]


def test_a_node_without_device_plugins_asks_nobody(tree: Tree) -> None:
    record = tree.record()
    assert record.missing == []
    assert [zone.available.devices for zone in record.zones] == [{}, {}]


def test_the_kubelet_is_asked_again_when_its_checkpoint_changes_and_not_before(tree: Tree) -> None:
    reader = ZonesReader(tree.sys, tree.kubelet)
    holds(tree)
    with kubelet_socket(tree.kubelet / SOCKET, answered(DEVICES)) as asked:
        reads = [reader.read(), reader.read()]
        holds(tree, p={A: {0: ["a0"]}})
        reads.append(reader.read())

    assert len(asked) == 2
    assert METHOD in asked[0]
    assert [list(read.devices.held) for read in reads if read.devices] == [[], [], ["p"]]


def test_a_kubelet_that_does_not_answer_is_named_asked_again_and_costs_no_zone(tree: Tree) -> None:
    reader = ZonesReader(tree.sys, tree.kubelet)
    holds(tree)
    before = reader.read()
    with kubelet_socket(tree.kubelet / SOCKET, answered(DEVICES)):
        after = reader.read()

    assert [(one.what, one.why) for one in before.missing] == [
        ("devices", f"{tree.kubelet / SOCKET}: No such file or directory")
    ]
    assert len(before.zones) == 2
    assert after.missing == []


@pytest.mark.parametrize(
    "text", ['{"Data":{"PodDeviceEntries":[{"PodUID":"p"', "", "[]", '{"Data":{},"Checksum":1}', '{"Data":{"x":1}}']
)
def test_a_torn_checkpoint_is_named_and_costs_no_zone(tree: Tree, text: str) -> None:
    (tree.kubelet / DEVICE_STATE).write_text(text)
    record = tree.record()

    assert [one.what for one in record.missing] == ["devices"]
    assert DEVICE_STATE in record.missing[0].why
    assert len(record.zones) == 2


def test_a_checkpoint_that_names_nobody_holds_nothing() -> None:
    assert held_devices(checkpoint({}).encode()) == {}


def test_containers_of_a_pod_hold_its_devices_together() -> None:
    one = checkpoint({"p": {A: {0: ["a0"]}}})
    entry = {"PodUID": "p", "ResourceName": A, "DeviceIDs": {"1": ["a1"]}}
    two = one.replace("}]", f"}}, {json.dumps(entry)}]")
    assert held_devices(two.encode()) == {"p": {A: {"a0", "a1"}}}


@pytest.mark.parametrize(
    "torn",
    [
        DEVICES[:-1],
        field(1, b""),
        field(1, field(1, b"\xff") + field(3, field(1, b""))),
        device(A, "a", 1024),
        b"\x0b",
        b"\x80",
        b"\x09\x00",
    ],
)
def test_a_torn_message_of_devices_is_refused(torn: bytes) -> None:
    with pytest.raises(ZonesError, match="podresources API"):
        zoned_devices(torn)


def test_fields_that_are_not_known_are_passed_over() -> None:
    known = device(A, "a0", 0)
    unknown = b"\x21" + bytes(8) + b"\x2d" + bytes(4) + b"\x30\x96\x01" + field(7, b"x")
    assert zoned_devices(unknown + known) == {0: {A: {"a0"}}}


@pytest.mark.parametrize(
    "sent",
    [
        answered(DEVICES, size=7),
        SERVERS + frame(PING, bytes(8), stream=0) + answered(DEVICES),
        answered(DEVICES).replace(frame(HEADERS, b"\x88", 4 | END_STREAM), frame(DATA, b"\x02..", 8 | END_STREAM)),
    ],
)
def test_an_answer_is_put_together_from_its_frames(tmp_path: Path, sent: bytes) -> None:
    with kubelet_socket(tmp_path / "s", sent):
        assert allocatable_resources(tmp_path / "s") == DEVICES


@pytest.mark.parametrize(
    ("sent", "why"),
    [
        (b"", "the kubelet closed the connection"),
        (answered(DEVICES)[:-3], "the kubelet closed the connection"),
        (SERVERS + frame(HEADERS, b"\x88", 4 | END_STREAM), "answered the call with an error"),
        (SERVERS + frame(3, bytes(4)), "the kubelet ended the call"),
        (SERVERS + frame(7, bytes(8), stream=0), "the kubelet ended the call"),
        (SERVERS + frame(DATA, b"\x00\x00\x00\x00\x09abc", END_STREAM), "an incomplete answer"),
        (SERVERS + frame(DATA, b"\x01\x00\x00\x00\x00", END_STREAM), "an incomplete answer"),
    ],
)
def test_a_call_that_fails_names_the_socket_and_why(tmp_path: Path, sent: bytes, why: str) -> None:
    with kubelet_socket(tmp_path / "s", sent), pytest.raises(ZonesError, match=why) as refused:
        allocatable_resources(tmp_path / "s")
    assert refused.value.where == str(tmp_path / "s")
