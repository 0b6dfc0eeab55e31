"""Windows over samples: what NodeMetric is averaged from."""
