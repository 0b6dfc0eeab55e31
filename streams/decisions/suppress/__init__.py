"""Computes the CPU limits of best-effort pods: quota, CPU set and pressure. Pure."""
