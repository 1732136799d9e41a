"""The models that exo knows by name."""
