"""What records hold: messages, topics table, codec, units, QoS bands, policy, errors."""

assert __name__ == "slacktide.schemas", "import slacktide.schemas, not schemas: a second copy would be loaded"
