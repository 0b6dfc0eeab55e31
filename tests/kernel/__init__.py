"""Tests on real kernels: cgroup v1 of this machine, v2 in user-mode Linux and in QEMU."""
