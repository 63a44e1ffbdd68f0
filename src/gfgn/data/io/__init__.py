"""Readers of a user's own files."""
