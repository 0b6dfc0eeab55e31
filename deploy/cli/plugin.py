"""``kubectl slacktide``: a command that reads Kafka runs in a pod of the stream processors, which reach it."""

import os
import subprocess
import sys
from collections.abc import Sequence

from slacktide.deploy.cli.main import main as here

READS = {"audit", "dead-letter", "explain", "nodes", "policy compare", "queue outcome", "top", "topics"}
"""Commands that read Kafka, and no file of this machine."""
ADDRESS, VARIABLE = "--bootstrap", "SLACKTIDE_BOOTSTRAP"
SELECTOR = "app.kubernetes.io/name=slacktide,app.kubernetes.io/component=stream"


def runs_in_cluster(arguments: Sequence[str]) -> bool:
    """Return whether a command reads Kafka, and has no address of it from its arguments or the environment."""
    words = [one for one in arguments if not one.startswith("-")]
    addressed = VARIABLE in os.environ or any(one.partition("=")[0] in {ADDRESS, "-h", "--help"} for one in arguments)
    return not addressed and bool({" ".join(words[:1]), " ".join(words[:2])} & READS)


def main() -> None:
    """Run the process's arguments: here, or by ``kubectl exec`` in the cluster of the current context."""
    arguments = sys.argv[1:]
    if not runs_in_cluster(arguments):
        here()
        return
    where = "-o=jsonpath={.items[0].metadata.namespace} {.items[0].metadata.name}"
    asked = ["kubectl", "get", "deployments", "--all-namespaces", f"--selector={SELECTOR}", where]
    try:
        found = subprocess.check_output(asked, stderr=subprocess.DEVNULL, text=True)  # noqa: S603 - of this function
    except (FileNotFoundError, subprocess.CalledProcessError):
        sys.exit(
            "Error: kubectl names no Deployment with the labels of Slacktide's stream processors in this cluster: "
            f"check `kubectl get deployments -A`, or give Kafka's address as {ADDRESS}"
        )
    namespace, name = found.split()
    terminal = ["--tty"] if sys.stdin.isatty() and sys.stdout.isatty() else []
    place = [f"--namespace={namespace}", f"deployment/{name}", "--container=stream"]
    command = ["kubectl", "exec", "--stdin", *terminal, *place, "--", "slacktide", *arguments]
    os.execvp(command[0], command)  # noqa: S606 - no shell reads them
