"""Upstream exo's JSON shapes of models and instances, to and from our own types. Pure."""
