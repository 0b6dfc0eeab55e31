"""What tests and benchmarks stand on: brokers, and what this machine can offer."""
