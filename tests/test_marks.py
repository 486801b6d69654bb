"""How readable the source is stays measured: the static aims of docs/decisions/0011-one-redesign.md."""

from pathlib import Path
from statistics import median

import pytest
from benchmarks.walks import Walk

from benchmarks import marks


@pytest.fixture(scope="module")
def source() -> list[marks.SourceFile]:
    """All files; every worker collects this module, and one alone parses them."""
    return marks.read_source(marks.SOURCE)


def names(functions: list[marks.Function]) -> list[str]:
    return [f"{one} ({one.parameters} parameters)" for one in functions]


def test_rooms_are_few_and_one_alone_is_a_file() -> None:
    rooms = marks.rooms(marks.SOURCE)
    assert len(rooms) <= 14
    assert [room for room in rooms if (marks.SOURCE / f"{room}.py").is_file()] == ["errors"]


def test_docstrings_are_more_than_a_third_of_the_code(source: list[marks.SourceFile]) -> None:
    assert marks.docstring_ratio(source) >= 0.38


def test_every_public_name_has_a_docstring(source: list[marks.SourceFile]) -> None:
    assert [name for file in source for name in file.undocumented] == []


def test_public_functions_with_many_parameters_explain_them(source: list[marks.SourceFile]) -> None:
    many, missing = marks.without_args(source)
    assert len(many) > 50
    assert names(missing) == []


def test_no_function_has_more_than_eight_parameters_and_few_have_more_than_six(source: list[marks.SourceFile]) -> None:
    assert names(marks.over(source, 8)) == []
    assert len(marks.over(source, 6)) < 5, names(marks.over(source, 6))


def test_loose_types_are_rare(source: list[marks.SourceFile]) -> None:
    assert marks.loose_types(source).total() <= 15, marks.loose_types(source)


def test_flower_beyond_its_public_interface_is_in_one_folder(source: list[marks.SourceFile]) -> None:
    found = marks.flower_imports(source)
    assert found
    assert {path.rpartition("/")[0] for path, _, _ in found} == {marks.FLOWER_FOLDER}


def test_files_are_neither_crumbs_nor_long(source: list[marks.SourceFile]) -> None:
    lines = [file.code_lines for file in source if file.code_lines]
    assert median(lines) >= 55
    assert len([file.path for file in source if file.code_lines > 150]) <= 15


def test_a_file_name_is_used_once(source: list[marks.SourceFile]) -> None:
    assert marks.repeated_names(source) == {}


def test_functions_say_what_they_read_and_write(source: list[marks.SourceFile]) -> None:
    assert {name: names(found) for name, found in marks.bare_names(source).items() if found} == {}


@pytest.fixture
def small_source(tmp_path: Path) -> Path:
    """A package whose marks can be counted by hand."""
    texts = {
        "__init__.py": '"""Top."""\n',
        "alone.py": '"""One file."""\n\n# why\nvalue: dict[str, Any] = {}\nother: Mapping[str, Any]\n',
        "room/__init__.py": '"""A room."""\n',
        "room/alone.py": (
            '"""The same name again."""\n'
            "import flwr.proto.fleet_pb2\n"
            "from flwr.app import Message\n"
            "from flwr.supercore import log\n\n\n"
            "class Thing:\n"
            '    """A thing.\n\n    Args:\n        a: explained here.\n    """\n\n'
            "    def __init__(self, a, b, c): ...\n\n"
            "    def method(self, a, b, *c, d=1, **e):\n"
            '        """Do it."""\n\n'
            "    @staticmethod\n"
            "    def read(a): ...\n\n\n"
            "def read(a, b, c, d, e, f, g, h, i):\n"
            '    """Read it.\n\n    Args:\n        a: explained.\n    """\n'
            '    text = """not\n\na docstring"""\n\n\n'
            "def _private(a, b, c): ...\n\n\n"
            "class Base:\n"
            '    """A base class."""\n\n'
            "    def work(self, a, b, c):\n"
            '        """Work.\n\n        Args:\n            a: explained.\n        """\n\n\n'
            "class Child(other.Base[int]):\n"
            '    """Explained by its base class."""\n\n'
            "    def work(self, a, b, c):\n"
            '        """Work better."""\n'
        ),
        "cli/__init__.py": "",
        "cli/run.py": (
            '"""A command."""\n\n\n@app.command()\ndef run(a, b, c, d, e, f, g, h, i, j):\n    """Run."""\n'
        ),
    }
    for path, text in texts.items():
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_text(text)
    return tmp_path


def test_marks_of_a_small_package_are_those_counted_by_hand(small_source: Path) -> None:
    files = marks.read_source(small_source)
    by_path = {file.path: file for file in files}
    many, missing = marks.without_args(files)
    assert marks.rooms(small_source) == ["alone", "cli", "room"]
    assert (by_path["alone.py"].docstring_lines, by_path["alone.py"].code_lines) == (1, 2)
    assert (by_path["room/alone.py"].docstring_lines, by_path["room/alone.py"].code_lines) == (20, 17)
    assert [one.name for one in many] == ["Thing.__init__", "Thing.method", "read", "Base.work", "Child.work"]
    assert [one.name for one in missing] == ["Thing.method"]
    assert [(one.name, one.parameters) for one in marks.over(files, 4)] == [("read", 9), ("Thing.method", 5)]
    assert [one.name for one in marks.over(files, 8, commands=True)] == ["run"]
    assert marks.loose_types(files) == {"alone.py": 2}
    assert [line for _, line, _ in marks.flower_imports(files)] == [2, 4]
    assert marks.repeated_names(files) == {"alone.py": ["alone.py", "room/alone.py"]}
    assert [one.name for one in marks.bare_names(files)["read"]] == ["read"]
    assert by_path["room/alone.py"].undocumented == ["room/alone.py:20 Thing.read"]


def test_the_table_keeps_the_other_column(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("above\n<!-- marks -->\n<!-- end of marks -->\nbelow\n")
    marks.write_table(page, "before", {"rooms": "25 (13)", "gone": "1"})
    marks.write_table(page, "after", {"rooms": "14 (1)", "new": "2"})
    marks.write_table(page, "after", {"rooms": "13 (1)"})
    lines = page.read_text().splitlines()
    assert lines[0] == "above"
    assert lines[-1] == "below"
    assert "| rooms | 25 (13) | 13 (1) |  |" in lines
    assert "| gone | 1 |  |  |" in lines
    assert "| new |  | 2 |  |" in lines


def test_a_walk_counts_files_and_changes_of_room() -> None:
    steps = (("cli/run.py", "run"), ("data/scan.py", "scan"), ("data/scan.py", "load"), ("cli/run.py", "show"))
    walk = Walk(steps)
    assert (walk.files, walk.room_changes, str(walk)) == (2, 2, "2 / 2")
