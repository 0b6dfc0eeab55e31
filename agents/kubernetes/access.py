"""Where the API server is, and as whom it is spoken to: a kubeconfig, or a pod's service account."""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass
from pathlib import Path

import yaml
from kubernetes_asyncio.client import Configuration
from kubernetes_asyncio.config import ConfigException
from kubernetes_asyncio.config.incluster_config import InClusterConfigLoader
from kubernetes_asyncio.config.kube_config import KubeConfigLoader, load_kube_config

from slacktide.schemas.errors import ConfigError, Finding

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
RENEW_S = 60.0
"""A kubeconfig's token may come from a program or a file, and expire: it is asked for again so often."""

_TROUBLE = (ConfigException, OSError, ValueError, KeyError, TypeError, AttributeError, yaml.YAMLError)
"""What the loaders raise for a file that is not there, or no such file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """One API server and one identity."""

    configuration: Configuration
    namespace: str = "default"


async def access(kubeconfig: Path | None = None) -> Access:
    """The file given; else that of $KUBECONFIG; else the pod's service account; else ``~/.kube/config``.

    Raises:
        ConfigError: none of them is there, or it cannot be used: file, what is wrong, what is accepted.

    """
    named = os.environ.get("KUBECONFIG", "")
    if kubeconfig is not None or named:
        return await of_kubeconfig(kubeconfig or Path(named))
    if os.environ.get("KUBERNETES_SERVICE_HOST"):
        return of_service_account(SERVICE_ACCOUNT)
    return await of_kubeconfig(Path.home() / ".kube" / "config")


def of_service_account(folder: Path) -> Access:
    """As the pod that this process runs in: its environment has the API server's address.

    Args:
        folder: where the kubelet put ``token``, ``ca.crt`` and ``namespace``; the token is read again each minute.

    Raises:
        ConfigError: one of them is not there.

    """
    configuration = Configuration()
    try:
        InClusterConfigLoader(str(folder / "token"), str(folder / "ca.crt")).load_and_set(configuration)
        namespace = (folder / "namespace").read_text().strip()
    except _TROUBLE as exc:
        raise _refused(folder, exc, "the files of a service account: set KUBECONFIG, or run in a pod") from exc
    return Access(configuration=configuration, namespace=namespace)


async def of_kubeconfig(path: Path) -> Access:
    """By the current context.

    Raises:
        ConfigError: the file cannot be read or used.

    """
    configuration = Configuration()
    try:
        if not _is_there(path):
            raise ConfigException("no such file")
        loader = await load_kube_config(str(path), client_configuration=configuration, persist_config=False)
        context = (loader.current_context or {})["context"]
    except _TROUBLE as exc:
        raise _refused(path, exc, "a kubeconfig that kubectl can use; or set KUBECONFIG, or run in a pod") from exc
    configuration.refresh_api_key_hook = _Renewal(loader)
    return Access(configuration=configuration, namespace=context.get("namespace") or "default")


def _is_there(path: Path) -> bool:
    """Of several, as $KUBECONFIG may name them, one will do."""
    return any(Path(one).expanduser().exists() for one in str(path).split(os.pathsep) if one)


class _Renewal:
    """Asks for the token again, as the kubeconfig has it."""

    def __init__(self, loader: KubeConfigLoader) -> None:
        self._loader = loader
        self._read_s = asyncio.get_running_loop().time()

    async def __call__(self, configuration: Configuration) -> None:
        now_s = asyncio.get_running_loop().time()
        if now_s - self._read_s >= RENEW_S:
            self._read_s = now_s
            await self._loader.load_and_set(configuration)


def _refused(place: Path, why: Exception, accepted: str) -> ConfigError:
    # What a loader trips over in a file of another kind describes the loader alone.
    found = "not of that kind" if isinstance(why, TypeError | AttributeError) else f"{why}"
    return ConfigError([Finding(file=str(place), field="the file", value=found, accepted=accepted)])
