"""The README as package indexes show it: there, links to files of the repository and its pictures lead nowhere."""

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface


def without_relative_links(text: str) -> str:
    """Return Markdown with relative links as plain text, and without relative pictures and their captions.

    >>> without_relative_links("See [defences](docs/defences.md) and [this](https://example.org/paper).")
    'See defences and [this](https://example.org/paper).'
    """
    text = re.sub(r"^!\[[^\]]*\]\((?!https?:)[^)]*\)\n+(?:\*[^*]+\*\n+)?", "", text, flags=re.MULTILINE)
    return re.sub(r"\[([^\]]+)\]\((?!https?:)[^)\s]+\)", r"\1", text)


class ReadmeHook(MetadataHookInterface):
    """Write the README into the metadata of a package."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Set the description."""
        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        metadata["readme"] = {"content-type": "text/markdown", "text": without_relative_links(text)}
