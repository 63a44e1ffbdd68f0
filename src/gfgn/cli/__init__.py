"""The command `gfgn`."""

from gfgn.cli.app import main

__all__ = ["main"]
