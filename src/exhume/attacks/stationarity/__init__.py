"""MaxMargin and Stationarity: recovery from the final weights alone."""

from exhume.attacks.stationarity.max_margin import MaxMargin
from exhume.attacks.stationarity.stationarity import Stationarity

__all__ = ["MaxMargin", "Stationarity"]
