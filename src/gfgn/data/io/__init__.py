"""Graphs from a user's own files."""

from gfgn.data.io.assemble import DataError, Progress
from gfgn.data.io.read import Reading, describe_reading, read, read_with_notes

__all__ = ["DataError", "Progress", "Reading", "describe_reading", "read", "read_with_notes"]
