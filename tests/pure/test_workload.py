"""What a part that ends makes of an API server's answer about its own DaemonSet or Deployment."""

from slacktide.agents.workload import is_removed, path_of, standing
from testbed.vectors import each_row


@each_row("status", "body", "expected")
def test_an_answer_shows_how_the_workload_stands(status: int, body: bytes, expected: str) -> None:
    assert standing(status, body) == expected


def test_a_part_is_removed_with_its_workload_and_with_nothing_else() -> None:
    assert [is_removed(one, was_there=True) for one in ("there", "deleted", "refused", "unknown")] == [
        False, True, True, False,
    ]  # fmt: skip


def test_a_refusal_of_an_account_that_never_had_the_right_is_no_removal() -> None:
    assert not is_removed("refused", was_there=False)
    assert is_removed("deleted", was_there=False)


def test_a_workload_lies_in_its_namespace() -> None:
    assert path_of("daemonsets", "ns/agent") == "/apis/apps/v1/namespaces/ns/daemonsets/agent"
