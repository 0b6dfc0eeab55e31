"""Where the API server is, and as whom it is spoken to: a kubeconfig, or a pod's service account."""

from __future__ import annotations

import base64
import binascii
import os
import ssl
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from slacktide.schemas.errors import ConfigError, Finding

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """One API server and one identity."""

    server: str
    """URL without a slash at its end."""
    tls: ssl.SSLContext
    tls_name: str = ""
    """Name in the server's certificate; "": that of the URL."""
    token: str = ""
    token_file: Path | None = None
    """Read with each request: the kubelet renews it."""
    namespace: str = "default"

    def headers(self) -> dict[str, str]:
        """What a request carries to say who asks.

        Raises:
            ConfigError: the token's file cannot be read.

        """
        token = self.token if self.token_file is None else _text(self.token_file).strip()
        return {"Authorization": f"Bearer {token}"} if token else {}


def access(kubeconfig: Path | None = None) -> Access:
    """The file given; else that of $KUBECONFIG; else the pod's service account; else ``~/.kube/config``.

    Raises:
        ConfigError: none of them is there, or it cannot be used: file, field, what is accepted.

    """
    named = os.environ.get("KUBECONFIG", "")
    if kubeconfig is not None or named:
        return of_kubeconfig(kubeconfig or Path(named))
    host = os.environ.get("KUBERNETES_SERVICE_HOST", "")
    if host:
        return of_service_account(host, os.environ.get("KUBERNETES_SERVICE_PORT", "443"), SERVICE_ACCOUNT)
    return of_kubeconfig(Path.home() / ".kube" / "config")


def of_service_account(host: str, port: str, folder: Path) -> Access:
    """As the pod that this process runs in.

    Args:
        host: of the API server; an IPv6 address without brackets.
        port: of the API server.
        folder: where the kubelet put ``token``, ``ca.crt`` and ``namespace``.

    Raises:
        ConfigError: a file of the service account is not there.

    """
    _text(folder / "token")
    return Access(
        server=f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}",
        tls=_tls(folder / "ca.crt", _text(folder / "ca.crt"), check=True),
        token_file=folder / "token",
        namespace=_text(folder / "namespace").strip(),
    )


def of_kubeconfig(path: Path) -> Access:
    """As the current context says. Credentials made by a program (``exec``) are not run.

    Raises:
        ConfigError: the file cannot be read or used.

    """
    try:
        document = yaml.safe_load(_text(path))
    except yaml.YAMLError as exc:
        raise _refused(path, "", "not YAML", "a kubeconfig") from exc
    file = _File(path, document if isinstance(document, dict) else {})
    context = file.named("contexts", "context", file.text(file.document, "current-context", "current-context"))
    cluster = file.named("clusters", "cluster", file.text(context, "cluster", "context.cluster"))
    user = file.named("users", "user", file.text(context, "user", "context.user"))
    for refused in ("exec", "auth-provider", "username"):
        if refused in user:
            raise _refused(path, f"user.{refused}", "set", "a token, a tokenFile or a client certificate")
    tls = _tls(path, file.data(cluster, "certificate-authority"), check=not cluster.get("insecure-skip-tls-verify"))
    _identify(tls, file, user)
    return Access(
        server=file.text(cluster, "server", "cluster.server").rstrip("/"),
        tls=tls,
        tls_name=str(cluster.get("tls-server-name") or ""),
        token=str(user.get("token") or ""),
        token_file=file.beside(user["tokenFile"]) if user.get("tokenFile") else None,
        namespace=str(context.get("namespace") or "default"),
    )


class _File:
    """A kubeconfig, and what is wrong with it."""

    def __init__(self, path: Path, document: Mapping[str, Any]) -> None:
        self.path = path
        self.document = document

    def named(self, plural: str, singular: str, name: str) -> Mapping[str, Any]:
        """The entry of this name."""
        entries = self.document.get(plural)
        for entry in entries if isinstance(entries, list) else []:
            if isinstance(entry, dict) and entry.get("name") == name and isinstance(entry.get(singular), dict):
                found: Mapping[str, Any] = entry[singular]
                return found
        raise _refused(self.path, plural, f"no {name!r}", f"an entry with this name and its {singular}")

    def text(self, of: Mapping[str, Any], key: str, field: str) -> str:
        """A text that has to be there."""
        value = of.get(key)
        if not isinstance(value, str) or not value:
            raise _refused(self.path, field, repr(value), "a text")
        return value

    def beside(self, name: object) -> Path:
        """A file's path, which may be relative to the kubeconfig."""
        return self.path.parent / str(name)

    def data(self, of: Mapping[str, Any], key: str) -> str:
        """PEM text given within (``KEY-data``) or as a file; "" where there is none."""
        if given := of.get(f"{key}-data"):
            try:
                return base64.b64decode(given, validate=True).decode()
            except (binascii.Error, ValueError, TypeError) as exc:
                raise _refused(self.path, f"{key}-data", str(exc), "PEM text in base64") from exc
        return _text(self.beside(of[key])) if of.get(key) else ""


def _identify(tls: ssl.SSLContext, file: _File, user: Mapping[str, Any]) -> None:
    """Give the client's certificate to TLS, which reads it from files alone."""
    certificate, key = file.data(user, "client-certificate"), file.data(user, "client-key")
    if not certificate:
        return
    with tempfile.NamedTemporaryFile("w", suffix=".pem") as pem:  # only its owner can read it
        pem.write(f"{certificate}\n{key}\n")
        pem.flush()
        try:
            tls.load_cert_chain(pem.name)
        except (ssl.SSLError, OSError) as exc:
            raise _refused(file.path, "user.client-certificate", str(exc), "a certificate with its key") from exc


def _tls(file: Path, authority: str, *, check: bool) -> ssl.SSLContext:
    """Checks the server by this authority; "": by the system's."""
    try:
        context = ssl.create_default_context(cadata=authority or None)
    except (ssl.SSLError, ValueError) as exc:
        raise _refused(file, "certificate-authority", str(exc), "PEM text") from exc
    if not check:
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError) as exc:
        raise _refused(path, "", str(exc), "a file that can be read; set KUBECONFIG, or run in a pod") from exc


def _refused(path: Path, field: str, value: str, accepted: str) -> ConfigError:
    return ConfigError([Finding(file=str(path), field=field or "the file", value=value, accepted=accepted)])
