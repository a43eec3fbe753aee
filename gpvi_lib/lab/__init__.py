"""What runs experiments and keeps their results: cells, records, sweeps, the queue, and where they ran."""
