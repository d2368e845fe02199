"""Data sets: known sources, your own files, tasks, balanced draws with a hold-out set, and checked downloads."""

from exhume.data.downloads import fetch
from exhume.data.known_sources import Availability, available
from exhume.data.loading import load
from exhume.data.tasks import Classes

__all__ = ["Availability", "Classes", "available", "fetch", "load"]
