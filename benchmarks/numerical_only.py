"""Import this before exhume to run from source where only the numerical packages are installed.

Measuring neither downloads nor writes web pages, so stand-ins will do for the packages that would.
"""

import importlib.util
import sys
from importlib.machinery import ModuleSpec
from unittest.mock import MagicMock

for _name in ("pooch", "jinja2"):
    if importlib.util.find_spec(_name) is None:
        # With a specification, so that whoever asks next whether the package is there is answered.
        sys.modules[_name] = MagicMock(__spec__=ModuleSpec(_name, None))
