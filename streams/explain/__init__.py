"""What records show of a node or a pod, and why. Pure: records in, an explanation out; no rule is written twice."""
