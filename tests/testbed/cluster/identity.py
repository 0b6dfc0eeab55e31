"""As whom a test speaks to an API server."""

import asyncio
import concurrent.futures
from pathlib import Path

from slacktide.agents.kubernetes.access import Access, access


def access_of(kubeconfig: Path) -> Access:
    with concurrent.futures.ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, access(kubeconfig)).result()
