"""Clues: what anybody can read off a view before any attack runs, computed once per view."""
