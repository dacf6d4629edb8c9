"""The plot style of experiments and benchmarks: the one place that imports it from cavity."""

from cavity.report.figures import STYLES, Style, legend, line, log_ticks, new_figure, plain, save

__all__ = ["STYLES", "Style", "legend", "line", "log_ticks", "new_figure", "plain", "save"]
