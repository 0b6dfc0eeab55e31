"""Checks whether Kafka answers in time, and has the topics that the loop needs. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from slacktide.deploy.cli.doctor.facts import KafkaFacts, LoginFacts, Newest, NoKafka
from slacktide.deploy.cli.doctor.finding import Finding, failed, good, some, warned
from slacktide.deploy.runtime.text import count
from slacktide.schemas.connection import options
from slacktide.schemas.topics import STAMPED, TIMESTAMP_TYPE
from slacktide.streams.kafka.payload import INFLATED_BYTES_MAX

ROUND_TRIP_MS_MAX = 100.0
"""An answer takes about four of them, and processing; the guard waits 1 s for it."""
SKEW_MS_MAX = 5_000
EMBEDDED = "tansu_cluster"
"""The cluster id of the embedded broker."""


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
    yield _transactions(facts)
    yield _topics(facts)
    if facts.settings:
        yield _timestamps(facts)
        yield _compression(facts)
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
    if facts.cluster == EMBEDDED:
        advice = "use Apache Kafka; the embedded broker is for development, and loses its records when it stops"
        return warned(check, found, needed, advice)
    return good(check, found, needed)


def _round_trip(facts: KafkaFacts) -> Finding:
    check, needed = "log.round-trip", f"at most {ROUND_TRIP_MS_MAX:g} ms"
    found = f"{facts.round_trip_ms:.1f} ms"
    if facts.round_trip_ms > ROUND_TRIP_MS_MAX:
        advice = (
            "move broker and node closer together, or raise the agent's --guard-deadline: if answers are late, "
            "its guard decides"
        )
        return warned(check, found, needed, advice)
    return good(check, found, needed)


def _idempotence(facts: KafkaFacts) -> Finding:
    check, needed = "log.idempotent-producer", "acks=all without duplicates"
    if not facts.idempotence_trouble:
        return good(check, "yes", needed)
    if facts.cluster == EMBEDDED:
        advice = "the embedded broker does not support it: a retried write may appear twice, but is applied once"
    else:
        advice = (
            "use Apache Kafka 2.8+, or grant IdempotentWrite; until then a retried write may appear twice, but "
            "is applied once"
        )
    return warned(check, f"no: {facts.idempotence_trouble}", needed, advice)


def _transactions(facts: KafkaFacts) -> Finding:
    return good("log.transactions", "yes" if facts.transactions else "no", "not required: transactions are not used")


def _topics(facts: KafkaFacts) -> Finding:
    check, needed = "log.topics", "as in the table of topics"
    if facts.changes is None:
        advice = "run doctor as the reader; for its ACLs see slacktide topics acl reader"
        return warned(check, "this login may not read all of them", needed, advice)
    kinds: Counter[str] = Counter(change.kind for change in facts.changes)
    if not kinds:
        return good(check, "as in the table of topics", needed)
    words = (
        ("create", "missing"),
        ("set", "set otherwise"),
        ("differs", "with differences that topics apply does not change"),
    )
    found = ", ".join(f"{kinds[kind]} {text}" for kind, text in words if kinds[kind])
    if kinds["create"] and facts.creation_trouble == "":
        return good(check, f"{found}: workers create them when they start", needed)
    if kinds["create"] and facts.creation_trouble:
        advice = "grant the ACLs that slacktide topics acl topics prints to the login that creates topics"
        return failed(check, f"{found}; {facts.creation_trouble}", needed, advice)
    if kinds["create"]:
        return failed(check, found, needed, f"slacktide topics apply {options(facts.bootstrap)}")
    advice = f"see the differences: slacktide topics plan {options(facts.bootstrap)}"
    return warned(
        check, found, needed, f"{advice}; to set them, run slacktide topics apply" if kinds["set"] else advice
    )


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


def _compression(facts: KafkaFacts) -> Finding:
    """Report the codecs; all are accepted. With ``producer`` batches are unchanged, else recompressed."""
    check, needed = "log.compression", "any of none, gzip, snappy, lz4 and zstd"
    found = Counter(config.get("compression.type", "producer") for config in facts.settings.values())
    return good(check, ", ".join(f"{codec} on {count(number, 'topic')}" for codec, number in found.items()), needed)


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
    if ahead_ms > SKEW_MS_MAX:
        found = f"the newest record of {newest.topic} is {ahead_ms / 1000:.1f} s ahead"
        return warned(check, found, needed, f"synchronise both clocks: this clock is behind, or {who} is ahead")
    if ahead_ms > 0:
        return good(check, f"the newest record of {newest.topic} is {ahead_ms / 1000:.1f} s ahead, by {who}", needed)
    return good(check, f"the newest record of {newest.topic} is {-ahead_ms / 1000:.1f} s old, by {who}", needed)
