"""Graphs from a user's own files."""
