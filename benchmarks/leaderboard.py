"""The tables of docs/benchmark.md and the picture of the ranking, from the finished cells of `rofl benchmark`.

    rofl benchmark all --scale tiny                        # runs what is missing
    python -m benchmarks.leaderboard                       # prints the tables
    python -m benchmarks.leaderboard --write               # writes them into docs/benchmark.md, with picture and record

The figures of all cells are kept in benchmarks/records/benchmark-tiny.json.
"""

import argparse
from pathlib import Path

from rofl.data.atomic import atomic_write
from rofl.report import write_ranking_picture
from rofl.reproduce import make_benchmark_plan
from rofl.reproduce.benchmark_files import benchmark_markdown, write_benchmark_files
from rofl.reproduce.leaderboard import collect_leaderboard
from rofl.reproduce.run_cache import RunCache

PAGE = Path("docs/benchmark.md")
PICTURE = Path("docs/images/benchmark.svg")
RECORD = Path("benchmarks/records/benchmark-tiny.json")
BEGIN, END = "<!-- begin: python -m benchmarks.leaderboard --write -->", "<!-- end -->"


def with_tables(page: str, tables: str) -> str:
    """Return the page with these tables between its markers."""
    before, _, rest = page.partition(BEGIN)
    after = rest.partition(END)[2]
    return f"{before}{BEGIN}\n{tables}{END}{after}"


def main() -> None:
    """Print or write the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="write the page, the picture and the record")
    parser.add_argument("--out", type=Path, default=Path("runs/benchmark"), help="the folder of `rofl benchmark`")
    parser.add_argument("--cells", default="", help="only these methods and settings, as for `rofl benchmark`")
    parser.add_argument("--seeds", type=int, default=0, help="runs of each cell, as for `rofl benchmark`")
    options = parser.parse_args()
    cells = [cell.strip() for cell in options.cells.split(",") if cell.strip()]
    plan = make_benchmark_plan("all", cells=cells, seeds=options.seeds, out=options.out)
    board = collect_leaderboard(plan, RunCache(plan.cells_dir), {})
    if not options.write:
        print(benchmark_markdown(board))
        return
    write_benchmark_files(board)
    atomic_write(RECORD, (plan.out / f"{plan.name}.json").read_text())
    pictured = bool(board.steps_ranking.methods)
    if pictured:
        write_ranking_picture(board.steps_ranking, "Methods against wrong labels, at equal gradient steps", PICTURE)
    picture = "![Mean ranks of the methods](images/benchmark.svg)\n\n" if pictured else ""
    atomic_write(PAGE, with_tables(PAGE.read_text(), f"{picture}{benchmark_markdown(board)}"))


if __name__ == "__main__":
    main()
