"""An agent enrols at the bridge, on a real API server, with the rights of the manifests."""

import asyncio
import base64
import secrets
import ssl
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from slacktide.agents.cluster.certificates import Terms, made
from slacktide.agents.cluster.enrolment import enrolment, issuer
from slacktide.agents.cluster.enrolment.enrolment import Enrolment, EnrolmentSettings, follow
from slacktide.agents.cluster.enrolment.issuer import Ring
from slacktide.agents.http import Access, Answer, CredentialsError, HttpError, Https
from slacktide.agents.kubernetes.api_server import ApiServer as Door
from slacktide.agents.node.metrics import AgentMetrics
from slacktide.agents.node.proof import Enrolment as AgentEnrolment
from slacktide.agents.node.proof import Prover
from slacktide.deploy.cli.proof_keys import KeyFolder
from slacktide.schemas.codec import decode
from slacktide.schemas.proof import ENROL_AUDIENCE, ENROL_PATH, NODE_KEY_LIFE_S, ClusterKey, Enrolled, Verifier
from slacktide.schemas.topics import SAMPLE
from slacktide.streams.records import Out
from testbed.cluster.api_server import ApiServer
from testbed.cluster.follow import follow as follow_page
from testbed.cluster.identity import access_of
from testbed.cluster.manifests import SYSTEM, applied
from testbed.cluster.told import commands
from testbed.one_machine import eventually
from testbed.waiting import soon

pytestmark = pytest.mark.cluster
KEYS = f"/api/v1/namespaces/{SYSTEM}/secrets/{issuer.SECRET}"
LOOK_S = 0.2
BUNDLE = f"/api/v1/namespaces/{SYSTEM}/configmaps/{enrolment.CONFIG_MAP}"


@pytest.fixture(scope="module")
def server() -> object:
    with applied() as server:
        yield server


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def token(
    server: ApiServer, *, account: str = "slacktide-agent", bound: bool = True, **spec: object
) -> tuple[str, str]:
    """A token as the kubelet asks for it, and the node of its pod."""
    node, pod = server.node(), f"agent-{secrets.token_hex(4)}"
    server.account(SYSTEM, account)
    wanted: dict[str, object] = {"audiences": [ENROL_AUDIENCE], "expirationSeconds": 600, **spec}
    if bound:
        uid = server.pod(SYSTEM, pod, node=node, spec={"serviceAccountName": account})["metadata"]["uid"]
        wanted["boundObjectRef"] = {"kind": "Pod", "apiVersion": "v1", "name": pod, "uid": uid}
    path = f"/api/v1/namespaces/{SYSTEM}/serviceaccounts/{account}/token"
    return server.post(path, {"spec": wanted})["status"]["token"], node


@asynccontextmanager
async def replica(
    server: ApiServer,
    terms: Terms | None = None,
    *,
    now_ms: Callable[[], int] = now_ms,
    now_s: Callable[[], float] = time.monotonic,
) -> AsyncIterator[Enrolment]:
    """One replica's enrolment, under the bridge's own account, with its clocks."""
    config = server.account(SYSTEM, "slacktide-bridge").kubeconfig
    settings = EnrolmentSettings(
        namespace=SYSTEM,
        host="127.0.0.1",
        port=0,
        look_s=LOOK_S,
        terms=terms or Terms(names=frozenset({"127.0.0.1"}), settle_ms=500),
    )
    async with Door(access_of(config), name="test") as api:
        cluster_keys = Ring(api, SYSTEM, now_s)
        served = Enrolment(api, settings, cluster_keys, now_ms)
        tasks = [asyncio.create_task(served.run()), asyncio.create_task(follow(cluster_keys, LOOK_S))]
        try:
            await asyncio.to_thread(
                eventually, lambda: (served.port and cluster_keys.keys()) or any(task.done() for task in tasks)
            )
            yield served
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


def access(server: ApiServer, served: Enrolment, folder: Path, text: str) -> Access:
    """What an agent's pod has mounted."""
    (folder / "token").write_text(text)
    (folder / "ca.crt").write_text(server.get(BUNDLE)["data"]["ca.crt"])
    return Access(url=f"https://127.0.0.1:{served.port}", token=folder / "token", ca=folder / "ca.crt")


async def asked(given: Access, path: str = ENROL_PATH) -> Answer:
    """As agents ask, again where a busy machine answers later than they wait."""
    https = Https(given, port=1, untrusted="")

    async def answer() -> Answer | None:
        try:
            return await asyncio.to_thread(https.ask, path, method="POST", body=b"{}")
        except CredentialsError:
            raise
        except HttpError:
            return None

    try:
        return await soon(answer, "an answer")
    finally:
        https.close()


def ring_of(server: ApiServer) -> list[ClusterKey]:
    data = server.get(KEYS)["data"]
    return [ClusterKey.of(base64.b64decode(data[name]).decode()) for name in ("current", "previous") if name in data]


def checked(prover: Prover, node: str, keys: list[ClusterKey], at_ms: int | None = None) -> str:
    out = prover.sign(Out(topic=SAMPLE.name, key=node.encode(), value=b"{}"))
    return Verifier(keys).check(out.topic, out.key, out.value, tuple(out.headers), at_ms or now_ms())


async def test_an_agent_gets_the_key_of_the_node_that_its_token_names(server: ApiServer, tmp_path: Path) -> None:
    text, node = token(server)
    async with replica(server) as served:
        answer = await asked(access(server, served, tmp_path, text))
        assert answer.status == 200, answer.words
        enrolled = decode(answer.body, Enrolled)
        assert enrolled.node == node
        assert abs(enrolled.expires_s - NODE_KEY_LIFE_S - now_ms() // 1_000) < 60

        prover = Prover(node, tmp_path, now_ms)
        prover.use(enrolled)
        assert checked(prover, node, ring_of(server)) == "ok"
        assert checked(prover, "another-node", ring_of(server)) == "forged"
        assert (tmp_path / "proof-key.json").stat().st_mode & 0o777 == 0o600


async def test_only_a_pod_bound_token_of_an_agent_for_this_audience_enrols(
    server: ApiServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    good, _ = token(server)
    gone, _ = token(server)
    pods = server.get(f"/api/v1/namespaces/{SYSTEM}/pods")["items"]
    newest = max(pods, key=lambda pod: (pod["metadata"]["creationTimestamp"], int(pod["metadata"]["resourceVersion"])))
    server.kubectl("delete", "pod", "-n", SYSTEM, newest["metadata"]["name"], "--force", "--grace-period=0")
    header, claims, signature = good.split(".")
    refused = {
        "another account": token(server, account="slacktide-stream")[0],
        "another audience": token(server, audiences=["https://kubernetes.default.svc.cluster.local"])[0],
        "the webhook's": token(server, account="slacktide-webhook")[0],
        "bound to no pod": token(server, bound=False)[0],
        "of a pod that is gone": gone,
        "with another signature": ".".join([header, claims, signature[:-8] + signature[-8:][::-1]]),
        "no token": "x" * 1_000,
    }
    async with replica(server) as served:
        answers = {what: await asked(access(server, served, tmp_path, text)) for what, text in refused.items()}
        assert {what: answer.status for what, answer in answers.items()} == dict.fromkeys(refused, 403)
        assert (await asked(access(server, served, tmp_path, good))).status == 200
        assert (await asked(access(server, served, tmp_path, good), "/other")).status == 404
    for text in (good, *refused.values()):
        assert text not in caplog.text
        assert all(text not in answer.words for answer in answers.values())


async def test_an_agent_shows_its_token_to_nobody_that_the_bundle_does_not_name(
    server: ApiServer, tmp_path: Path
) -> None:
    text, _ = token(server)
    other = made(frozenset({"127.0.0.1"}), common_name="other", now_ms=now_ms(), life_ms=60_000)
    async with replica(server) as served:
        given = access(server, served, tmp_path, text)
        (tmp_path / "ca.crt").write_bytes(other.certificate)
        with pytest.raises(CredentialsError):
            await asked(given)


async def test_two_replicas_share_certificate_and_keys(server: ApiServer, tmp_path: Path) -> None:
    text, node = token(server)
    async with replica(server) as one, replica(server) as two:
        found = []
        for served in (one, two):
            answer = await asked(access(server, served, tmp_path, text))
            prover = Prover(node, None, now_ms)
            prover.use(decode(answer.body, Enrolled))
            found.append(checked(prover, node, ring_of(server)))
        assert found == ["ok", "ok"]


async def test_the_certificate_turns_and_agents_follow(server: ApiServer, tmp_path: Path) -> None:
    text, _ = token(server)
    server.patch(f"/api/v1/namespaces/{SYSTEM}/secrets/{enrolment.SECRET}", {"data": None})
    # All ahead of time is less than the 5 min for which a certificate is valid before it is made.
    terms, ahead_ms = Terms(names=frozenset({"127.0.0.1"}), life_ms=360_000, settle_ms=20_000), 0
    async with replica(server, terms, now_ms=lambda: now_ms() + ahead_ms) as served:

        async def shown() -> str:
            """What is served to an agent that trusts the bundle as it is now."""
            answer = await asked(access(server, served, tmp_path, text))
            assert answer.status == 200
            return await asyncio.to_thread(ssl.get_server_certificate, ("127.0.0.1", served.port))

        async def trusted() -> int:
            return server.get(BUNDLE)["data"]["ca.crt"].count("BEGIN")

        async def later() -> str:
            nonlocal ahead_ms
            ahead_ms += terms.settle_ms
            return await shown()

        first = await shown()
        ahead_ms = terms.life_ms * 2 // 3 + 1_000
        await soon(trusted, "the next certificate is trusted", enough=(2).__eq__)
        assert await shown() == first
        await soon(later, "the next certificate is served", enough=lambda found: found != first)


async def test_keys_rotate_without_a_refused_sample(server: ApiServer, tmp_path: Path) -> None:
    """As docs/node-proof.md has it: the new key is known to all workers before an agent's key is derived from it."""
    text, node = token(server)
    at_s = 0.0
    folder = tmp_path / "mounted"
    folder.mkdir()
    verifier = Verifier()
    keys = KeyFolder(folder, verifier.keys)

    def mounted() -> None:  # what a kubelet does
        for name, value in server.get(KEYS)["data"].items():
            (folder / name).write_bytes(base64.b64decode(value))
        keys.look()

    async def enrolled(served: Enrolment) -> Prover:
        prover = Prover(node, None, now_ms)
        prover.use(decode((await asked(access(server, served, tmp_path, text))).body, Enrolled))
        return prover

    def verdict(prover: Prover) -> str:
        out = prover.sign(Out(topic=SAMPLE.name, key=node.encode(), value=b"{}"))
        return verifier.check(out.topic, out.key, out.value, tuple(out.headers), now_ms())

    async with replica(server, now_s=lambda: at_s) as served:

        async def known() -> bool:
            return {key.id for key in served._issuer._ring()} == {key.id for key in ring_of(server)}

        at_s += issuer.SETTLE_S
        first = await enrolled(served)
        mounted()
        await asyncio.to_thread(follow_page, server, tmp_path, commands("node-proof.md"))
        await soon(known, "the new key is known here")
        at_s += issuer.SETTLE_S - 1
        early = await enrolled(served)
        assert (verdict(first), verdict(early)) == ("ok", "ok")  # workers that have not read it yet
        mounted()
        assert (verdict(first), verdict(early)) == ("ok", "ok")
        at_s += 1
        late = await enrolled(served)
        assert verdict(late) == "ok"
        assert (
            first.sign(Out(topic="t", key=b"n", value=b"")).headers[-1][1][:11]
            != late.sign(Out(topic="t", key=b"n", value=b"")).headers[-1][1][:11]
        )


async def test_an_agent_keeps_its_key_while_nobody_enrols(
    server: ApiServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It enrols as soon as it can; later, with the bridge away, the key serves on, also after a restart."""
    text, node = token(server)
    async with replica(server) as served:
        given = access(server, served, tmp_path, text)
        prover = Prover(node, tmp_path, now_ms)
        agent = AgentEnrolment(given, prover, AgentMetrics(node))
        running = asyncio.create_task(agent.run())
        await asyncio.to_thread(eventually, lambda: prover.left_s > 0 or running.done())
        assert agent.trouble == ""
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    late_ms = now_ms() + 19 * 3_600_000
    again = Prover(node, tmp_path, lambda: late_ms)
    assert again.left_s > 4 * 3_600
    agent = AgentEnrolment(given, again, AgentMetrics(node))
    running = asyncio.create_task(agent.run())
    await asyncio.to_thread(eventually, lambda: "and the bridge issues no new key" in caplog.text or running.done())
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert "this node's key expires in" in agent.trouble
    assert checked(again, node, ring_of(server), late_ms) == "ok"
    assert checked(again, node, ring_of(server), late_ms + 5 * 3_600_000 + 60_000) == "expired"


def test_a_bridge_may_fill_its_secrets_and_make_none(server: ApiServer) -> None:
    def may(verb: str, resource: str, name: str = "") -> bool:
        attributes = {"verb": verb, "resource": resource, "namespace": SYSTEM, "name": name}
        body = {"spec": {"user": f"system:serviceaccount:{SYSTEM}:slacktide-bridge", "resourceAttributes": attributes}}
        return bool(server.post("/apis/authorization.k8s.io/v1/subjectaccessreviews", body)["status"]["allowed"])

    assert may("patch", "secrets", issuer.SECRET)
    assert not may("create", "secrets")
    assert not may("get", "secrets", "slacktide-webhook-tls")
