"""The outcome of each suite against its list of expected failures.

usage: verdict.py EXPECTED_DIR RESULTS_DIR SUITE...

EXPECTED_DIR/SUITE.txt: `# reason` lines, each followed by the names it is the reason for; `*` at the end of a name
stands for any rest. RESULTS_DIR/SUITE.txt: `passed|failed|skipped NAME`; a name that comes twice was run twice, and
being skipped once does not count. Exit status 1 when a test failed or was skipped that is not in the list, when one in
the list passed or is not there, and when there are no results.
"""

import sys
from fnmatch import fnmatchcase
from pathlib import Path


def results(file):
    outcomes = {}
    for line in file.read_text().splitlines() if file.exists() else []:
        outcome, name = line.split(" ", 1)
        before = outcomes.get(name, "skipped")
        if before != "failed":
            outcomes[name] = outcome if outcome != "skipped" else before
    return outcomes


def expected(file):
    lines = (line.strip() for line in file.read_text().splitlines())
    return [line for line in lines if line and not line.startswith("#")]


def judge(outcomes, patterns):
    """What is wrong, a line each, and the three counts of the table."""
    wrong, passed, left_out, failed = [], 0, 0, 0
    used = set()
    for name, outcome in outcomes.items():
        matching = [p for p in patterns if (fnmatchcase(name, p) if p.endswith("*") else name == p)]
        used.update(matching)
        if outcome == "passed":
            passed += 1
            if matching:
                wrong.append(f"passed, but is expected to fail: {name}")
        elif matching:
            left_out += 1
        else:
            failed += 1
            wrong.append(f"{outcome}: {name}")
    wrong += [f"expected to fail, but there is no such test: {p}" for p in patterns if p not in used]
    if not outcomes:
        wrong.append("no results")
    return wrong, (passed, left_out, failed)


def main(expected_dir, results_dir, *suites):
    table, good = [], True
    for suite in suites:
        wrong, counts = judge(results(Path(results_dir, f"{suite}.txt")), expected(Path(expected_dir, f"{suite}.txt")))
        table.append((suite, *map(str, counts)))
        for line in wrong:
            print(f"{suite}: {line}")
        good = good and not wrong
    for row in [("suite", "passed", "left out", "failed"), *table]:
        print(f"{row[0]:<14}" + "".join(f"{cell:>10}" for cell in row[1:]))
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
