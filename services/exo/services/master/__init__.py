"""The master: turns commands into decisions, one at a time, and sweeps up after nodes that are gone."""
