"""What feeds the worker and the governor from Kafka, and carries out what they decide."""
