"""Learns how much best-effort work slows down each service, without Kafka: minutes in, profiles and slopes out."""
