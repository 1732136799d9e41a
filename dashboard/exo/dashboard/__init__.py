"""The pages that exo serves at its root: found, described and handed over as bytes. The gateway sends them."""

from exo.dashboard.assets import Asset, find_asset

__all__ = ["Asset", "find_asset"]
