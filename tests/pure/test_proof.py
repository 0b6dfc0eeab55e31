"""What a node-bound proof covers, and who can make one."""

import hashlib
import hmac

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slacktide.schemas.proof import HEADER, NODES_MAX, ClusterKey, ProofKeyError, Verifier, node_key
from slacktide.schemas.topics import BACKFILL, OUTCOME, SAMPLE
from testbed.proofs import LATER_S, cluster_key, key_of

NOW_MS = (LATER_S - 60) * 1_000
BODY = b'{"node":"node-1","boot_id":"000000000001-a","seq":7}'
TOPIC = SAMPLE.name
names = st.text(min_size=1, max_size=20)


def check(verifier: Verifier, text: bytes, *, topic: str = TOPIC, key: bytes = b"node-1", body: bytes = BODY) -> str:
    return verifier.check(topic, key, body, [("ce_id", b"1"), (HEADER, text)], NOW_MS)


def proof(body: bytes = BODY, **named: object) -> bytes:
    return key_of(**named).header(TOPIC, body)[1]  # type: ignore[arg-type]


@given(names, st.binary(max_size=4_000), st.sampled_from([SAMPLE, BACKFILL, OUTCOME]))
def test_what_a_node_signs_is_its_own(node: str, body: bytes, topic) -> None:
    headers = (("ce_id", b"1"), key_of(node).header(topic.name, body))
    verifier = Verifier([cluster_key()])
    for _ in range(2):  # the second time its key is known
        assert verifier.check(topic.name, node.encode(), body, headers, NOW_MS) == "ok"
        assert verifier.check(topic.name, node.encode(), body, list(headers), NOW_MS) == "ok"


@given(st.data())
def test_any_change_of_the_record_is_seen(data: st.DataObject) -> None:
    """Of the body, the key, the topic, or any byte of the proof itself."""
    verifier = Verifier([cluster_key()])
    if data.draw(st.booleans()):
        assert check(verifier, proof()) == "ok"
    what = data.draw(st.sampled_from(["body", "key", "topic", "proof"]))
    changed = {"body": BODY, "key": b"node-1", "topic": TOPIC.encode(), "proof": proof()}
    text = changed[what]
    place = data.draw(st.integers(0, len(text) - 1))
    other = data.draw(st.integers(0, 127).filter(lambda byte: byte != text[place]))
    changed[what] = text[:place] + bytes([other]) + text[place + 1 :]
    topic = changed["topic"].decode()
    assert check(verifier, changed["proof"], topic=topic, key=changed["key"], body=changed["body"]) not in ("", "ok")


@given(st.binary(max_size=10), st.binary(max_size=10), st.binary(max_size=10))
def test_no_field_can_lend_bytes_to_the_next(one: bytes, two: bytes, three: bytes) -> None:
    key = node_key(cluster_key(), (one + two).hex(), LATER_S)
    signed = key.header("t", two + three)[1]
    assert key.header("t" + "t", three)[1] != signed
    assert node_key(cluster_key(), one.hex() + "0", LATER_S).secret != key.secret


def test_another_node_of_the_same_cluster_is_refused() -> None:
    """It has a good key of its own, and the Kafka credential that all agents share."""
    assert check(Verifier([cluster_key()]), key_of("node-2").header(TOPIC, BODY)[1]) == "forged"


def test_an_expiry_cannot_be_moved() -> None:
    text = proof()
    later = text.replace(str(LATER_S).encode(), str(LATER_S + 86_400).encode())
    assert check(Verifier([cluster_key()]), later) == "forged"


def test_expiry_is_judged_by_append_time() -> None:
    verifier = Verifier([cluster_key()])
    headers = [(HEADER, proof())]
    assert verifier.check(TOPIC, b"node-1", BODY, headers, LATER_S * 1_000 - 1) == "ok"
    assert verifier.check(TOPIC, b"node-1", BODY, headers, LATER_S * 1_000) == "expired"


def test_a_forged_proof_is_called_forged_although_it_would_have_expired() -> None:
    text = proof()[:-1] + (b"0" if proof()[-1:] != b"0" else b"1")
    assert Verifier([cluster_key()]).check(TOPIC, b"node-1", BODY, [(HEADER, text)], LATER_S * 2_000) == "forged"


def test_the_ring_holds_the_key_before_and_no_older_one() -> None:
    first, second, third = (cluster_key(number) for number in (1, 2, 3))
    text = proof(cluster=first)
    verifier = Verifier([first])
    assert check(verifier, text) == "ok"
    verifier.keys([second, first])
    assert check(verifier, text) == "ok"
    assert check(verifier, proof(cluster=second)) == "ok"
    verifier.keys([third, second])
    assert check(verifier, text) == "unknown key"


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"v1",
        b"v2;" + proof()[3:],
        proof()[:-1],
        proof() + b"0",
        b"v1;aaaa;x;" + b"0" * 64,
        b"v1;aaaa;0123;" + b"0" * 64,
        b"v1;aaaa;" + b"9" * 40 + b";" + b"0" * 64,
        b"\xff" * 90,
        b"v1;" + b"a" * 5_000 + b";1;" + b"0" * 64,
    ],
)
def test_what_is_no_proof_is_refused(text: bytes) -> None:
    assert check(Verifier([cluster_key()]), text) in {"malformed", "unknown key", "forged"}


def test_without_a_proof_without_a_body_or_without_a_key() -> None:
    verifier = Verifier([cluster_key()])
    assert verifier.check(TOPIC, b"node-1", BODY, (), NOW_MS) == "absent"
    assert verifier.check(TOPIC, None, BODY, [(HEADER, proof())], NOW_MS) == "malformed"
    assert verifier.check(TOPIC, b"node-1", None, [(HEADER, proof())], NOW_MS) == "malformed"
    assert Verifier().check(TOPIC, b"node-1", BODY, [(HEADER, proof())], NOW_MS) == "unknown key"


def test_what_is_remembered_is_bounded_and_only_of_what_was_right(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("slacktide.schemas.proof.NODES_MAX", 10)
    verifier = Verifier([cluster_key()])
    for number in range(100):
        text = key_of("other").header(TOPIC, BODY)[1]
        assert check(verifier, text, key=f"forged-{number}".encode()) == "forged"
    assert not verifier._known
    for number in range(30):
        text = key_of(f"node-{number}").header(TOPIC, BODY)[1]
        assert check(verifier, text, key=f"node-{number}".encode()) == "ok"
    assert len(verifier._known) == 10
    assert NODES_MAX >= 10_000


def test_it_is_hmac_sha_256_over_fields_with_their_lengths() -> None:
    """Written out once, with nothing of the module, so that another language can make a proof."""

    def fields(*parts: bytes) -> bytes:
        return b"".join(len(part).to_bytes(4, "big") + part for part in parts)

    cluster = bytes([1]) * 32
    key_id = hmac.new(cluster, b"slacktide key id", hashlib.sha256).hexdigest()[:8]
    node = hmac.new(cluster, fields(b"slacktide node key", b"node-1", str(LATER_S).encode()), hashlib.sha256).digest()
    mac = hmac.new(node, fields(TOPIC.encode(), b"node-1") + BODY, hashlib.sha256).hexdigest()
    assert proof() == f"v1;{key_id};{LATER_S};{mac}".encode()


@pytest.mark.parametrize("text", ["", "not base64!", "AAAA", "A" * 40, "é" * 44])
def test_a_short_or_unreadable_cluster_key_is_refused_and_not_repeated(text: str) -> None:
    with pytest.raises(ProofKeyError) as raised:
        ClusterKey.of(text)
    assert not text or text not in str(raised.value)


def test_keys_do_not_show_their_secrets() -> None:
    assert cluster_key().secret.hex() not in repr(cluster_key())
    assert repr(key_of().secret) not in repr(key_of())
