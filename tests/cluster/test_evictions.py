"""Evictions through a real API server: what it grants, what it keeps, and what an agent does while it is away."""

import contextlib
import socket
import ssl
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from slacktide.agents import http
from slacktide.agents.http import Access
from slacktide.agents.node.apiserver import ApiServer as Door
from slacktide.agents.node.evict.eviction_api import EvictionRequest, body_of, path_of, reply_of
from slacktide.streams.decisions.suppress.cpu_suppress_quota import QUOTA_US_MIN
from testbed.cluster.api_server import ApiServer
from testbed.cluster.evicting import EvictingNode, agent_account, events_on
from testbed.cluster.webhook import Webhook, agent_on
from testbed.one_machine import eventually

pytestmark = pytest.mark.cluster


@pytest.fixture
def node(api_server: ApiServer, namespace: str, tmp_path: Path) -> Iterator[EvictingNode]:
    made = EvictingNode(api_server, namespace, tmp_path)
    yield made
    made.close()


@pytest.fixture
def killing(api_server: ApiServer, namespace: str, tmp_path: Path) -> Iterator[EvictingNode]:
    """One whose policy lets it kill while the API server is away."""
    made = EvictingNode(api_server, namespace, tmp_path, memoryEvictFallback="kill")
    yield made
    made.close()


def pod_of(node: EvictingNode, name: str) -> dict:
    return node.server.get(f"/api/v1/namespaces/{node.namespace}/pods/{name}")


def test_a_victim_is_evicted_through_the_api_and_followed_to_its_end(node) -> None:
    uid = node.run("job")
    node.start()
    node.tick(replies=True)
    deleting = pod_of(node, "job")
    (begin,) = node.outcomes(uid)
    dying = node.tick().evict.dying
    node.kubelet()
    node.tick(2_000)
    node.tick()
    _, end = node.outcomes(uid)

    (condition,) = [one for one in deleting["status"]["conditions"] if one["type"] == "DisruptionTarget"]
    assert condition["reason"] == "EvictionByEvictionAPI"
    assert deleting["metadata"]["deletionGracePeriodSeconds"] == 30, "as it asks for itself"
    assert (begin.rule, begin.result, begin.bound) == ("BEMemoryEvict", "applied", "formula")
    assert begin.reason.endswith("through the Eviction API, 30000 ms to end")
    assert (begin.spent.evictions, node.agent.credit_account.spent) == (1, 1)
    assert dying == [uid]
    assert (end.result, end.bound, end.spent) == ("applied", "ended", None)
    assert end.reason == f"gone after {end.terms['after_ms']} ms"
    assert node.spool.interrupted() == []


def test_an_event_on_the_pod_says_rule_threshold_observed_value_and_command(node) -> None:
    uid = node.run("job")
    node.start()
    node.tick(replies=True)
    assert eventually(lambda: events_on(node.server, node.namespace, uid), 60)
    (event,) = events_on(node.server, node.namespace, uid)
    (begin,) = node.outcomes(uid)

    assert (event["type"], event["reason"], event["action"]) == ("Warning", "BEMemoryEvict", "Evict")
    assert event["note"].startswith("62% used, threshold 60%; ")
    assert event["note"].endswith(f"decided by the guard, command {begin.command_id}")
    assert event["reportingInstance"] == node.name
    assert "BEMemoryEvict" in node.server.kubectl("describe", "pod", "job", "-n", node.namespace)


def test_who_asks_for_longer_than_an_agent_grants_gets_what_it_grants(node) -> None:
    node.run("job")
    node.start(grace_ms_max=2_500)
    node.tick(replies=True)

    assert pod_of(node, "job")["metadata"]["deletionGracePeriodSeconds"] == 3


def test_one_that_a_budget_keeps_goes_last_and_costs_no_credit(node) -> None:
    kept, other = node.run("kept"), node.run("other", priority=6_000)
    node.machine.pods["ls"].mem_bytes -= 1 << 30
    node.budget("kept", allowed=0)
    node.start(credit=1)
    node.tick(replies=True)
    (refused,) = node.outcomes(kept)
    sample = node.tick(replies=True)

    assert refused.result == "refused"
    assert "The disruption budget kept needs 1 healthy pods and has 1 currently" in refused.reason
    assert (sample.evict.kept, sample.evict.since_mem_ms) == ([kept], None), "no cool-down: nobody has gone"
    assert node.results(other) == [("applied", "formula")]
    assert node.agent.credit_account.spent == 1
    assert "deletionTimestamp" not in pod_of(node, "kept")["metadata"]


def test_while_a_budget_keeps_all_there_are_they_are_held_back_and_asked_again_later(node) -> None:
    uid = node.run("kept")
    node.budget("kept", allowed=0)
    node.start()
    node.tick(replies=True)
    for _ in range(7):
        node.tick()
    assert node.agent.evicting.throttled
    assert node.agent.evicting.frozen == 1
    path = f"/apis/policy/v1/namespaces/{node.namespace}/poddisruptionbudgets/kept/status"
    node.server.patch(path, {"status": {"disruptionsAllowed": 1}})
    for _ in range(2):
        node.tick()
    node.tick(replies=True)

    assert node.agent.evicting.frozen == 0, "it goes on, to end"
    bounds = [bound for result, bound in node.results(uid) if result == "applied"]
    assert bounds == ["frozen", "thawed", "formula"]


def test_a_server_that_is_overloaded_is_left_alone_as_long_as_it_asks_for(node) -> None:
    """429 without the cause DisruptionBudget is about the server: another victim would fare no better."""
    first, second = node.run("first"), node.run("second", priority=6_000)
    node.start()
    with jammed(node, "first", first):
        node.tick_and_poll()
    (begin,) = node.outcomes(first)
    sample = node.tick(500)
    dammed, spent = [one.reason for one in node.outcomes() if one.result == "refused"], node.agent.credit_account.spent
    throttled = node.agent.evicting.throttled
    node.tick_and_poll()

    assert begin.result == "refused"
    assert begin.reason.startswith("the API server is overloaded: 429 ")
    assert (sample.evict.kept, spent, throttled) == ([], 0, True)
    assert {reason.split(":")[0] for reason in dammed} == {"the API server is overloaded"}
    assert node.results(first)[-1] == ("applied", "formula"), "then it goes"
    assert node.results(second)[-1] == ("refused", "formula"), "of a server in trouble one is asked"


def reply_to(node: EvictingNode, name: str, uid: str):
    """What the server says to the node's agent, but for acting: nobody is to be evicted by this."""
    door = Door(Access(url=node.server.url, token=node.token, ca=node.server.ca))
    request = EvictionRequest(uid=uid, namespace=node.namespace, name=name, grace_s=None)
    try:
        return reply_of(request, door.post(f"{path_of(request)}?dryRun=All", body_of(request)))
    finally:
        door.close()


@contextlib.contextmanager
def jammed(node: EvictingNode, name: str, uid: str) -> Iterator[None]:
    """The API server has one seat for the agent's requests, and on that sits one who never ends his sentence."""
    one_seat(node)
    for _ in range(100):
        with contextlib.closing(unfinished(node)):
            if jam := reply_to(node, name, uid).verdict == "overloaded":
                yield
        if jam:
            break
    else:
        raise AssertionError("the API server has room for all")
    # Whoever sat there is gone; that the seat is free the server may see a little later.
    while reply_to(node, name, uid).verdict == "overloaded":
        time.sleep(0.05)


def unfinished(node: EvictingNode) -> ssl.SSLSocket:
    """A request that stays without its body."""
    context = ssl.create_default_context(cafile=str(node.server.ca))
    plain = socket.create_connection(("127.0.0.1", node.server.port))
    connection = context.wrap_socket(plain, server_hostname="127.0.0.1")
    head = [
        f"POST {path_of(EvictionRequest(uid='', namespace=node.namespace, name='nobody', grace_s=None))} HTTP/1.1",
        "Host: localhost",
        f"Authorization: Bearer {node.account.token}",
        "Content-Type: application/json",
        "Content-Length: 1000",
    ]
    connection.sendall("\r\n".join([*head, "", ""]).encode())
    time.sleep(0.1)  # until it sits
    return connection


def one_seat(node: EvictingNode) -> None:
    """Let the API server answer one request of the agent's at a time, and refuse the others."""
    api, account = "/apis/flowcontrol.apiserver.k8s.io/v1", node.account
    limited = {"nominalConcurrencyShares": 0, "lendablePercent": 0, "borrowingLimitPercent": 0}
    level = {"type": "Limited", "limited": {**limited, "limitResponse": {"type": "Reject"}}}
    node.server.post(f"{api}/prioritylevelconfigurations", {"metadata": {"name": account.name}, "spec": level})
    who = {"kind": "ServiceAccount", "serviceAccount": {"namespace": account.namespace, "name": account.name}}
    what = {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "namespaces": ["*"], "clusterScope": True}
    spec = {
        "priorityLevelConfiguration": {"name": account.name},
        "matchingPrecedence": 2,
        "rules": [{"subjects": [who], "resourceRules": [what]}],
    }
    node.server.post(f"{api}/flowschemas", {"metadata": {"name": account.name}, "spec": spec})


def test_another_pod_of_the_same_name_is_never_evicted_in_its_place(node) -> None:
    """What the kubelet still runs was deleted and made anew meanwhile."""
    uid = node.lists("job", "00000000-0000-0000-0000-000000000000")
    node.server.pod(node.namespace, "job", node=node.name)
    node.start()
    node.tick(replies=True)
    (outcome,) = node.outcomes(uid)

    assert outcome.result == "unchanged"
    assert outcome.reason.startswith("the pod no longer exists: 409 ")
    assert "deletionTimestamp" not in pod_of(node, "job")["metadata"]
    assert node.agent.credit_account.spent == 0


def test_a_pod_that_the_server_does_not_know_is_gone(node) -> None:
    uid = node.lists("job", "00000000-0000-0000-0000-000000000000")
    node.start()
    node.tick(replies=True)
    dying = node.tick().evict.dying
    node.kubelet()
    node.tick()
    node.tick()
    begin, end = node.outcomes(uid)

    assert (begin.result, begin.spent.evictions) == ("unchanged", 0)
    assert begin.reason.startswith("the pod no longer exists: 404 ")
    assert dying == [uid], "somebody has deleted it: it is on its way out"
    assert (end.result, end.bound) == ("unchanged", "ended")


def test_without_the_right_to_evict_victims_are_throttled_then_frozen_and_never_killed(killing) -> None:
    node = killing
    uid = node.run("job")
    stranger = agent_account(node.server, node.namespace, node.name, rights=[])
    node.token.write_text(stranger.token)
    node.start()
    node.tick(replies=True)
    for _ in range(8):
        node.tick_and_poll()
    reasons = {one.reason for one in node.outcomes(uid) if one.result == "refused"}

    assert uid in node.machine.pods
    assert node.agent.evicting.throttled
    assert node.agent.evicting.frozen == 1
    assert all(reason.startswith("the API server does not allow this agent to evict pods: 403 ") for reason in reasons)
    assert 'cannot create resource \\"pods/eviction\\"' in " ".join(reasons).replace('"', '\\"')


def test_while_nobody_watches_over_evictions_victims_are_held_back_and_never_killed(killing) -> None:
    """The server is there: the policy that lets an agent kill while it is away does not hold."""
    node = killing
    uid = node.run("job")
    fence_is_away(node)
    node.start()
    for _ in range(10):
        node.tick_and_poll()
    reasons = {one.reason for one in node.outcomes(uid) if one.result == "refused"}

    assert uid in node.machine.pods
    assert "deletionTimestamp" not in pod_of(node, "job")["metadata"]
    assert (node.agent.evicting.throttled, node.agent.evicting.frozen) == (True, 1)
    assert node.agent.credit_account.spent == 0
    (reason,) = reasons
    assert reason.startswith("the webhook that checks evictions does not answer: 500 ")


def test_whom_the_fence_refuses_stays_and_the_next_one_goes(
    admitting: ApiServer, webhook: Webhook, batch: str, tmp_path: Path
) -> None:
    """The agent's list is wrong in each way that there is; the webhook goes by the API server's."""
    with contextlib.closing(EvictingNode(admitting, batch, tmp_path, account=partial(agent_on, admitting))) as node:
        service = admitting.pod(batch, "web", node=node.name, labels={"koordinator.sh/qosClass": "LS"})
        node.lists("web", service["metadata"]["uid"], priority=5_000)
        classed = {"koordinator.sh/qosClass": "BE", "koordinator.sh/priority-class": "koord-batch"}
        admitting.pod(batch, "anew", node=node.name, labels=classed)
        node.lists("anew", "00000000-0000-0000-0000-000000000000", priority=5_001)
        elsewhere = admitting.pod(batch, "elsewhere", node=admitting.node(), labels=classed)
        node.lists("elsewhere", elsewhere["metadata"]["uid"], priority=5_002)
        job = node.run("job", priority=5_003, mem_bytes=0)
        node.start()
        for _ in range(3):
            node.tick_and_poll()
        results = {one.pod.name: (one.result, one.reason.split(": ")[0]) for one in node.outcomes()}
        going = [name for name in ("web", "anew", "elsewhere", "job") if going_is(node, name)]

    assert results["web"] == ("refused", "the API server rejects the eviction")
    assert results["elsewhere"] == ("refused", "the API server rejects the eviction")
    assert results["anew"] == ("unchanged", "the pod no longer exists")
    assert (node.results(job)[-1], going) == (("applied", "formula"), ["job"])
    assert node.agent.credit_account.spent == 1


def going_is(node: EvictingNode, name: str) -> bool:
    return "deletionTimestamp" in pod_of(node, name)["metadata"]


def fence_is_away(node: EvictingNode) -> None:
    """Let a webhook that nobody serves be asked about each eviction of this agent's."""
    account = f"system:serviceaccount:{node.account.namespace}:{node.account.name}"
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods/eviction"]}
    webhook = {
        "name": "evictions.example.io",
        "clientConfig": {"url": "https://127.0.0.1:1/validate-evictions"},
        "rules": [rule],
        "failurePolicy": "Fail",
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        "matchConditions": [{"name": "agent", "expression": f"request.userInfo.username == '{account}'"}],
    }
    path = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
    node.server.post(path, {"metadata": {"name": node.account.name}, "webhooks": [webhook]})
    uid = node.pods[-1].uid
    assert eventually(lambda: reply_to(node, "job", uid).verdict == "fenced", 60)


def test_a_token_that_was_replaced_is_used_at_once(node) -> None:
    uid = node.run("job")
    node.token.write_text("worn-out")
    node.start()
    node.tick(replies=True)
    node.token.write_text(node.account.token)
    node.tick(1_500, replies=True)

    refused = node.outcomes(uid)[0]
    assert (refused.result, refused.reason) == (
        "refused",
        "the API server does not allow this agent to evict pods: 401 Unauthorized",
    )
    assert node.results(uid)[-1] == ("applied", "formula")


def test_a_token_that_is_missing_is_no_server_that_is_away_and_nobody_is_killed(killing) -> None:
    node = killing
    uid = node.run("job")
    node.token.unlink()
    node.start()
    for _ in range(8):
        node.tick_and_poll()
    refused = node.outcomes(uid)[0]

    assert uid in node.machine.pods
    assert (refused.result, node.agent.evicting.frozen) == ("refused", 1)
    assert refused.reason.endswith(f"the token {node.token} cannot be read: No such file or directory")


def test_while_the_server_is_away_victims_are_held_back_and_go_when_it_is_back(node, caplog) -> None:
    uid = node.run("job")
    node.start(credit=1)
    node.server.api.stop()
    try:
        node.tick(replies=True)
        for _ in range(9):
            asked = len([one for one in node.outcomes(uid) if one.result == "failed"])
            node.tick_and_poll()
        throttled, frozen = node.agent.evicting.throttled, node.agent.evicting.frozen
        failed = [one for one in node.outcomes(uid) if one.result == "failed"]
    finally:
        node.server.start()
    node.tick(30_000, replies=True)
    node.kubelet()
    node.tick()
    node.tick()

    said = [record.getMessage() for record in caplog.records if record.name.endswith(".eviction_client")]
    assert [text.split(": ")[0] for text in said] == [f"cannot evict pod {node.namespace}/job"], "once"
    assert (throttled, frozen) == (True, 1)
    assert 2 <= asked <= len(failed) < 10, "less often than at each tick, by pauses that are drawn"
    assert failed[0].reason.startswith("the API server cannot be reached: no connection: Connection refused")
    assert node.results(uid)[-3:] == [("applied", "thawed"), ("applied", "formula"), ("applied", "ended")]
    assert node.agent.credit_account.spent == 1
    assert node.spool.interrupted() == []


def test_a_server_that_never_answers_holds_nobody_up_and_what_it_may_have_heard_is_paid_for(node, monkeypatch) -> None:
    monkeypatch.setattr(http, "TIMEOUT_S", 6.0)
    uid = node.run("job")
    with socket.create_server(("127.0.0.1", 0)) as mute:
        node.url = f"https://127.0.0.1:{mute.getsockname()[1]}"
        node.start()
        began_s = time.monotonic()
        node.tick()
        node.tick()
        took_s = time.monotonic() - began_s
        meanwhile, throttled = node.outcomes(uid), node.agent.evicting.throttled
        assert eventually(lambda: node.agent.replied() or len(node.outcomes(uid)) > len(meanwhile), 60)

    assert took_s < 5, "the agent waits for no reply"
    assert [(one.result, one.reason) for one in meanwhile] == [
        ("refused", "the API server has not answered yet")
    ]  # fmt: skip
    assert throttled
    failed = node.outcomes(uid)[-1]
    assert (failed.result, failed.reason) == (
        "failed",
        "the API server cannot be reached: incomplete answer after 6 s",
    )
    assert node.agent.credit_account.spent == failed.spent.evictions == 1


def test_while_the_server_is_away_a_pod_is_killed_where_the_policy_allows_it_and_throttling_was_not_enough(
    killing,
) -> None:
    node = killing
    uid = node.run("job")
    node.start()
    node.server.api.stop()
    try:
        node.tick(replies=True)
        quota_us, alive = [], []
        for _ in range(6):
            node.tick_and_poll()
            quota_us.append(node.agent._actuator.limits.be_cfs_quota_us)
            alive.append(uid in node.machine.pods)
    finally:
        node.server.start()
    applied = [one for one in node.outcomes(uid) if one.result == "applied"]

    assert alive[:3] == [True] * 3, "little CPU may be enough"
    assert quota_us[0] == QUOTA_US_MIN
    assert alive[-1] is False
    assert [one.bound for one in applied] == ["formula", "ended"]
    assert "SIGTERM, and SIGKILL after 30000 ms" in applied[0].reason
    assert eventually(lambda: events_on(node.server, node.namespace, uid), 60), "told when the server is back"


def test_an_agent_that_stops_between_asking_and_hearing_asks_again_and_tells_of_the_eviction_once(node) -> None:
    uid = node.run("job")
    node.start()
    node.tick()
    assert eventually(lambda: "deletionTimestamp" in pod_of(node, "job")["metadata"], 60)
    node.crash()
    node.start()
    assert eventually(lambda: node.agent.replied() or node.outcomes(uid), 60)
    node.kubelet()
    node.tick()
    node.tick()

    assert node.results(uid) == [("applied", "formula"), ("applied", "ended")]
    assert node.outcomes(uid)[0].reason.startswith("the agent stopped during the eviction: ")
    assert node.spool.interrupted() == []


def test_one_that_outstays_its_grace_is_said_to_be_stuck_and_its_end_is_told_all_the_same(node) -> None:
    uid = node.run("job", spec={"terminationGracePeriodSeconds": 1})
    node.start(grace_ms_max=1_000)
    node.tick(replies=True)
    for _ in range(12):
        node.tick()
    stuck = node.outcomes(uid)[-1]
    sample = node.tick()
    node.kubelet()
    node.tick()
    node.tick()

    assert (stuck.result, stuck.bound) == ("failed", "stuck")
    assert (
        stuck.reason == "1 processes are left after its grace: check that the kubelet runs and reaches the API server"
    )
    assert (sample.evict.stuck, sample.evict.dying) == ([uid], [])
    assert node.results(uid)[-1] == ("applied", "ended")
