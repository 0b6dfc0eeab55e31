"""A certificate is never served before it is trusted, whichever replica does what and when."""

import itertools
import random
from dataclasses import dataclass, replace

import pytest
from cryptography import x509

from slacktide.agents.cluster.certificates import (
    CertificateError,
    Held,
    Pair,
    Terms,
    held_of,
    made,
    read,
    secret_data,
    turned,
)
from testbed.vectors import each_row

NAMES = frozenset({"slacktide-webhook.slacktide-system.svc", "127.0.0.1"})
TERMS = Terms(names=NAMES, life_ms=900_000, settle_ms=60_000)
T0 = 1_763_712_000_000
HEARD_MS = 10_000
"""So late may an API server be."""


def pairs(start_ms: int = T0):
    """A maker of pairs that are told apart by a number; the clock is set by ``at``."""
    numbers = itertools.count(1)
    now = {"ms": start_ms}

    def make() -> Pair:
        number = next(numbers)
        return Pair(certificate=b"<%d>" % number, key=b"", until_ms=now["ms"] + TERMS.life_ms, names=NAMES)

    return make, now


def test_a_turn_from_its_first_step_to_its_last() -> None:
    make, now = pairs()
    first = turned(None, TERMS, make, trusted=False, now_ms=T0)
    assert (first.served.certificate, first.bundle) == (b"<1>", b"<1>")

    early = T0 + 599_999
    assert turned(first, TERMS, make, trusted=True, now_ms=early) is first

    now["ms"] = due = T0 + 600_000
    second = turned(first, TERMS, make, trusted=True, now_ms=due)
    assert (second.served.certificate, second.bundle) == (b"<1>", b"<1><2>")
    assert turned(second, TERMS, make, trusted=False, now_ms=due) is second

    known = turned(second, TERMS, make, trusted=True, now_ms=due)
    assert known.trusted_ms == due
    assert turned(known, TERMS, make, trusted=True, now_ms=due + 59_999) is known

    last = turned(known, TERMS, make, trusted=True, now_ms=due + 60_000)
    assert (last.served.certificate, last.bundle, last.following) == (b"<2>", b"<1><2>", None)


def test_trust_that_is_lost_on_the_way_is_waited_for_anew() -> None:
    make, _ = pairs()
    held = replace(Held(served=make(), following=make()), trusted_ms=T0)

    assert turned(held, TERMS, make, trusted=False, now_ms=T0 + 60_000).trusted_ms is None


def test_one_that_has_run_out_is_replaced_at_once() -> None:
    """By the one that is trusted already, where there is one that is still good."""
    make, now = pairs()
    alone = Held(served=make())
    now["ms"] = T0 + 600_000
    followed = replace(alone, following=make())
    late = T0 + 900_000

    assert turned(alone, TERMS, make, trusted=True, now_ms=late).bundle == b"<3>"
    assert turned(followed, TERMS, make, trusted=True, now_ms=late).served.certificate == b"<2>"
    assert turned(followed, TERMS, make, trusted=True, now_ms=late).bundle == followed.bundle
    assert turned(followed, TERMS, make, trusted=True, now_ms=T0 + 1_500_000).bundle == b"<4>"


def test_another_name_is_a_reason_to_turn() -> None:
    make, _ = pairs()
    held = Held(served=replace(make(), names=frozenset({"old"})))

    assert turned(held, TERMS, make, trusted=True, now_ms=T0).following is not None


@dataclass
class Replica:
    """It sees the Secret when it looks, and serves what it saw last."""

    served: Pair


@pytest.mark.parametrize("seed", range(20))
def test_whatever_replicas_do_each_serves_what_every_api_server_trusts(seed: int) -> None:
    """API servers hear of a change late; a replica may see the configurations and not get to write."""
    dice = random.Random(seed)
    looks = [(dice.randrange(3), dice.randrange(100, 30_000), dice.random() < 0.5) for _ in range(500)]
    make, now = pairs()
    secret = turned(None, TERMS, make, trusted=False, now_ms=T0)
    told = [(T0 - HEARD_MS, secret.bundle)]
    replicas = [Replica(served=secret.served) for _ in range(3)]
    served: set[bytes] = set()
    for which, pause_ms, writes in looks:
        now["ms"] += pause_ms
        if secret.bundle != told[-1][1]:
            told.append((now["ms"], secret.bundle))
        after = turned(secret, TERMS, make, trusted=True, now_ms=now["ms"])
        secret = after if writes else secret
        replicas[which].served = secret.served
        served.add(secret.served.certificate)
        late_ms = now["ms"] - HEARD_MS
        trusted = [max(told, key=lambda one: one[0] if one[0] <= late_ms else 0)[1]]
        trusted += [bundle for at, bundle in told if at > late_ms]
        assert all(replica.served.certificate in bundle for bundle in trusted for replica in replicas)
    assert len(served) > 5, "it turned, again and again"


def test_what_is_held_comes_back_out_of_the_secret() -> None:
    one, two, old = (made(NAMES, common_name="a", now_ms=T0, life_ms=900_000) for _ in range(3))
    held = Held(served=one, following=two, trusted_ms=T0, retired=old.certificate)
    data = secret_data(held)

    assert held_of({name: text for name, text in data.items() if text is not None}) == held
    assert secret_data(Held(served=one))["next.key"] is None, "a merge removes it"
    assert read(one.certificate, one.key) == one
    assert one.until_ms == T0 + 900_000


@each_row("data", "said")
def test_a_secret_of_another_shape_is_refused(data: dict[str, str], said: str) -> None:
    with pytest.raises(CertificateError, match=said):
        held_of(data)


def test_a_certificate_with_another_ones_key_is_refused() -> None:
    one, two = (made(NAMES, common_name="a", now_ms=T0, life_ms=900_000) for _ in range(2))

    with pytest.raises(CertificateError, match="do not match"):
        read(one.certificate, two.key)


def test_no_two_certificates_have_the_same_name() -> None:
    """OpenSSL finds an issuer by its name, and would take the one for the other."""
    one, two = (made(NAMES, common_name="a", now_ms=T0, life_ms=900_000) for _ in range(2))

    assert x509.load_pem_x509_certificate(one.certificate).subject != (
        x509.load_pem_x509_certificate(two.certificate).subject
    )
