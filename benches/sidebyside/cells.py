#!/usr/bin/env python3
"""Runs chosen cells of the harness's matrix, interleaved: within a round every system runs a cell before the
next cell starts. Cell names are the harness's own (`--list` prints them), plus a few that it lacks; a pattern
such as 'w1*' or 'w8 256 b100' picks. Output lines are what the harness's report.py reads."""
import argparse
import fnmatch
import json
import subprocess
import sys
import time


def extra_cells(secs):
    """(id, qbench arguments) of cells that the harness's matrix lacks."""
    yield "w1 c16 off", f"--workload push --batch 1 --clients 16 --sync off --secs {secs} --warm 0.7"
    yield "w2 c1 off", f"--workload push --batch 100 --clients 1 --sync off --secs {secs} --warm 0.7"
    yield "w3 c1 off", f"--workload consume --batch 1 --clients 1 --sync off --secs {secs} --preload 30000"
    yield "w3 c4 on", f"--workload consume --batch 1 --clients 4 --sync on --secs {secs} --preload 30000"
    # the fastest consumers drain 100,000 messages in a quarter of a second, too short for CPU ticks of 10 ms
    for clients in (1, 4):
        yield f"long w4 c{clients} off", f"--workload consume --batch 100 --clients {clients} --sync off --secs {secs} --preload 1000000"


def all_cells(harness, secs):
    sys.path.insert(0, harness)
    import matrix

    which = "w1,w2,w3,w4,1k,w5,w5long,w6,w7,w8,w9".split(",")
    cells = {}
    for cell, _systems, arguments in matrix.cells(which, secs):
        cells.setdefault(cell, arguments)
    for cell, arguments in extra_cells(secs):
        cells.setdefault(cell, arguments)
    return cells


def run(qbench, system, arguments):
    started = time.time()
    r = subprocess.run([qbench, "run", "--adapter", system, *arguments.split()], capture_output=True, text=True, timeout=600)
    lines = r.stdout.strip().splitlines()
    try:
        result = json.loads(lines[-1]) if lines and not r.returncode else None
    except ValueError:
        result = None
    if result is None:
        result = {"adapter": system, "error": (r.stderr or r.stdout or "no output")[:600]}
    result["took"] = round(time.time() - started, 1)
    return result


def say(cell, rnd, d):
    parts = {"": d} if "push" not in d or not isinstance(d["push"], dict) else {" push": d["push"], " pop": d["consume"]}
    for label, w in parts.items():
        figures = f"{w.get('msgs_per_s', 0):9.0f}/s  pg {w.get('pg_us_per_msg', 0):7.1f} us  wal {w.get('wal_per_msg', 0):6.0f} B  foreign {w.get('foreign_cores', 0):.2f}"
        print(f"{time.strftime('%H:%M:%S')} r{rnd} {cell + label:16} {d['adapter']:14} {figures} {d.get('skipped', '')}{d.get('error', '')[:300].strip()}", flush=True)


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--harness", required=True, help="the patched copy of the harness")
    p.add_argument("--qbench", required=True, help="its built driver")
    p.add_argument("--cells", default="w1*,w2*,w3*,w4*,w8 256 b100,w9*", help="patterns, comma-separated")
    p.add_argument("--systems", default="queen,skiplocked,pgmq,pgq,queen1x", help="adapters, comma-separated")
    p.add_argument("--rounds", type=int, default=1)
    p.add_argument("--first-round", type=int, default=1)
    p.add_argument("--secs", type=float, default=2.5)
    p.add_argument("--out", required=True, help="JSON lines are appended to it")
    p.add_argument("--list", action="store_true", help="print the cells that --cells picks, run nothing")
    a = p.parse_args()
    patterns = a.cells.split(",")
    picked = {c: args for c, args in all_cells(a.harness, a.secs).items() if any(fnmatch.fnmatch(c, x) for x in patterns)}
    if not picked:
        sys.exit(f"cells.py: no cell matches {a.cells}")
    if a.list:
        for cell, arguments in picked.items():
            print(f"{cell:20} {arguments}")
        return 0
    systems = a.systems.split(",")
    errors = 0
    for rnd in range(a.first_round, a.first_round + a.rounds):
        for cell, arguments in picked.items():
            k = rnd % len(systems)
            for system in systems[k:] + systems[:k]:  # another order every round
                d = run(a.qbench, system, arguments)
                d.update(cell=cell, round=rnd)
                errors += "error" in d
                with open(a.out, "a") as f:
                    f.write(json.dumps(d) + "\n")
                say(cell, rnd, d)
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
