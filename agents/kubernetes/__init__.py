"""Client of the Kubernetes API server, built on kubernetes-asyncio's configuration and client.

Needs the extra ``[cluster]``. Objects are decoded into the type that the caller gives: ``dict``, or a msgspec struct of
the fields that it reads. Nothing is cached or retried: callers handle errors.
"""
