"""Attacks: each one file, one frozen dataclass, one ``run``."""
