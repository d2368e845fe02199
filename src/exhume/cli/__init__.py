"""The command line: every step from data to verdict, for readers and for scripts."""

from exhume.cli.app import app, main

__all__ = ["app", "main"]
