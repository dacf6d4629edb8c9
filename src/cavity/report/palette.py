"""The colors of every page, plot, experiment and benchmark; `cavity.plot.style` builds on it.

Classes and methods have the colors of Okabe and Ito, which most kinds of color blindness keep apart, with gray for
yellow and without black. Text on the page is darker (light theme) or lighter (dark theme), for a contrast of 4.5.
"""

from __future__ import annotations

INK = "#222222"
BLUE, VERMILION, GREEN, PINK, ORANGE, SKY, GRAY = COLORS = (
    "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#7F7F7F",
)  # fmt: skip


# Values in the light and dark themes. Text colors must have a contrast of at least 4.5 with paper, surface and faint.
VARIABLES = {
    "color-scheme": ("light", "dark"),
    "--paper": ("#fbfaf7", "#16181b"),
    "--surface": ("#ffffff", "#1e2125"),
    "--ink": ("#1d1c1a", "#eceae4"),
    "--quiet": ("#5c5952", "#aaa79f"),
    "--line": ("#dcd8cf", "#363a40"),
    "--faint": ("#f1eee8", "#24282d"),
    "--accent": ("#0069a6", "#62b8ea"),
    "--bar": ("#7fb2d3", "#3f7fa6"),
    "--tint": ("#d3e5f1", "#1d4661"),
    "--right": ("#0069a6", "#62b8ea"),
    "--wrong": ("#bf4600", "#f58a4b"),
    "--good": ("#00704f", "#35c49a"),
    "--warning": ("#a83e00", "#f5924f"),
    "--hit": ("0 114 178", "0 114 178"),
    "--miss": ("213 94 0", "213 94 0"),
    "--deepest": ("0.7", "0.9"),
    "--k0": ("#0072b2", "#56b4e9"),
    "--k1": ("#cc4700", "#f0803c"),
    "--k2": ("#00614a", "#23b98d"),
    "--k3": ("#b54c89", "#e59ac6"),
    "--k4": ("#6e4a00", "#f0d04a"),
    "--k5": ("#1b2f5e", "#c4ddff"),
    "--k6": ("#6b6c68", "#8f8f8a"),
}


def css_variables(theme: str) -> str:
    """Write the variables of one theme ("light" or "dark") as a style sheet."""
    lines = [f"  {name}: {dark if theme == 'dark' else light};" for name, (light, dark) in VARIABLES.items()]
    return "\n".join([":root {", *lines, "}"])
