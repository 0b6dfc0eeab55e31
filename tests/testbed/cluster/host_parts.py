"""Slacktide's parts as processes of the machine that is the test bed's node, where no image of them is needed."""

from pathlib import Path

from .real_node import RealNode

NAMESPACE = "slacktide-system"
TOKEN_S = 24 * 3600


def agent_arguments(node: RealNode, bootstrap: str, state: Path) -> list[str]:
    """Of ``slacktide agent``: the kubelet lists the pods, and the API server evicts them."""
    crt, key = node.pki.certificate("kubelet-client", "/O=system:masters/CN=kubelet-client")
    given = {
        "bootstrap": bootstrap,
        "node-name": node.name,
        "kubelet": f"https://127.0.0.1:{node.kubelet_port}",
        "kubelet-ca": node.ca,
        "kubelet-cert": crt,
        "kubelet-key": key,
        "kubelet-folder": node.folder / "kubelet",
        "api-server": node.url,
        "api-token": _token(node),
        "api-ca": node.ca,
        "state-folder": state,
    }
    return [f"--{name}={value}" for name, value in given.items()]


def _token(node: RealNode) -> Path:
    """Of an account that may evict any pod: the fence of the webhook is not there."""
    if not node.exists(f"/api/v1/namespaces/{NAMESPACE}"):
        node.post("/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
    account = node.account(NAMESPACE, "slacktide-agent", seconds=TOKEN_S)
    node.apply(f"""\
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {{name: slacktide-agent-on-host}}
roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}}
subjects: [{{kind: ServiceAccount, name: slacktide-agent, namespace: {NAMESPACE}}}]
""")
    file = node.folder / "agent.token"
    file.write_text(account.token)
    return file


def bridge_arguments(node: RealNode, bootstrap: str, policy_namespace: str) -> list[str]:
    """Of ``slacktide bridge``, as the admin."""
    given = {"bootstrap": bootstrap, "kubeconfig": node.kubeconfig, "namespace": NAMESPACE}
    return [f"--{name}={value}" for name, value in (given | {"policy-namespace": policy_namespace}).items()]
