"""Virtual nodes: a small kernel model, in memory or as cgroup files in a folder."""
