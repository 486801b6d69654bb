"""Pages as a browser takes them apart: elements and their attributes, not strings."""

from html.parser import HTMLParser


class Page(HTMLParser):
    """All elements in order, and the text outside scripts and styles."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self._text: list[str] = []
        self._skipped = False
        self.feed(html)
        self.close()

    @property
    def text(self) -> str:
        """What a reader sees, with ordinary spaces."""
        return " ".join(" ".join(self._text).split())

    def all(self, tag: str, **attributes: str) -> list[dict[str, str | None]]:
        """The attributes of every element of a kind."""
        wanted = {name.rstrip("_"): value for name, value in attributes.items()}
        return [own for name, own in self.elements if name == tag and wanted.items() <= own.items()]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        self._skipped = tag in ("script", "style")

    def handle_endtag(self, tag: str) -> None:
        self._skipped = False

    def handle_data(self, data: str) -> None:
        if not self._skipped:
            self._text.append(data)
