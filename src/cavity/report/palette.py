"""The colors of every page, plot, experiment and benchmark; `cavity.plot.style` builds on it.

Classes and methods have the colors of Okabe and Ito, which most kinds of color blindness keep apart. Their yellow, pale
on white, is replaced by gray, and black is left to text. On the page, labels are written in these colors, so
there they are darkened (light theme) or lightened (dark theme) to a contrast of 4.5 with the background.
"""

from __future__ import annotations

from typing import NamedTuple

INK = "#222222"
BLUE, VERMILION, GREEN, PINK, ORANGE, SKY, GRAY = COLORS = (
    "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#7F7F7F",
)  # fmt: skip


class Themed(NamedTuple):
    """The value of a style sheet variable in each theme."""

    light: str
    dark: str


# Text colors must have a contrast of at least 4.5 with paper, surface and faint.
VARIABLES = {
    "color-scheme": Themed("light", "dark"),
    "--paper": Themed("#fbfaf7", "#16181b"),
    "--surface": Themed("#ffffff", "#1e2125"),
    "--ink": Themed("#1d1c1a", "#eceae4"),
    "--quiet": Themed("#5c5952", "#aaa79f"),
    "--line": Themed("#dcd8cf", "#363a40"),
    "--faint": Themed("#f1eee8", "#24282d"),
    "--accent": Themed("#0069a6", "#62b8ea"),
    "--bar": Themed("#7fb2d3", "#3f7fa6"),
    "--tint": Themed("#d3e5f1", "#1d4661"),
    "--right": Themed("#0069a6", "#62b8ea"),
    "--wrong": Themed("#bf4600", "#f58a4b"),
    "--good": Themed("#00704f", "#35c49a"),
    "--warning": Themed("#a83e00", "#f5924f"),
    "--hit": Themed("0 114 178", "0 114 178"),
    "--miss": Themed("213 94 0", "213 94 0"),
    "--deepest": Themed("0.7", "0.9"),
    "--k0": Themed("#0072b2", "#56b4e9"),
    "--k1": Themed("#cc4700", "#f0803c"),
    "--k2": Themed("#00614a", "#23b98d"),
    "--k3": Themed("#b54c89", "#e59ac6"),
    "--k4": Themed("#6e4a00", "#f0d04a"),
    "--k5": Themed("#1b2f5e", "#c4ddff"),
    "--k6": Themed("#6b6c68", "#8f8f8a"),
}


def css_variables(theme: str) -> str:
    """Write the variables of one theme ("light" or "dark") as a style sheet."""
    lines = [f"  {name}: {getattr(value, theme)};" for name, value in VARIABLES.items()]
    return "\n".join([":root {", *lines, "}"])
