"""A driver as Spark's: makes its executors through the API, waits for them to end, adds up what they computed."""

import json
import os
import pathlib
import ssl
import sys
import time
import urllib.request

ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
HOST = f"https://{os.environ['KUBERNETES_SERVICE_HOST']}:{os.environ['KUBERNETES_SERVICE_PORT']}"
PODS = f"{HOST}/api/v1/namespaces/{os.environ['NAMESPACE']}/pods"
TLS = ssl.create_default_context(cafile=f"{ACCOUNT}/ca.crt")


def ask(method, url, body=None):
    token = pathlib.Path(ACCOUNT, "token").read_text()
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    raw = json.dumps(body).encode() if body else None
    request = urllib.request.Request(url, raw, headers, method=method)
    with urllib.request.urlopen(request, context=TLS) as answer:
        return json.load(answer)


OWNER = {"apiVersion": "v1", "kind": "Pod", "name": "spark-pi-driver", "uid": os.environ["POD_UID"]}
SIZE = {"cpu": "1", "memory": "1Gi"}
for number in (1, 2):
    executor = {
        "name": "executor",
        "image": "python:3.9",
        "command": ["python", "-c", f"print(sum(4 * (-1) ** i / (2 * i + 1) for i in range({number} - 1, 10**6, 2)))"],
        "resources": {"requests": SIZE, "limits": SIZE},
    }
    labels = {"app-type": "batch", "spark-role": "executor"}
    ask(
        "POST",
        PODS,
        {
            "metadata": {"name": f"spark-pi-exec-{number}", "labels": labels, "ownerReferences": [OWNER]},
            "spec": {"containers": [executor], "restartPolicy": "Never"},
        },
    )
while True:
    made = ask("GET", f"{PODS}?labelSelector=spark-role%3Dexecutor")["items"]
    if all(each["status"]["phase"] == "Succeeded" for each in made):
        break
    time.sleep(0.5)
logs = [f"{PODS}/{each['metadata']['name']}/log" for each in made]
pi = sum(ask("GET", url) for url in logs)
sys.stdout.write(f"Pi is roughly {pi:.4f}\n")
