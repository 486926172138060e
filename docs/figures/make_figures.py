#!/usr/bin/env python3
"""Draws the figures of the documentation and prints the table of causal work beside them:

    python3 docs/figures/make_figures.py [FOLDER]

Needs nothing but Python. The rules are those of src/layout/ and src/schedule/, for 4 ranks and 16 tiles.
"""
import pathlib
import sys

RANKS = 4
TILES = 16
# Fills that stay apart in grey and for colour-blind eyes; every cell carries a number as well.
FILLS = ["#cfe2f3", "#f9cb9c", "#b6d7a8", "#b4a7d6"]
INK = "#222222"
PALE = "#f4f4f4"


class Svg:
    def __init__(self, width, height):
        self.head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
            f'viewBox="0 0 {width} {height}" font-family="sans-serif">'
        )
        self.parts = [f'<rect width="{width}" height="{height}" fill="white"/>']

    def rect(self, x, y, w, h, fill, line=INK):
        self.parts.append(f'<rect x="{x}" y="{y}" width="{w}" height="{h}" fill="{fill}" stroke="{line}"/>')

    def text(self, x, y, text, size=13, anchor="middle", weight="normal"):
        self.parts.append(
            f'<text x="{x}" y="{y}" font-size="{size}" text-anchor="{anchor}" '
            f'font-weight="{weight}" fill="{INK}">{text}</text>'
        )

    def arrow(self, x1, y1, x2, y2):
        dx, dy = x2 - x1, y2 - y1
        length = (dx * dx + dy * dy) ** 0.5
        ux, uy = dx / length, dy / length
        self.parts.append(
            f'<path d="M{x1:g} {y1:g}L{x2:g} {y2:g}M{x2 - 7 * ux - 4 * uy:g} {y2 - 7 * uy + 4 * ux:g}'
            f'L{x2:g} {y2:g}L{x2 - 7 * ux + 4 * uy:g} {y2 - 7 * uy - 4 * ux:g}" '
            f'fill="none" stroke="{INK}" stroke-width="1.4"/>'
        )

    def half(self, x, y, size, fill):
        self.parts.append(f'<path d="M{x} {y}v{size}h{size}z" fill="{fill}" stroke="#999999"/>')

    def write(self, path):
        path.write_text("\n".join([self.head, *self.parts, "</svg>"]) + "\n", encoding="utf-8")


def owner(layout, tile):
    """The rank that owns a tile."""
    if layout == "contiguous":
        return tile * RANKS // TILES
    if layout == "zigzag":
        chunk = tile * 2 * RANKS // TILES
        return min(chunk, 2 * RANKS - 1 - chunk)
    return tile % RANKS


def pair_work(query_tile, key_tile):
    """Causal work of a pair of tiles, in whole pairs."""
    return 1.0 if key_tile < query_tile else 0.5 if key_tile == query_tile else 0.0


def work_by_step(layout):
    """work[rank][step]: at step t rank r attends the keys of rank (r - t) mod P."""
    work = [[0.0] * RANKS for _ in range(RANKS)]
    for query in range(TILES):
        for key in range(TILES):
            rank = owner(layout, query)
            work[rank][(rank - owner(layout, key)) % RANKS] += pair_work(query, key)
    return work


def ring_figure():
    svg = Svg(780, 232)
    size, gap = 46, 70
    for step in range(RANKS):
        left = 24 + step * 190
        svg.text(left + (gap + size) / 2, 24, f"step {step}", 15, weight="bold")
        corners = [(left, 50), (left + gap, 50), (left + gap, 50 + gap), (left, 50 + gap)]
        for rank, (x, y) in enumerate(corners):
            block = (rank - step) % RANKS
            svg.rect(x, y, size, size, FILLS[block])
            svg.text(x + size / 2, y + 17, f"rank {rank}", 11)
            svg.text(x + size / 2, y + 37, f"KV {block}", 14, weight="bold")
        if step < RANKS - 1:
            low, high, middle = size + 3, gap - 3, size / 2
            svg.arrow(left + low, 50 + middle, left + high, 50 + middle)
            svg.arrow(left + gap + middle, 50 + low, left + gap + middle, 50 + high)
            svg.arrow(left + high, 50 + gap + middle, left + low, 50 + gap + middle)
            svg.arrow(left + middle, 50 + high, left + middle, 50 + low)
    svg.text(12, 204, "Each rank keeps its own queries. KV b is the block of keys and values that rank b packed.", 13, "start")
    svg.text(12, 222, "After step 3 every query has met every key; each link has carried 3 blocks.", 13, "start")
    return svg


def layout_figure():
    cell = 36
    svg = Svg(140 + TILES * cell + 16, 200)
    for tile in range(TILES):
        svg.text(130 + (tile + 0.5) * cell, 22, tile, 12)
    svg.text(120, 22, "tile", 12, "end")
    for row, layout in enumerate(["contiguous", "zigzag", "striped"]):
        y = 34 + row * 48
        svg.text(120, y + 23, layout, 14, "end", "bold")
        for tile in range(TILES):
            rank = owner(layout, tile)
            svg.rect(130 + tile * cell, y, cell, cell, FILLS[rank])
            svg.text(130 + (tile + 0.5) * cell, y + 23, rank, 14)
    svg.text(130, 190, "The number in a cell is the rank that owns the tile: 4 ranks, 16 tiles.", 13, "start")
    return svg


def work_figure():
    cell = 13
    side = TILES * cell
    svg = Svg(3 * (side + 40) + 20, side + 190)
    for column, layout in enumerate(["contiguous", "zigzag", "striped"]):
        left = 34 + column * (side + 40)
        svg.text(left + side / 2, 20, layout, 15, weight="bold")
        for query in range(TILES):
            svg.text(left - 6, 30 + (query + 0.8) * cell, owner(layout, query), 10, "end")
            y = 30 + query * cell
            svg.rect(left, y, side, cell, PALE, "#e0e0e0")
            svg.rect(left, y, query * cell, cell, FILLS[owner(layout, query)], "#999999")
            svg.half(left + query * cell, y, cell, FILLS[owner(layout, query)])
        total = TILES * TILES / 2
        for rank, steps in enumerate(work_by_step(layout)):
            y = side + 52 + rank * 24
            share = sum(steps) / total
            svg.text(left - 6, y + 14, rank, 11, "end")
            svg.rect(left, y, round(share * side * 1.7, 1), 18, FILLS[rank])
            svg.text(left + share * side * 1.7 + 6, y + 14, f"{100 * share:.1f} %", 12, "start")
    svg.text(14, side + 164, "Above: rows are query tiles, columns key tiles; coloured is what a causal mask lets through.", 12, "start")
    svg.text(14, side + 180, "Numbers at the left name the rank that owns the queries. Below: its share of the work.", 12, "start")
    return svg


def print_table():
    print("Causal work of 4 ranks and 16 tiles, in pairs of tiles (a pair on the diagonal is half a pair)")
    print("layout      rank   step 0   step 1   step 2   step 3      sum")
    for layout in ["contiguous", "zigzag", "striped"]:
        work = work_by_step(layout)
        for rank, steps in enumerate(work):
            print(f"{layout:<11} {rank:>4} " + "".join(f"{w:>9.1f}" for w in [*steps, sum(steps)]))
        busiest = max(map(sum, work))
        print(f"{layout:<11} useful share {sum(map(sum, work)) / (RANKS * busiest):.3f}")


if __name__ == "__main__":
    folder = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else pathlib.Path(__file__).parent
    ring_figure().write(folder / "ring.svg")
    layout_figure().write(folder / "layouts.svg")
    work_figure().write(folder / "causal_work.svg")
    print_table()
