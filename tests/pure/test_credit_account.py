"""What an agent may evict, by the leases that it has heard of."""

from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from slacktide.agents.credit_account import CreditAccount
from slacktide.schemas.credit import EvictionCredit
from testbed.scenarios import run, scenarios

BOOT, OTHER_BOOT = "000000000002-a", "000000000001-a"
S = 1_000_000_000


def lease(granted: int = 1, **of: Any) -> EvictionCredit:
    known = {"node": "node-1", "boot_id": BOOT, "epoch": 1, "number": 1, "ttl_ms": 30_000}
    return EvictionCredit(**known | {"granted": granted} | of)


class Account:
    """A node's credit account, in seconds."""

    def __init__(self) -> None:
        self._account = CreditAccount(BOOT)

    def lease(self, at_s: int, granted: int, **of: Any) -> None:
        self._account.receive(lease(granted, **of), since_ns=at_s * S)

    def ready(self, at_s: float, *namespaces: str) -> list[bool]:
        return [self._account.ready(int(at_s * S), name) for name in namespaces or ["batch"]]

    def spend(self, at_s: int) -> None:
        self._account.spend(at_s * S)

    def log_is(self, at_s: int, *, away: bool) -> None:
        self._account.log_is(away=away, now_ns=at_s * S)

    def reserve(self, at_s: int) -> None:
        self._account.reserve(at_s * S)

    def settle(self, *, goes: bool) -> None:
        self._account.settle(goes=goes)

    def stands(self) -> dict[str, int]:
        return {"spent": self._account.spent, "epoch": self._account.epoch}


@scenarios("credit_account")
def test_credit_account(case: dict[str, Any]) -> None:
    run(case, Account)


@given(
    st.lists(
        st.tuples(st.integers(1, 3), st.integers(0, 5), st.integers(0, 5), st.sampled_from([BOOT, OTHER_BOOT])),
        max_size=20,
    )
)
def test_in_any_order_of_leases_only_the_newest_total_counts(said: list[tuple[int, int, int, str]]) -> None:
    """As if it had been heard alone: totals, not differences."""
    credit_account, alone = CreditAccount(BOOT), CreditAccount(BOOT)
    heard = [lease(granted, epoch=epoch, number=number, boot_id=boot) for epoch, number, granted, boot in said]
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
