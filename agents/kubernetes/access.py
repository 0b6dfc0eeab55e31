"""Address and credentials of the API server, from a kubeconfig or a pod's service account."""

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
"""Interval of refreshing a kubeconfig's token, which may come from a program or file and expire."""

_TROUBLE = (ConfigException, OSError, ValueError, KeyError, TypeError, AttributeError, yaml.YAMLError)


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """One API server and one identity."""

    configuration: Configuration
    namespace: str = "default"


async def access(kubeconfig: Path | None = None) -> Access:
    """Load the given file; else $KUBECONFIG; else the pod's service account; else ``~/.kube/config``.

    Raises:
        ConfigError: none exists, or it is unusable: file, what is wrong, what is accepted.
    """
    named = os.environ.get("KUBECONFIG", "")
    if kubeconfig is not None or named:
        return await of_kubeconfig(kubeconfig or Path(named))
    if os.environ.get("KUBERNETES_SERVICE_HOST"):
        return of_service_account(SERVICE_ACCOUNT)
    return await of_kubeconfig(Path.home() / ".kube" / "config")


def of_service_account(folder: Path) -> Access:
    """Return the access of this process' pod. The environment has the API server's address.

    Raises:
        ConfigError: the folder lacks ``token``, ``ca.crt`` or ``namespace``. The token is read again each minute.
    """
    configuration = Configuration()
    try:
        InClusterConfigLoader(str(folder / "token"), str(folder / "ca.crt")).load_and_set(configuration)
        namespace = (folder / "namespace").read_text().strip()
    except _TROUBLE as exc:
        raise _refused(folder, exc, "the files of a service account: set KUBECONFIG, or run in a pod") from exc
    return Access(configuration=configuration, namespace=namespace)


async def of_kubeconfig(path: Path) -> Access:
    """Return the access by the current context. Raises ConfigError if the file is unreadable or unusable."""
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
    return any(Path(one).expanduser().exists() for one in str(path).split(os.pathsep) if one)


class _Renewal:
    def __init__(self, loader: KubeConfigLoader) -> None:
        self._loader = loader
        self._read_s = asyncio.get_running_loop().time()

    async def __call__(self, configuration: Configuration) -> None:
        now_s = asyncio.get_running_loop().time()
        if now_s - self._read_s >= RENEW_S:
            self._read_s = now_s
            await self._loader.load_and_set(configuration)


def _refused(place: Path, why: Exception, accepted: str) -> ConfigError:
    # A loader's own error for a malformed file would not help the reader.
    found = "not of that kind" if isinstance(why, TypeError | AttributeError) else f"{why}"
    return ConfigError([Finding(file=str(place), field="the file", value=found, accepted=accepted)])
