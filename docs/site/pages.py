"""A hook of mkdocs: pages of the guide that are made of files outside of docs/.

The README is the first page, the changelog and the notes for contributors are pages, and every
other file that a page links to, such as a module, becomes a page that shows it. So a link works here as it does in the
repository, and mkdocs, which is strict, finds those that do not.
"""

import os
import re
from pathlib import Path, PurePosixPath

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[2]
_PAGES = {"README.md": "index.md", "CHANGELOG.md": "changelog.md", "CONTRIBUTING.md": "contributing.md"}
_LINK = re.compile(r"(?<=\]\()([^)#\s]+)(?=[)#])")
_LANGUAGES = {".py": "python", ".toml": "toml", ".yaml": "yaml", ".yml": "yaml"}


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Add sections for the decisions and for documents that the navigation does not name."""
    named = set(re.findall(r"[\w/.-]+\.md", str(config.nav)))
    others = sorted(path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md"))
    others = [name for name in others if name not in named]
    sections = {
        "More": [name for name in others if not name.startswith("decisions/")],
        "Decisions": [name for name in others if name.startswith("decisions/")],
    }
    config.nav = [*(config.nav or []), *({title: names} for title, names in sections.items() if names)]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages: those by name, and those that any page links to, until there is none left."""
    waiting = [*_PAGES, *(f"docs/{file.src_uri}" for file in files.documentation_pages() if not file.generated_by)]
    seen = set(waiting)
    while waiting:
        path = waiting.pop()
        text = _page_text(path)
        if path in _PAGES or _uri(path).startswith("source/"):
            files.append(File.generated(config, _uri(path), content=_rewrite(path, text)))
        for target in sorted({_target(path, link) for link in _LINK.findall(text)} - seen - {None}):
            if not target.startswith("docs/") or (ROOT / target).is_dir():
                waiting.append(target)
                seen.add(target)
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Let the links of a document lead to the pages of this guide."""
    return markdown if page.file.generated_by else _rewrite(f"docs/{page.file.src_uri}", markdown)


def _page_text(path: str) -> str:
    """Return the Markdown of a page that shows a file or the list of a folder."""
    place = ROOT / path
    if place.is_dir():
        names = sorted(each.name for each in place.iterdir() if each.suffix in (".py", ".md", ".toml", ".yaml"))
        return f"# {path}\n\n" + "".join(f"- [{name}]({name})\n" for name in names)
    text = place.read_text()
    if place.suffix == ".md":
        return text
    return f"# {path}\n\n````{_LANGUAGES.get(place.suffix, 'text')}\n{text}\n````\n"


def _uri(path: str) -> str:
    """Return where the page of a file of the repository is."""
    if path.startswith("docs/") and (ROOT / path).is_file():
        return path.removeprefix("docs/")
    if path in _PAGES:
        return _PAGES[path]
    if (ROOT / path).is_dir():
        return f"source/{path}/index.md"
    return f"source/{path if path.endswith('.md') else f'{path}.md'}"


def _target(path: str, link: str) -> str | None:
    """Return the file of the repository that a link means, or None for other links."""
    base = PurePosixPath(path) if (ROOT / path).is_dir() else PurePosixPath(path).parent
    found = os.path.normpath(base / link)
    return None if "://" in link or found.startswith("..") or not (ROOT / found).exists() else found


def _rewrite(path: str, text: str) -> str:
    """Return a text whose links lead to pages; a link to nothing is left as it is, for mkdocs to find."""
    here = PurePosixPath(_uri(path)).parent

    def replaced(link: re.Match[str]) -> str:
        target = _target(path, link[1])
        return link[1] if target is None else os.path.relpath(_uri(target), here)

    return text if path.endswith(".py") else _LINK.sub(replaced, text)
