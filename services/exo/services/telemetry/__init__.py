"""What a machine measures of itself, and the newest sample of every machine."""
