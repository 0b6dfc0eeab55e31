"""Tries each part's login to Kafka with the part's own file. Nothing is written to Kafka."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

from slacktide.deploy.cli.doctor.facts import LoginFacts
from slacktide.schemas.access import ADMINISTRATOR, IN_THE_LOOP, Part
from slacktide.schemas.connection import TOKEN_URL, Cluster, Security, parse
from slacktide.schemas.errors import ConfigError, LogError
from slacktide.streams.kafka.connecting import tls
from slacktide.streams.kafka.probe import lacking

FILE, TOKEN = "kafka.conf", "token"
MOUNTED = "/etc/slacktide/kafka"
"""The folder with each part's file and the files that it names."""


async def gather(addresses: str, folder: Path) -> list[LoginFacts]:
    """Try all parts that have a folder of their name here, concurrently.

    Args:
        addresses: addresses of Kafka brokers.
        folder: has each part's copy of ``/etc/slacktide/kafka``, and a ``token`` for a login by token.
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
    """Read the settings as the part does, with the files that they name in this folder."""
    text = (folder / FILE).read_text(errors="replace").replace(f"{MOUNTED}/", f"{folder}/")
    security = parse(text, str(folder / FILE), {})
    if security.encrypted:
        tls(security)
    if security.token_url and (folder / TOKEN).is_file():
        return replace(security, token_url=f"{TOKEN_URL}{(folder / TOKEN).absolute()}")
    return security
