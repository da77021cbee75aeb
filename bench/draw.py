#!/usr/bin/env python3
"""Draws the figures of the benchmark as SVG without a script. It measures nothing.

  bench/draw.py plot [--bench FILE] [--real FILE] [--to FOLDER]   what bench/run and bench/real have written
  bench/draw.py flame PROGRAM LABEL TITLE PICTURE <STACKS         the stacks that `perf script` has printed
"""

import argparse
import json
import math
import sys
from html import escape
from pathlib import Path
from statistics import median

BLACK, LINE = "#3c3c3c", "#d7d7d7"
SIDES = {"direct": "#969696", "pgbouncer": "#d68534", "weir": "#2171b5"}


class Picture:
    """A white picture with a title. Coordinates are pixels."""

    def __init__(self, width: int, height: int, title: str, below: str = ""):
        self.svg = [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
            f'viewBox="0 0 {width} {height}" font-family="sans-serif">',
            '<rect width="100%" height="100%" fill="#ffffff"/>',
        ]
        self.text(16, 22, title, 17)
        self.text(16, 44, below, 12)

    def text(self, x: float, y: float, text: str, size: int, anchor: str = "start") -> None:
        if text:
            self.svg.append(f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" fill="{BLACK}" '
                            f'text-anchor="{anchor}" dominant-baseline="central">{escape(text)}</text>')

    def line(self, x: float, y: float, to_x: float, to_y: float, color: str, width: int = 1) -> None:
        self.svg.append(f'<line x1="{x:.1f}" y1="{y:.1f}" x2="{to_x:.1f}" y2="{to_y:.1f}" '
                        f'stroke="{color}" stroke-width="{width}"/>')

    def dot(self, x: float, y: float, color: str) -> None:
        self.svg.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="5" fill="{color}"/>')

    def bar(self, x: float, y: float, width: float, height: float, color: str) -> None:
        self.svg.append(f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" fill="{color}"/>')

    def legend(self, x: float, y: float, labels: list[str]) -> None:
        for label, color in zip(labels, SIDES.values()):
            self.dot(x, y, color)
            self.text(x + 12, y, label, 13)
            x += 34 + 8 * len(label)

    def grid(self, places: dict[str, float], top: float, bottom: float) -> None:
        for label, x in places.items():
            self.line(x, top - 8, x, bottom, LINE)
            self.text(x, top - 16, label, 12, "middle")

    def __str__(self) -> str:
        return "\n".join([*self.svg, "</svg>\n"])


def labels(real: dict, first: str = "direct") -> list[str]:
    return [first, real.get("pgbouncer", ""), real.get("weir", "")]


def ratios(bench: dict) -> Picture | None:
    """Weir's cost divided by PgBouncer's: the median and the range of the pairs of each row of bench/run."""
    lines = []
    for row in bench["rows"]:
        for part in range(len(row["ratio"])):
            pairs = zip(*([one["figures"][part] for one in row.get(side, {}).get("samples", [])]
                          for side in ("pgbouncer", "weir")))
            found = [weir / pgbouncer for pgbouncer, weir in pairs if None not in (pgbouncer, weir)]
            if found:
                lines.append((row["row"] if part == 0 else f"{row['row']} ({part + 1})", found))
    if not lines:
        return None
    top, height, most = 84, 24, 1.25
    bottom = top + height * len(lines)
    place = lambda ratio: 180 + min(ratio, most) * 380
    picture = Picture(720, bottom + 20, f"{bench['weir']} by {bench['pgbouncer']}: lower is cheaper", bench["how"])
    picture.grid({f"{tenth / 10:.1f}": place(tenth / 10) for tenth in range(0, 13, 2)}, top, bottom)
    picture.line(place(1), top - 8, place(1), bottom, BLACK)
    for at, (name, found) in enumerate(lines):
        y = top + height * (at + 0.5)
        picture.text(168, y, name, 13, "end")
        picture.line(place(min(found)), y, place(max(found)), y, SIDES["weir"], 2)
        picture.dot(place(median(found)), y, SIDES["weir"])
        picture.text(place(most) + 12, y, f"{median(found):.2f}", 13)
    return picture


def bars(title: str, below: str, names: list[str], groups: list[tuple], digits: int, left: int) -> Picture | None:
    """For each group three bars, one for each side: a name, figures, and pixels for a unit."""
    if not groups:
        return None
    top, bar = 100, 13
    height = 3 * bar + 12
    picture = Picture(760, top + height * len(groups) + 16, title, below)
    picture.legend(24, 68, names)
    for at, (name, figures, scale) in enumerate(groups):
        y = top + height * at
        picture.text(left - 12, y + bar * 1.5, name, 13, "end")
        for line, (figure, color) in enumerate(zip(figures, SIDES.values())):
            if figure is not None:
                picture.bar(left, y + bar * line + 1, figure * scale, bar - 2, color)
                picture.text(left + figure * scale + 6, y + bar * (line + 0.5), f"{figure:.{digits}f}", 11)
    return picture


def throughput(real: dict) -> Picture | None:
    """Transactions a second. Rows differ by orders of magnitude, so the longest bar of each has the whole width."""
    # At a fixed rate all sides have the same throughput, and the proposal of 2019 has a picture of its own. The fleet rows
    # are not about throughput, and a copy is not comparable with other transactions.
    others = ("latency-", "proposal-", "fleet-", "copy-")
    groups = []
    for row in real["rows"]:
        if not row["row"].startswith(others):
            tps = [[one["tps"] for one in row.get(side, [])] for side in SIDES]
            tps = [median(found) if found else None for found in tps]
            groups.append((row["row"], tps, 440 / max(filter(None, tps), default=1)))
    return bars("Transactions a second", real["how"], labels(real), groups, 0, 190)


def proposal(real: dict) -> Picture | None:
    """The table of the proposal of 2019 beside both poolers here. Direct connections are the unit; their grey is the proposal's."""
    groups = []
    for row in real["rows"]:
        if by_direct := row.get("by_direct"):
            what = row["row"].removeprefix("proposal-")
            name = f"{what.removeprefix('tls-')} clients" + (", TLS" if what.startswith("tls-") else "")
            groups.append((name, [by_direct.get(key) for key in ("proposed", "pgbouncer", "weir")], 360))
    title = "Transactions a second by those of a direct connection"
    picture = bars(title, real["how"], labels(real, "the proposal of 2019"), groups, 2, 150)
    if picture:
        picture.line(150 + 360, 92, 150 + 360, 100 + 51 * len(groups), BLACK)
    return picture


def latency(real: dict) -> Picture | None:
    """p50, p99 and p99.9 of each side on one logarithmic scale, from 0.1 to 1,000 ms."""
    rows = [row for row in real["rows"] if row["row"].startswith(("latency", "saturation"))]
    if not rows:
        return None
    top, height = 112, 18
    bottom = top + 3 * height * len(rows) + 10 * len(rows)
    place = lambda ms: 190 + (min(max(math.log10(ms), -1), 3) + 1) * 125
    picture = Picture(760, bottom + 16, "Latency, milliseconds", real["how"])
    picture.legend(24, 68, labels(real))
    picture.grid({f"{10.0 ** power:g}": place(10.0 ** power) for power in range(-1, 4)}, top, bottom)
    for at, row in enumerate(rows):
        for line, (key, title) in enumerate((("p50_ms", "p50"), ("p99_ms", "p99"), ("p999_ms", "p99.9"))):
            y = top + height * (3 * at + line + 0.5) + 10 * at
            picture.text(178, y, f"{row['row']} {title}", 13, "end")
            for side, color in SIDES.items():
                if ms := row["all_rounds"].get(side, {}).get(key):
                    picture.dot(place(ms), y, color)
    return picture


def plot(options: argparse.Namespace) -> None:
    bench, real = (json.loads(file.read_text()) for file in (options.bench, options.real))
    options.to.mkdir(parents=True, exist_ok=True)
    for name, picture in (("ratios", ratios(bench)), ("throughput", throughput(real)), ("latency", latency(real)),
                          ("proposal", proposal(real))):
        path = options.to / f"{name}.svg"
        if picture:
            path.write_text(str(picture))
        print(path if picture else f"{path} left as it is: no row of it was measured")


OWNERS = {"the pooler": "#8fbce0", "its libraries": "#b5d6a7", "kernel": "#f0c38e"}
ORDER = list(OWNERS)
WIDTH, HEIGHT = 1180, 16
# Narrower frames and their callees are left out: 0.2 % of the samples.
NARROWEST = 2.36


class Node:
    """A node of the call tree: the samples that share the same callers."""

    def __init__(self) -> None:
        self.samples = 0
        self.callees: dict[tuple[str, str], Node] = {}

    def depth(self) -> int:
        return max((1 + callee.depth() for callee in self.callees.values()), default=0)


def frame(line: str, program: str, label: str) -> tuple[str, str] | None:
    """The owner and the name in a line such as `ffffffff81e2eae2 __sys_sendto ([kernel.kallsyms])`."""
    symbol, found, module = line.strip().partition(" ")[2].rpartition(" (")
    if not found:
        return None
    module = module.removesuffix(")")
    owner = "kernel" if module.startswith("[kernel") else "the pooler" if module == program else "its libraries"
    unknown = label if owner == "the pooler" else Path(module).name.strip("[]")
    return owner, f"[{unknown}]" if symbol == "[unknown]" else symbol


def fitting(name: str, width: float) -> str:
    """The name, or the part after its last `::`, or the beginning of that part, whichever fits."""
    room = int((width - 6) / 6.2)
    last = name.rpartition("::")[2]
    if len(name) <= room or len(last) <= room:
        return name if len(name) <= room else last
    return last[:room - 1] + "…" if room > 3 else ""


def flame(options: argparse.Namespace) -> None:
    """Callers are below the functions that they call, as wide as their share of the samples."""
    root, owners = Node(), dict.fromkeys(OWNERS, 0)
    for block in sys.stdin.read().split("\n\n"):
        # The innermost function comes first. Consecutive frames of functions without symbols become one.
        stack = [found for line in block.splitlines() if (found := frame(line, options.program, options.label))]
        if not stack:
            continue
        owners[stack[0][0]] += 1
        node, last = root, None
        root.samples += 1
        for found in reversed(stack):
            if found != last:
                node = node.callees.setdefault(found, Node())
                node.samples += 1
            last = found
    bottom = 60 + HEIGHT * root.depth()
    picture = Picture(WIDTH + 20, bottom + 10, options.title)
    for at, (owner, color) in enumerate(OWNERS.items()):
        picture.bar(10 + 150 * at, 34, 12, 12, color)
        picture.text(28 + 150 * at, 40, f"{owner} {100 * owners[owner] / max(root.samples, 1):.0f} %", 12)

    def draw(node: Node, x: float, y: float) -> None:
        by_owner = sorted(node.callees.items(), key=lambda item: (ORDER.index(item[0][0]), item[0][1]))
        for (owner, name), callee in by_owner:
            share = callee.samples / root.samples
            if share * WIDTH >= NARROWEST:
                picture.svg.append(f"<g><title>{escape(name)} {100 * share:.1f} %</title>")
                picture.bar(x, y, share * WIDTH - 0.5, HEIGHT - 1, OWNERS[owner])
                picture.text(x + 3, y + 7.5, fitting(name, share * WIDTH), 11)
                picture.svg.append("</g>")
                draw(callee, x, y - HEIGHT)
            x += share * WIDTH

    draw(root, 10, bottom - HEIGHT)
    options.picture.write_text(str(picture))
    print(options.picture)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    kinds = parser.add_subparsers(required=True)
    plots = kinds.add_parser("plot")
    plots.set_defaults(draw=plot)
    for name, default in (("bench", "bench/out/bench.json"), ("real", "bench/out/real.json"), ("to", "docs/plots")):
        plots.add_argument(f"--{name}", type=Path, default=default)
    flames = kinds.add_parser("flame")
    flames.set_defaults(draw=flame)
    for name in ("program", "label", "title"):
        flames.add_argument(name)
    flames.add_argument("picture", type=Path)
    options = parser.parse_args()
    options.draw(options)


main()
