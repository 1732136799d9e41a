"""One operating-system process per shard: loads a model, answers requests, talks through a pipe."""
