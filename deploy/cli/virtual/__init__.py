"""Nodes without a kernel of their own: a small model of one, in memory or as cgroup files in a folder."""
