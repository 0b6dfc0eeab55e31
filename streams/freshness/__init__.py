"""Find silent nodes, and distinguish an outage of nodes from one of the pipeline."""
