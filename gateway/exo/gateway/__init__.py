"""The only door to HTTP: dialects, management routes and the relays that carry answers to clients.

`exo.ops.up` builds the app with `exo.gateway.app.create_app` and runs it with `exo.gateway.serve`.
Nothing here decides about the cluster; it asks the master by commands and reads State.
"""
