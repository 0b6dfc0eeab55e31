"""One authority, and the certificates and kubeconfigs that it signs. Made by openssl, good for a day."""

import base64
import json
import secrets
import subprocess
from pathlib import Path


def _openssl(*args: str | Path) -> None:
    subprocess.run(["openssl", *map(str, args)], check=True, capture_output=True)


class Pki:
    """A folder of keys and certificates: ``ca``, the service accounts' ``sa``, and what is asked for by name."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.folder = folder
        self.ca = folder / "ca.crt"
        _openssl("ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", folder / "ca.key")
        usage = "keyUsage=critical,keyCertSign,digitalSignature"
        subject = ["-subj", "/CN=slacktide-testbed", "-days", "1", "-addext", usage]
        _openssl("req", "-x509", "-new", "-key", folder / "ca.key", *subject, "-out", self.ca)
        self.sa_key, self.sa_pub = folder / "sa.key", folder / "sa.pub"
        _openssl("ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", self.sa_key)
        _openssl("ec", "-in", self.sa_key, "-pubout", "-out", self.sa_pub)

    def certificate(self, name: str, subject: str, names: str = "") -> tuple[Path, Path]:
        """A certificate for client and server, and its key; ``names`` as openssl's subjectAltName."""
        crt, key, ext, csr = (self.folder / f"{name}.{end}" for end in ("crt", "key", "ext", "csr"))
        if crt.exists():
            return crt, key
        # Python's strict verification wants the first three.
        wanted = [
            "basicConstraints=critical,CA:FALSE",
            "keyUsage=critical,digitalSignature",
            "authorityKeyIdentifier=keyid",
            "extendedKeyUsage=clientAuth,serverAuth",
        ]
        ext.write_text("\n".join([*wanted, f"subjectAltName={names}"] if names else wanted))
        _openssl("ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", key)
        _openssl("req", "-new", "-key", key, "-subj", subject, "-out", csr)
        signed_by = ["-CA", self.ca, "-CAkey", self.folder / "ca.key", "-set_serial", f"0x{secrets.token_hex(8)}"]
        _openssl("x509", "-req", "-in", csr, *signed_by, "-days", "1", "-extfile", ext, "-out", crt)
        return crt, key

    def kubeconfig(self, path: Path, url: str, user: dict[str, str]) -> Path:
        """A kubeconfig (JSON is YAML) with everything inside: ``user`` is its one user's entry."""
        ca = base64.b64encode(self.ca.read_bytes()).decode()
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "testbed",
            "contexts": [{"name": "testbed", "context": {"cluster": "testbed", "user": "testbed"}}],
            "clusters": [{"name": "testbed", "cluster": {"server": url, "certificate-authority-data": ca}}],
            "users": [{"name": "testbed", "user": user}],
        }
        path.touch(mode=0o600)
        path.write_text(json.dumps(config, indent=1))
        return path

    def client(self, path: Path, url: str, subject: str) -> Path:
        """A kubeconfig for a user known by certificate: ``/O=GROUP/CN=NAME``."""
        crt, key = (base64.b64encode(each.read_bytes()).decode() for each in self.certificate(path.name, subject))
        return self.kubeconfig(path, url, {"client-certificate-data": crt, "client-key-data": key})
