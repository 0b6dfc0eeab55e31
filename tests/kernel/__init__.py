"""Tests on real kernels: cgroup v1 of this machine, cgroup v2 in user-mode Linux (``cgroup2-vm``)."""
