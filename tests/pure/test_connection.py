"""The file that says how to connect to Kafka: the one that kcat reads, and nothing of it is repeated that is secret."""

import os
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from slacktide.deploy.cli.main import cli
from slacktide.deploy.runtime.settings import forget_kafka_environment, read_kafka_config
from slacktide.schemas.connection import KEYS, MECHANISMS, PASSWORDS, Cluster, Security, options, parse, variable
from slacktide.schemas.errors import ConfigError
from slacktide.streams.kafka.connecting import client
from testbed.scenarios import scenarios
from testbed.vectors import each_row

FILE = "kafka.conf"
ROOT = Path(__file__).parents[2]
LOGIN = {
    "security.protocol": "SASL_SSL",
    "sasl.mechanism": "SCRAM-SHA-512",
    "sasl.username": "slacktide-agent",
    "sasl.password": "hunter2",
}


def text(lines: dict[str, str]) -> str:
    return "".join(f"{key}={value}\n" for key, value in lines.items())


def told(lines: dict[str, str], **environment: str) -> str:
    """What is said of a file that is refused."""
    with pytest.raises(ConfigError) as refused:
        parse(text(lines), FILE, environment)
    return str(refused.value)


VALUES = st.text(st.characters(codec="utf-8", exclude_categories=["C"]), min_size=1).map(str.strip).filter(bool)
SECRETS = VALUES.map(lambda secret: f"~{secret}~")


@st.composite
def files(draw: st.DrawFn) -> dict[str, str]:
    """Lines that go together."""
    protocol = draw(st.sampled_from(["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]))
    lines = {"security.protocol": draw(st.sampled_from([protocol, protocol.lower()]))}
    if protocol.startswith("SASL"):
        lines["sasl.mechanism"] = draw(st.sampled_from(MECHANISMS))
        if lines["sasl.mechanism"] in PASSWORDS:
            lines |= {"sasl.username": draw(VALUES), "sasl.password": draw(SECRETS)}
        else:
            lines["sasl.oauthbearer.token.endpoint.url"] = f"file:///{draw(VALUES)}"
    return lines


@given(files(), st.sampled_from(["=", " = "]), st.sampled_from(["", "# ours\n\n"]))
def test_what_a_file_says_is_what_the_client_is_made_with(lines: dict[str, str], equals: str, head: str) -> None:
    """Also by the environment alone."""
    written = head + "\r\n".join(f"{key}{equals}{value}" for key, value in lines.items())
    security = parse(written, FILE, {})
    made = client(Cluster("kafka-1:9092,kafka-2:9092", security))

    assert made["bootstrap_servers"] == "kafka-1:9092,kafka-2:9092"
    assert made["security_protocol"] == lines["security.protocol"].upper()
    assert ("ssl_context" in made) == made["security_protocol"].endswith("SSL")
    assert made.get("sasl_mechanism") == lines.get("sasl.mechanism")
    assert made.get("sasl_plain_username") == lines.get("sasl.username")
    assert made.get("sasl_plain_password") == lines.get("sasl.password")
    assert ("sasl_oauth_token_provider" in made) == ("sasl.oauthbearer.token.endpoint.url" in lines)
    by_environment = parse("", "", {variable(key): value for key, value in lines.items()})
    assert client(Cluster("k:1", by_environment)).keys() == made.keys()


@given(files(), SECRETS, st.sampled_from(["", "sasl.pasword=x\n", "no such line\n", "ssl.key.location=key.pem\n"]))
def test_a_password_is_never_told(lines: dict[str, str], secret: str, wrong: str) -> None:
    """Nor what stands in a line that is not understood: it may be one."""
    lines |= {"sasl.password": secret, "ssl.key.password": secret, "sasl.jaas.config": secret}
    assert secret not in told(lines)
    del lines["ssl.key.password"], lines["sasl.jaas.config"]
    try:
        brokers = Cluster("k:1", parse(text(lines) + wrong, FILE, {}))
        said = f"{brokers.security!r}{brokers.security}{brokers!r}{options(brokers)}"
    except ConfigError as refused:
        said = str(refused)
    assert secret not in said


@scenarios("connection")
def test_what_cannot_be_is_refused_with_what_can(case: dict[str, Any]) -> None:
    assert told(case["lines"]) == case["refused"]


def test_a_line_without_a_value_is_named_by_its_number() -> None:
    with pytest.raises(ConfigError, match=r"kafka.conf: line 2: no =: accepted: KEY=VALUE"):
        parse("# ours\nhunter2\n", FILE, {})


def test_librdkafka_s_other_name_of_the_mechanism_is_known() -> None:
    lines = {key.replace("mechanism", "mechanisms"): value for key, value in LOGIN.items()}

    assert parse(text(lines), FILE, {}) == parse(text(LOGIN), FILE, {})


def test_a_password_may_come_from_the_environment_as_a_secret_s_key_does() -> None:
    security = parse(text(LOGIN), FILE, {"SLACKTIDE_KAFKA_SASL_PASSWORD": "newer"})

    assert security.password == "newer"
    assert str(security) == "SASL_SSL, SCRAM-SHA-512 as slacktide-agent"


def test_without_a_word_a_connection_is_plain() -> None:
    assert read_kafka_config(None, {}) == Cluster("kafka-1:9092").security == Security()
    assert client(Cluster("kafka-1:9092")) == {"bootstrap_servers": "kafka-1:9092", "security_protocol": "PLAINTEXT"}


def test_the_files_of_the_page_are_files() -> None:
    """And its table has all keys."""
    page = (ROOT / "docs/secured-kafka.md").read_text()
    blocks = [block for block in page.split("```")[1::2] if "security.protocol" in block]
    files = [
        block.partition("<<END\n")[2].partition("END\n")[0].replace("$part", "stream") or block for block in blocks
    ]

    assert [str(parse(file, FILE, {})) for file in files] == [
        "SASL_SSL, SCRAM-SHA-512 as slacktide-agent",
        "SASL_SSL, SCRAM-SHA-512 as slacktide-stream",
        "SASL_SSL, OAUTHBEARER as the token in file:///var/run/secrets/kafka/token",
    ]
    assert all(f"`{key}`" in page for key in KEYS)


def test_the_embedded_broker_s_parts_hear_nothing_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLACKTIDE_KAFKA_CONFIG", FILE)
    monkeypatch.setenv("SLACKTIDE_KAFKA_SASL_PASSWORD", "hunter2")
    monkeypatch.setenv("SLACKTIDE_NODE_NAME", "db-7")

    forget_kafka_environment()
    assert not [name for name in os.environ if name.startswith("SLACKTIDE_KAFKA_")]
    assert os.environ["SLACKTIDE_NODE_NAME"] == "db-7"


def asked(*arguments: str, **environment: str) -> tuple[int, str]:
    done = CliRunner().invoke(cli, ["topics", "list", "--bootstrap", "127.0.0.1:9", *arguments], env=environment)
    return done.exit_code, done.output


def test_a_file_that_is_not_there_is_told_before_anybody_is_asked(tmp_path: Path) -> None:
    code, said = asked("--kafka-config", str(tmp_path / "none.conf"))

    assert code == 1
    assert "none.conf: --kafka-config: No such file or directory: accepted: a file with lines KEY=VALUE" in said


@each_row("key", "content", "said")
def test_a_file_of_tls_that_is_none_is_told_by_its_key(tmp_path, key, content, said) -> None:
    named = tmp_path / "named.pem"
    if content is not None:
        named.write_text(content)
    lines = {"security.protocol": "SSL", key: str(named)}
    lines |= {"ssl.key.location": str(named)} if "certificate" in key else {}
    (tmp_path / FILE).write_text(text(lines))

    code, output = asked(SLACKTIDE_KAFKA_CONFIG=str(tmp_path / FILE))

    assert code == 1
    assert f"{FILE}: {key}: {named}: " in output
    assert said in output


@pytest.mark.parametrize(("mode", "warnings"), [(0o644, 1), (0o640, 0)])
def test_a_password_that_everybody_may_read_is_warned_of(tmp_path, caplog, mode, warnings) -> None:
    (tmp_path / FILE).write_text(text(LOGIN))
    (tmp_path / FILE).chmod(mode)

    assert read_kafka_config(tmp_path / FILE, {}).username == "slacktide-agent"
    assert caplog.text.count("to restrict access: chmod o= ") == warnings
    assert "hunter2" not in caplog.text


def test_how_a_process_connects_is_among_its_settings(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text(text(LOGIN))
    file = str(tmp_path / FILE)
    shown = CliRunner().invoke(cli, ["agent", "--kafka-config", file, "--show-settings"]).output

    assert any(line.split() == ["kafka-config", file, "flag", "--kafka-config"] for line in shown.splitlines())
