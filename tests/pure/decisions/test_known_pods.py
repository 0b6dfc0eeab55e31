"""Pod lists that are kept, by the ten thousand."""

import msgspec
import pytest

from slacktide.schemas.errors import BadMessageError
from slacktide.schemas.inventory import Container, Pod, Resources
from slacktide.schemas.metric import Use
from slacktide.streams.decisions.known_pods import KnownPods, known


def _pods(*names: str) -> list[Pod]:
    requests = Resources(cpu_milli=500, mem_bytes=1 << 30)
    return [
        Pod(uid=f"u-{name}", namespace="shop", name=name, qos_label="LS", kube_qos="Burstable", requests=requests)
        for name in names
    ]


def _written(pods: list[Pod]) -> bytes:
    return msgspec.json.encode(pods)


def test_a_packed_list_holds_what_was_read() -> None:
    pods = _pods("a", "b", "c")
    packed = KnownPods.packed(_written(pods))
    assert list(packed) == pods
    assert (len(packed), packed[1]) == (3, pods[1])


def test_a_packed_list_is_written_as_it_was_read() -> None:
    other_order = b'{"name":"x","uid":"u-x","namespace":"shop"}'
    spaced = b'{"uid":"u-y","namespace":"shop","name":"y" , "phase":"Running" }'
    escaped = rb'{"uid":"u-z","namespace":"shop","name":"z"}'
    one = _written(_pods("a"))[1:-1]
    assert KnownPods.packed(b"[ " + b" ,\n".join([one, other_order, spaced, escaped]) + b" ]").raw == (
        b"[" + b",".join([one, other_order, spaced, escaped]) + b"]"
    )


def test_what_pods_of_a_workload_have_in_common_is_in_memory_once() -> None:
    one, other = KnownPods.packed(_written(_pods("a", "b"))), KnownPods.packed(_written(_pods("c")))
    assert len({id(pod.kind) for pod in (*one.written(), *other.written())}) == 1


def test_pods_that_differ_in_the_ids_of_their_containers_share_the_rest() -> None:
    pods = [
        msgspec.structs.replace(pod, containers=[Container(name=name, id=mark * 64) for name in ("main", "side")])
        for pod, mark in zip(_pods("a", "b"), "0f", strict=True)
    ]
    packed = KnownPods.packed(_written(pods))
    assert packed.raw == _written(pods)
    assert list(packed) == pods
    assert len({id(pod.kind) for pod in packed.written()}) == 1


def test_what_follows_from_a_list_is_the_same_packed_or_not() -> None:
    pods = [*_pods("a", "b"), Pod(uid="u-c", namespace="batch", name="c", qos_label="BE")]
    packed, listed = KnownPods.packed(_written(pods)), known(pods)
    assert [pod.name for pod in packed.by_uid.values()] == [pod.name for pod in listed.by_uid.values()]
    for name in ("best_effort", "live", "there", "asked", "prod_request", "high"):
        assert getattr(packed, name) == getattr(listed, name)


def test_no_pods_are_refused_by_name() -> None:
    with pytest.raises(BadMessageError, match=r"pods.*uid"):
        KnownPods.packed(b'[{"uid": 5}]')


def test_a_list_that_is_known_is_not_looked_at_again() -> None:
    pods = KnownPods(_pods("a"))
    assert known(pods) is pods


def test_a_uid_is_in_memory_once() -> None:
    pods = KnownPods.packed(_written(_pods("a")))
    (uid,) = pods.by_uid
    assert uid is pods.by_uid[uid].name.uid
    assert uid is pods.high.uids[0]
    assert uid is next(iter(pods.live))


def test_what_has_ended_is_not_there_and_what_is_unknown_holds_no_request() -> None:
    running, unknown, ended = _pods("a", "b", "c")
    pods = KnownPods(
        [running, msgspec.structs.replace(unknown, phase="Unknown"), msgspec.structs.replace(ended, phase="Failed")]
    )
    assert (pods.live, pods.there) == ({"u-a"}, {"u-a", "u-b"})


def test_more_than_any_machine_has_is_still_added_up() -> None:
    pod = msgspec.structs.replace(_pods("a")[0], requests=Resources(cpu_milli=2**70, mem_bytes=1))
    assert KnownPods([pod]).prod_request == Use(cpu_milli=2**70, mem_bytes=1)
    assert list(KnownPods([pod]).high.cpu_milli) == [2**70]
