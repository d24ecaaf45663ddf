"""Plots as SVG: groups of bars with their spread, and lines over time. The colours are those of Okabe and Ito, told apart by everyone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from math import ceil, floor, log10

GREY, ORANGE, SKY, BLUE, GREEN, PURPLE, RED, YELLOW = (
    "#999999", "#E69F00", "#56B4E9", "#0072B2", "#009E73", "#CC79A7", "#D55E00", "#F0E442",
)  # fmt: skip
LEFT, RIGHT, TOP, PLOT_HEIGHT = 70, 16, 46, 270
INK, SOFT, GRID = "#222222", "#555555", "#e2e2e2"


@dataclass(frozen=True, slots=True)
class Bars:
    """One series: a mean for each group and how far runs lie from it."""

    name: str
    means: Sequence[float]
    deviations: Sequence[float]
    colour: str


@dataclass(frozen=True, slots=True)
class Line:
    """One series over time; drawn as steps."""

    name: str
    points: Sequence[tuple[float, float]]
    colour: str


def ticks(high: float, about: int = 5) -> list[float]:
    """Round numbers from 0 to at least this high."""
    if high <= 0:
        return [0.0, 1.0]
    raw = high / about
    power = 10.0 ** floor(log10(raw))
    step = next(power * entry for entry in (1, 2, 2.5, 5, 10) if power * entry >= raw * 0.999)
    return [step * number for number in range(ceil(high / step - 1e-9) + 1)]


def _number(value: float) -> str:
    return f"{value:,.0f}".replace(",", " ") if value >= 10 or value == int(value) else f"{value:g}"


class _Sheet:
    """A drawing with an axis on the left, and a legend below the plot."""

    def __init__(
        self, title: str, width: int, series: Sequence[Bars | Line], y_label: str, high: float, below: int
    ) -> None:
        self.width, self.marks = width, ticks(high)
        self.plot_width = width - LEFT - RIGHT
        self.bottom = TOP + PLOT_HEIGHT
        legend, rows = self._legend(series, self.bottom + below)
        self.height = self.bottom + below + rows * 20 + 8
        self.parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {self.height}" width="{width}" height="{self.height}" role="img" aria-label="{escape(title)}">',
            '<rect width="100%" height="100%" fill="#ffffff"/>',
            f'<g font-family="Helvetica, Arial, sans-serif" font-size="12" fill="{INK}">',
            f'<text x="{LEFT}" y="24" font-size="14" font-weight="bold">{escape(title)}</text>',
            f'<text transform="translate(16 {TOP + PLOT_HEIGHT / 2:.0f}) rotate(-90)" text-anchor="middle">{escape(y_label)}</text>',
        ]
        for mark in self.marks:
            y = self.y(mark)
            self.parts.append(
                f'<line x1="{LEFT}" x2="{width - RIGHT}" y1="{y:.1f}" y2="{y:.1f}" stroke="{INK if mark == 0 else GRID}"/>'
                f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end" fill="{SOFT}">{_number(mark)}</text>'
            )
        self.parts += legend

    def _legend(self, series: Sequence[Bars | Line], y: float) -> tuple[list[str], int]:
        parts, x, row = [], float(LEFT), 0
        for entry in series:
            wide = 24 + 6.8 * len(entry.name) + 12
            if x + wide > self.width - RIGHT and x > LEFT:
                x, row = float(LEFT), row + 1
            at = y + row * 20
            parts.append(
                f'<rect x="{x:.0f}" y="{at:.0f}" width="14" height="12" fill="{entry.colour}"/>'
                f'<text x="{x + 20:.0f}" y="{at + 10:.0f}">{escape(entry.name)}</text>'
            )
            x += wide
        return parts, row + 1

    def y(self, value: float) -> float:
        return self.bottom - PLOT_HEIGHT * min(1.0, value / self.marks[-1])

    def text(self) -> str:
        return "\n".join([*self.parts, "</g>", "</svg>"]) + "\n"


def bars(
    title: str, groups: Sequence[str], series: Sequence[Bars], y_label: str, *, width: int = 720, high: float = 0.0
) -> str:
    """Groups of bars with their standard deviation as a line."""
    top = max(mean + off for bars in series for mean, off in zip(bars.means, bars.deviations, strict=True))
    sheet = _Sheet(title, width, series, y_label, max(top, high), 32)
    room = sheet.plot_width / len(groups)
    wide = min(44.0, room * 0.84 / len(series))
    for number, group in enumerate(groups):
        middle = LEFT + room * (number + 0.5)
        sheet.parts.append(
            f'<text x="{middle:.1f}" y="{sheet.bottom + 18}" text-anchor="middle">{escape(group)}</text>'
        )
        for place, bars in enumerate(series):
            x = middle + (place - len(series) / 2) * wide
            mean, off = bars.means[number], bars.deviations[number]
            y, label = sheet.y(mean), escape(f"{group}, {bars.name}: {mean:.4g} ± {off:.2g}")
            sheet.parts.append(
                f'<rect x="{x + 1:.1f}" y="{y:.1f}" width="{wide - 2:.1f}" height="{max(0.8, sheet.bottom - y):.1f}" fill="{bars.colour}"><title>{label}</title></rect>'
            )
            if off > 0:
                x += wide / 2
                low, up = sheet.y(max(0.0, mean - off)), sheet.y(mean + off)
                sheet.parts.append(
                    f'<path d="M{x:.1f} {low:.1f}V{up:.1f}M{x - 4:.1f} {up:.1f}h8M{x - 4:.1f} {low:.1f}h8" stroke="{INK}" fill="none"/>'
                )
    return sheet.text()


def lines(title: str, series: Sequence[Line], x_label: str, y_label: str, *, width: int = 720) -> str:
    """Steps over time."""
    sheet = _Sheet(title, width, series, y_label, max(y for line in series for _, y in line.points), 52)
    across = ticks(max(x for line in series for x, _ in line.points), 8)
    scale = sheet.plot_width / across[-1]
    for mark in across:
        x = LEFT + mark * scale
        sheet.parts.append(
            f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{sheet.bottom}" y2="{sheet.bottom + 5}" stroke="{INK}"/>'
            f'<text x="{x:.1f}" y="{sheet.bottom + 18}" text-anchor="middle" fill="{SOFT}">{_number(mark)}</text>'
        )
    sheet.parts.append(
        f'<text x="{LEFT + sheet.plot_width / 2:.0f}" y="{sheet.bottom + 38}" text-anchor="middle">{escape(x_label)}</text>'
    )
    for line in series:
        path, before = [], None
        for x, y in line.points:
            at = f"{LEFT + x * scale:.1f}"
            path.append(f"M{at} {sheet.y(y):.1f}" if before is None else f"H{at}V{sheet.y(y):.1f}")
            before = y
        sheet.parts.append(
            f'<path d="{"".join(path)}" stroke="{line.colour}" stroke-width="2" fill="none"><title>{escape(line.name)}</title></path>'
        )
    return sheet.text()
