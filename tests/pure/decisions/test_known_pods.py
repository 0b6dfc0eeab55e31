"""Pod lists that are kept one beside the other."""

from __future__ import annotations

import msgspec

from slacktide.schemas.inventory import Pod
from slacktide.streams.decisions.known_pods import KnownPods, sharing


def _read(*names: str) -> list[Pod]:
    """As they come out of a sample: each word is a text of its own."""
    pods = [Pod(uid=f"u-{name}", namespace="shop", name=name, qos_label="LS", kube_qos="Burstable") for name in names]
    return msgspec.json.decode(msgspec.json.encode(pods), type=list[Pod])


def test_a_list_holds_what_was_read_whatever_it_shares() -> None:
    pods = _read("a", "b", "c")
    assert sharing(pods, _read("b", "x")) == pods


def test_a_pod_that_stays_as_it_was_is_in_memory_once() -> None:
    before = KnownPods(_read("a", "b"))
    stays, changed, new = sharing(
        [*_read("a"), msgspec.structs.replace(before[1], phase="Failed"), *_read("c")], before
    )

    assert stays is before[0]
    assert changed.phase == "Failed"
    assert new.name == "c"


def test_pods_say_the_same_word_by_the_same_text() -> None:
    one, other = sharing(_read("a", "b"), ())

    assert one.namespace is other.namespace
    assert one.kube_qos is other.kube_qos
    assert one.qos_label is other.qos_label


def test_what_holds_its_request_and_what_has_not_ended_are_one_set_where_they_are_equal() -> None:
    pods = KnownPods(_read("a", "b"))
    assert pods.there is pods.live
    mixed = KnownPods([msgspec.structs.replace(pods[0], phase="Unknown"), pods[1]])
    assert (mixed.live, mixed.there) == ({"u-b"}, {"u-a", "u-b"})
