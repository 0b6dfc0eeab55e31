"""Each part's login to Kafka, tried with the part's own file. Nothing is written to Kafka."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

from slacktide.deploy.cli.doctor.facts import LoginFacts
from slacktide.schemas.access import ADMINISTRATOR, IN_THE_LOOP, Part
from slacktide.schemas.connection import TOKEN_URL, Cluster, Security, parse
from slacktide.schemas.errors import ConfigError, LogError
from slacktide.streams.kafka.connecting import tls
from slacktide.streams.kafka.rights import lacking

FILE, TOKEN = "kafka.conf", "token"
MOUNTED = "/etc/slacktide/kafka"
"""Where each part has the folder with its file, and what the file names there."""


async def gather(addresses: str, folder: Path) -> list[LoginFacts]:
    """Try each part that has a folder of its name here, all at once.

    Args:
        addresses: of Kafka brokers.
        folder: its folders hold what each part has at ``/etc/slacktide/kafka``, and a ``token`` for a login by one.

    """
    there = [part for part in (*IN_THE_LOOP, ADMINISTRATOR) if (folder / part.name).is_dir()]
    return await asyncio.gather(*(_login(addresses, folder / part.name, part) for part in there))


async def _login(addresses: str, folder: Path, part: Part) -> LoginFacts:
    try:
        security = _security(folder)
        if security.token_url and not (folder / TOKEN).is_file():
            return LoginFacts(part=part.name, security=security, tried=False)
        lacks = await lacking(Cluster(addresses, security), part)
    except (ConfigError, LogError) as exc:
        return LoginFacts(part=part.name, trouble=str(exc))
    except OSError as exc:
        return LoginFacts(part=part.name, trouble=f"{folder / FILE}: {exc.strerror}")
    return LoginFacts(part=part.name, security=security, lacks=lacks)


def _security(folder: Path) -> Security:
    """As the part reads it, with the files that it names looked for here."""
    text = (folder / FILE).read_text(errors="replace").replace(f"{MOUNTED}/", f"{folder}/")
    security = parse(text, str(folder / FILE), {})
    if security.encrypted:
        tls(security)
    if security.token_url and (folder / TOKEN).is_file():
        return replace(security, token_url=f"{TOKEN_URL}{(folder / TOKEN).absolute()}")
    return security
