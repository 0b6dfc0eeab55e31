"""``slacktide doctor``: checks whether a machine and its Kafka cluster are ready for an agent and a worker."""
