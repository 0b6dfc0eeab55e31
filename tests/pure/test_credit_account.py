"""What an agent may evict, by the leases that it has heard of."""

from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from slacktide.agents.credit_account import CreditAccount
from slacktide.schemas.credit import EvictionCredit

BOOT, OTHER_BOOT = "000000000002-a", "000000000001-a"
S = 1_000_000_000


def lease(granted: int = 1, *, epoch: int = 1, number: int = 1, boot: str = BOOT, spared: tuple[str, ...] = ()):
    return EvictionCredit(
        node="node-1",
        boot_id=boot,
        epoch=epoch,
        number=number,
        granted=granted,
        ttl_ms=30_000,
        spared_namespaces=list(spared),
    )


def test_it_is_good_for_what_was_granted_and_not_yet_spent() -> None:
    credit_account = CreditAccount(BOOT)
    assert not credit_account.ready(0, "batch")
    credit_account.receive(lease(2), since_ns=0)
    spent = 0
    while credit_account.ready(5 * S, "batch"):
        credit_account.spend(5 * S)
        spent += 1
    credit_account.receive(lease(2, number=2), since_ns=6 * S)

    assert spent == credit_account.spent == 2
    assert not credit_account.ready(7 * S, "batch"), "a total grants nothing twice"
    credit_account.receive(lease(3, number=3), since_ns=7 * S)
    assert credit_account.ready(8 * S, "batch")


def test_evictions_that_a_governor_heard_of_and_that_nobody_made_are_no_credit() -> None:
    """One outcome with a wrong count, and the next lease would else be good for all of them."""
    credit_account = CreditAccount(BOOT)
    credit_account.spend(0)
    credit_account.receive(msgspec.structs.replace(lease(1_000_001), spent=1_000_000), since_ns=0)
    credit_account.spend(1 * S)

    assert not credit_account.ready(1 * S, "batch")


def test_its_time_counts_from_when_it_had_not_come_yet() -> None:
    credit_account = CreditAccount(BOOT)
    credit_account.receive(lease(), since_ns=10 * S)

    assert credit_account.ready(40 * S - 1, "batch")
    assert not credit_account.ready(40 * S, "batch")


def test_repeated_and_older_leases_of_an_earlier_governor_or_another_boot_change_nothing() -> None:
    credit_account = CreditAccount(BOOT)
    credit_account.receive(lease(1, epoch=2, number=5), since_ns=0)
    for late in (
        lease(1, epoch=2, number=5),
        lease(9, epoch=2, number=4),
        lease(9, epoch=1, number=99),
        lease(9, epoch=2, number=6, boot=OTHER_BOOT),
    ):
        credit_account.receive(late, since_ns=29 * S)
    credit_account.spend(29 * S)

    assert (credit_account.spent, credit_account.epoch) == (1, 2)
    assert not credit_account.ready(29 * S, "batch")


def test_spared_namespaces_keep_their_pods() -> None:
    credit_account = CreditAccount(BOOT)
    credit_account.receive(lease(spared=("spark",)), since_ns=0)

    assert [credit_account.ready(S, name) for name in ("spark", "flink")] == [False, True]


def test_with_the_log_away_a_lease_stays_good_for_one_eviction() -> None:
    credit_account = CreditAccount(BOOT)
    credit_account.receive(lease(3), since_ns=0)
    credit_account.log_is(away=True, now_ns=20 * S)
    credit_account.log_is(away=True, now_ns=31 * S)
    assert credit_account.ready(600 * S, "batch")
    credit_account.spend(600 * S)

    assert not credit_account.ready(601 * S, "batch")


def test_what_was_over_before_the_log_went_away_or_spent_or_is_over_when_it_is_back_stays_over() -> None:
    over, spent, back = CreditAccount(BOOT), CreditAccount(BOOT), CreditAccount(BOOT)
    for credit_account in (over, spent, back):
        credit_account.receive(lease(), since_ns=0)
    spent.spend(S)
    for credit_account, away_ns in ((over, 30 * S), (spent, 20 * S), (back, 20 * S)):
        credit_account.log_is(away=True, now_ns=away_ns)
    back.log_is(away=False, now_ns=50 * S)
    back.log_is(away=True, now_ns=51 * S)

    assert [credit_account.ready(60 * S, "batch") for credit_account in (over, spent, back)] == [False, False, False]


@given(
    st.lists(
        st.tuples(st.integers(1, 3), st.integers(0, 5), st.integers(0, 5), st.sampled_from([BOOT, OTHER_BOOT])),
        max_size=20,
    )
)
def test_in_any_order_of_leases_only_the_newest_total_counts(said: list[tuple[int, int, int, str]]) -> None:
    """As if it had been heard alone: totals, not differences."""
    credit_account, alone = CreditAccount(BOOT), CreditAccount(BOOT)
    heard = [lease(granted, epoch=epoch, number=number, boot=boot) for epoch, number, granted, boot in said]
    for one in heard:
        credit_account.receive(one, since_ns=0)
    mine = []
    for one in heard:
        if all((one.epoch, one.number) > (before.epoch, before.number) for before in mine):
            mine.append(one)
    for one in [one for one in mine if one.boot_id == BOOT][-1:]:
        alone.receive(msgspec.structs.replace(one), since_ns=0)
    for each in (credit_account, alone):
        while each.ready(S, "batch"):
            each.spend(S)

    assert credit_account.spent == alone.spent


def test_credit_that_is_reserved_is_nobody_elses_and_is_told_of_only_once_it_is_spent() -> None:
    credit_account = CreditAccount(BOOT)
    credit_account.receive(lease(1), since_ns=0)
    credit_account.reserve(S)
    assert (credit_account.ready(S, "batch"), credit_account.spent) == (False, 0)
    credit_account.settle(goes=False)
    assert (credit_account.ready(S, "batch"), credit_account.spent) == (True, 0)
    credit_account.reserve(S)
    credit_account.settle(goes=True)

    assert (credit_account.ready(S, "batch"), credit_account.spent) == (False, 1)
