"""Tables in documents that a benchmark writes between two marks."""

from pathlib import Path

from rofl.data.atomic import atomic_write


def write_table(page: Path, begin: str, end: str, table: str) -> None:
    """Replace what stands between two marks of a document; without the marks, append it.

    Args:
        page: the document.
        begin: the first mark, alone on its line.
        end: the second one.
        table: Markdown.
    """
    before, _, rest = page.read_text().partition(begin)
    atomic_write(page, f"{before}{begin}\n{table}\n{end}{rest.partition(end)[2]}")
