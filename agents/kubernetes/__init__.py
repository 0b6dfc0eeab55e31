"""Client of the Kubernetes API server, built on kubernetes-asyncio's configuration and client.

Needs the extra ``[cluster]``. Objects are decoded into the type that the caller gives: ``dict``, or a msgspec struct of
the fields that it reads. Nothing is cached or retried: callers handle errors.
"""

from __future__ import annotations

from slacktide.agents.kubernetes.access import Access, access
from slacktide.agents.kubernetes.api_server import ApiServer, Listed, Patch
from slacktide.agents.kubernetes.follow import Changed, Gone, Over, Trouble, Whole, follow
from slacktide.agents.kubernetes.resource import (
    CLUSTER_ROLE_BINDINGS,
    CLUSTER_ROLES,
    CONFIGMAPS,
    CRDS,
    DEPLOYMENTS,
    EVENTS,
    JOBS,
    LEASES,
    LIMIT_RANGES,
    MUTATING_WEBHOOKS,
    NAMESPACES,
    NODE_METRICS,
    NODE_RESOURCE_TOPOLOGIES,
    NODES,
    PODS,
    PRIORITY_CLASSES,
    PROFILES,
    RESOURCE_QUOTAS,
    SECRETS,
    SERVICE_ACCOUNTS,
    TOKEN_REVIEWS,
    VALIDATING_WEBHOOKS,
    ApiAwayError,
    ApiError,
    ApiRefusedError,
    Event,
    Resource,
)

__all__ = [
    "CLUSTER_ROLES",
    "CLUSTER_ROLE_BINDINGS",
    "CONFIGMAPS",
    "CRDS",
    "DEPLOYMENTS",
    "EVENTS",
    "JOBS",
    "LEASES",
    "LIMIT_RANGES",
    "MUTATING_WEBHOOKS",
    "NAMESPACES",
    "NODES",
    "NODE_METRICS",
    "NODE_RESOURCE_TOPOLOGIES",
    "PODS",
    "PRIORITY_CLASSES",
    "PROFILES",
    "RESOURCE_QUOTAS",
    "SECRETS",
    "SERVICE_ACCOUNTS",
    "TOKEN_REVIEWS",
    "VALIDATING_WEBHOOKS",
    "Access",
    "ApiAwayError",
    "ApiError",
    "ApiRefusedError",
    "ApiServer",
    "Changed",
    "Event",
    "Gone",
    "Listed",
    "Over",
    "Patch",
    "Resource",
    "Trouble",
    "Whole",
    "access",
    "follow",
]
