"""Checks the agent that runs here, its rights in the cluster, and Kafka with its topics and logins. Pure."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence

from slacktide.deploy.cli.doctor.facts import (
    EVENTS,
    EVICTIONS,
    KUBELET_PODS,
    KUBELET_PROXY,
    AgentFacts,
    ApiFacts,
    ApiRight,
    KafkaFacts,
    LoginFacts,
    Newest,
    NoApi,
    NoKafka,
)
from slacktide.deploy.cli.doctor.finding import Finding, failed, good, some, warned
from slacktide.deploy.runtime.broker import EMBEDDED
from slacktide.deploy.runtime.text import count
from slacktide.schemas.connection import options
from slacktide.schemas.topics import STAMPED, TIMESTAMP_TYPE
from slacktide.streams.analysis.explain.evidence import Finding as Explained
from slacktide.streams.kafka.payload import INFLATED_BYTES_MAX

SILENT = ("agent.silent", "figures.stand")
"""Findings about a node whose agent does not run, as before an upgrade."""
MINOR_MIN = 30
"""From Kubernetes 1.30 on tokens name the node of the pod that they are bound to (ServiceAccountTokenPodNodeInfo)."""
MINOR_FINE_GRAINED = 33
"""From this version on the kubelet requires nodes/pods (KubeletFineGrainedAuthz)."""
ROUND_TRIP_MS_MAX = 100.0
"""An answer takes about four of them, and processing; the guard waits 1 s for it."""
SKEW_MS_MAX = 5_000


def agent_findings(facts: AgentFacts | None) -> Iterator[Finding]:
    """Report the process's health, as its probes see it."""
    if facts is None:
        yield good("agent.live", "no agent runs here", "an agent that answers, if one runs")
        return
    check, needed = "agent.live", "an agent that answers"
    if facts.not_live:
        advice = (
            "check that --metrics-host and --metrics-port are the agent's; if the agent is frozen, restart it: "
            "until then best-effort pods keep their last limit"
        )
        yield failed(check, f"{facts.url}: {facts.not_live}", needed, advice)
        return
    yield good(check, facts.url, needed)
    needed, advice = "an agent that is ready", "its log and the checks below show what is missing"
    if facts.not_ready:
        yield failed("agent.ready", facts.not_ready, needed, advice)
    if facts.not_fresh:
        yield warned("agent.fresh", facts.not_fresh, "samples that are answered in time", advice)


def node_findings(node: str, explained: Sequence[Explained], *, runs: bool) -> Iterator[Finding]:
    """Report the node's health by the freshness findings of `slacktide explain node`.

    ``runs``: an agent runs here; if not, its silence is expected.
    """
    needed = f"fresh samples and answers of node {node}"
    bad = [one for one in explained if one.severity in {"problem", "warning"}]
    if not bad:
        yield good("node.fresh", f"fresh: node {node}", needed)
    for one in bad:
        wrong = failed if one.severity == "problem" and (runs or one.name not in SILENT) else warned
        yield wrong("node.fresh", one.text, needed, f"{one.advice}; `slacktide explain node {node}` shows more")


def api_findings(facts: ApiFacts | NoApi) -> Iterator[Finding]:
    """Report all findings of the API server, or that it does not answer."""
    needed = "an API server that answers"
    if isinstance(facts, NoApi):
        advice = (
            "check that the API server runs, that --api-server can be reached from here, and that the token is "
            "valid in this cluster"
        )
        yield failed("api.server", f"{facts.url}: {facts.trouble}", needed, advice)
        return
    yield good("api.server", facts.url, needed)
    yield _version(facts)
    yield _token(facts)
    yield _right(facts, EVICTIONS, "api.right-to-evict", "without this right, pods are only throttled and frozen")
    why = "without this right, kubectl describe pod shows no reason of an eviction"
    yield _right(facts, EVENTS, "api.right-to-tell", why, warned)
    check = "api.right-to-list-pods"
    if facts.minor is None or facts.minor >= MINOR_FINE_GRAINED:
        yield _right(facts, KUBELET_PODS, check, "the kubelet requires this right to list its pods")
    else:
        why = (
            "before Kubernetes 1.33 the kubelet requires this right to list its pods, although it also allows "
            "commands in pods; to grant it, add deploy/kubernetes/components/kubelet-before-1.33"
        )
        yield _right(facts, KUBELET_PROXY, check, why)


def _version(facts: ApiFacts) -> Finding:
    check, found, needed = "api.version", f"Kubernetes {facts.version}", f"1.{MINOR_MIN} or newer, for evictions"
    if facts.minor is None or facts.minor >= MINOR_MIN:
        return good(check, found, needed)
    advice = (
        "upgrade the cluster; in older versions a token does not contain its node, and the webhook that checks "
        "evictions rejects all: pods are only throttled and frozen"
    )
    return failed(check, found, needed, advice)


def _token(facts: ApiFacts) -> Finding:
    check, needed, token = "api.token", "bound to a pod, with the name of its node", facts.token
    if token.pod and token.node:
        return good(check, f"bound to pod {token.pod} on node {token.node}", needed)
    advice = (
        "give the token of the agent's own pod (a serviceAccountToken volume, which each pod has by default); "
        "a token from a Secret or a client certificate is not accepted"
    )
    if token.pod:
        found, advice = f"bound to pod {token.pod}, but without the name of its node", f"see api.version; or {advice}"
        return failed(check, found, needed, advice)
    return failed(check, "not bound to a pod", needed, advice)


def _right(
    facts: ApiFacts, right: ApiRight, check: str, why: str, wrong: Callable[[str, str, str, str], Finding] = failed
) -> Finding:
    resource = "/".join(filter(None, (right.resource, right.subresource)))
    needed = f"{right.verb} {resource}"
    if facts.rights[right]:
        return good(check, f"may {needed}", needed)
    if right is not KUBELET_PROXY:  # for which there is a component
        group = right.group or '""'
        rule = f"apiGroups [{group}], resources [{resource}], verbs [{right.verb}]"
        why += f"; to grant it, run kubectl apply -k deploy/kubernetes, or add the ClusterRole rule {rule}"
    return wrong(check, f"may not {needed}", needed, why)


def kafka_findings(facts: KafkaFacts | NoKafka) -> Iterator[Finding]:
    """Report all findings of Kafka, or that it does not answer."""
    needed = "a broker that answers"
    if isinstance(facts, NoKafka):
        advice = (
            f"check that --bootstrap HOST:PORT is right, and that its port accepts {facts.bootstrap.security} "
            "(--kafka-config). To try the port: nc -vz HOST PORT"
        )
        yield failed("log.broker", facts.trouble, needed, advice)
        return
    yield _broker(facts)
    yield good("log.connection", str(facts.bootstrap.security), "a protocol that the broker's port accepts")
    yield _round_trip(facts)
    yield _idempotence(facts)
    yield good("log.transactions", "yes" if facts.transactions else "no", "not required: transactions are not used")
    yield _topics(facts)
    if facts.settings:
        yield _timestamps(facts)
        # All are accepted. With `producer` batches are unchanged, else recompressed.
        codecs = Counter(config.get("compression.type", "producer") for config in facts.settings.values())
        found = ", ".join(f"{codec} on {count(number, 'topic')}" for codec, number in codecs.items())
        yield good("log.compression", found, "any of none, gzip, snappy, lz4 and zstd")
        yield _batch_size(facts)
    if facts.newest is not None:
        yield _skew(facts.newest, facts.now_ms)


def login_findings(facts: Sequence[LoginFacts]) -> Iterator[Finding]:
    """Report whether each part can log in, and has rights to its topics and consumer groups."""
    for one in facts:
        check, needed = f"log.login-{one.part}", "a login with rights to the part's topics and consumer groups"
        if one.trouble:
            advice = f"correct kafka.conf in the Secret slacktide-kafka-{one.part} (docs/secured-kafka.md)"
            yield failed(check, one.trouble, needed, advice)
        elif not one.tried:
            advice = (
                f"only the pod of {one.part} has the token. Create one with Kafka's audience, as "
                f"{one.part}/token in the folder of --kafka-logins: kubectl create token slacktide-{one.part} "
                "-n slacktide-system --audience=KAFKA"
            )
            yield warned(check, "not tried: the token is missing", needed, advice)
        elif one.lacks:
            advice = f"grant the ACLs that slacktide topics acl {one.part} prints"
            yield failed(check, f"{one.security}: no right to {some(one.lacks)}", needed, advice)
        else:
            yield good(check, str(one.security), needed)


def _broker(facts: KafkaFacts) -> Finding:
    check, needed = "log.broker", "a broker that answers"
    found = f"{facts.bootstrap}: cluster {facts.cluster or '(no id)'}, {count(facts.brokers, 'broker')}"
    if facts.cluster.startswith(EMBEDDED):
        advice = "use Apache Kafka; the embedded broker is for development, and loses its records when it stops"
        return warned(check, found, needed, advice)
    return good(check, found, needed)


def _round_trip(facts: KafkaFacts) -> Finding:
    check, needed = "log.round-trip", f"at most {ROUND_TRIP_MS_MAX:g} ms"
    found = f"{facts.round_trip_ms:.1f} ms"
    if facts.round_trip_ms <= ROUND_TRIP_MS_MAX:
        return good(check, found, needed)
    advice = (
        "move broker and node closer together, or raise the agent's --guard-deadline: if answers are late, "
        "its guard decides"
    )
    return warned(check, found, needed, advice)


def _idempotence(facts: KafkaFacts) -> Finding:
    check, needed = "log.idempotent-producer", "acks=all without duplicates"
    if not facts.idempotence_trouble:
        return good(check, "yes", needed)
    if facts.cluster.startswith(EMBEDDED):
        advice = "the embedded broker does not support it: a retried write may appear twice, but is applied once"
    else:
        advice = (
            "use Apache Kafka 2.8+, or grant IdempotentWrite; until then a retried write may appear twice, but "
            "is applied once"
        )
    return warned(check, f"no: {facts.idempotence_trouble}", needed, advice)


def _topics(facts: KafkaFacts) -> Finding:
    check, needed = "log.topics", "as in the table of topics"
    if facts.changes is None:
        advice = "run doctor as the reader; for its ACLs see slacktide topics acl reader"
        return warned(check, "this login may not read all of them", needed, advice)
    kinds: Counter[str] = Counter(change.kind for change in facts.changes)
    if not kinds:
        return good(check, "as in the table of topics", needed)
    different = "with differences that topics apply does not change"
    words = (("create", "missing"), ("set", "set otherwise"), ("differs", different))
    found = ", ".join(f"{kinds[kind]} {text}" for kind, text in words if kinds[kind])
    if kinds["create"] and facts.creation_trouble == "":
        return good(check, f"{found}: workers create them when they start", needed)
    if kinds["create"] and facts.creation_trouble:
        advice = "grant the ACLs that slacktide topics acl topics prints to the login that creates topics"
        return failed(check, f"{found}; {facts.creation_trouble}", needed, advice)
    if kinds["create"]:
        return failed(check, found, needed, f"slacktide topics apply {options(facts.bootstrap)}")
    advice = f"see the differences: slacktide topics plan {options(facts.bootstrap)}"
    advice += "; to set them, run slacktide topics apply" if kinds["set"] else ""
    return warned(check, found, needed, advice)


def _timestamps(facts: KafkaFacts) -> Finding:
    check, needed = "log.timestamps", f"message.timestamp.type={STAMPED} on each topic"
    others = [name for name, config in facts.settings.items() if config.get(TIMESTAMP_TYPE, STAMPED) != STAMPED]
    if not others:
        return good(check, STAMPED, needed)
    advice = (
        f"run slacktide topics apply {options(facts.bootstrap)}. With CreateTime, Kafka rejects records of an "
        "agent whose clock is an hour ahead, and a wrong clock moves the offset from which records are read"
    )
    return warned(check, f"CreateTime: {', '.join(others)}", needed, advice)


def _batch_size(facts: KafkaFacts) -> Finding:
    check, needed = "log.batch-size", f"max.message.bytes of at most {INFLATED_BYTES_MAX} on each topic"
    large = {name: int(config.get("max.message.bytes", 0)) for name, config in facts.settings.items()}
    over = [f"{name} {size_bytes}" for name, size_bytes in large.items() if size_bytes > INFLATED_BYTES_MAX]
    if not over:
        return good(check, f"at most {max(large.values())} bytes" if any(large.values()) else "not reported", needed)
    advice = "set a lower max.message.bytes with kafka-configs; larger batches become dead letters"
    return warned(check, ", ".join(over), needed, advice)


def _skew(newest: Newest, now_ms: int) -> Finding:
    """Report a record from the future, which shows that this clock is behind. A clock ahead is not detected."""
    check, needed = "log.clock", "no record with a future timestamp"
    ahead_ms = newest.timestamp_ms - now_ms
    who = "the broker's clock" if newest.by_broker else "the sender's clock"
    age = f"{ahead_ms / 1000:.1f} s ahead" if ahead_ms > 0 else f"{-ahead_ms / 1000:.1f} s old"
    found = f"the newest record of {newest.topic} is {age}"
    if ahead_ms > SKEW_MS_MAX:
        return warned(check, found, needed, f"synchronise both clocks: this clock is behind, or {who} is ahead")
    return good(check, f"{found}, by {who}", needed)
