"""Figures of a run in Arabic or English: reward and held-out accuracy, staleness, and who worked when.

matplotlib shapes Arabic and orders mixed text itself from version 3.11 on (it bundles libraqm). Arabic labels start
with U+200F so that a leading Latin word does not turn them, and numbers and names stand in isolates (UAX #9). Time and
steps run from left to right in both languages, as Arabic scientific figures usually have them.

Figures carry no date, and ids are salted with a constant: the same numbers give the same SVG bytes.
`show_*` draw from a run folder and return a `RunFigure`, which a notebook shows as SVG.
"""

from __future__ import annotations

import io
from functools import cache
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib import font_manager
from matplotlib.figure import Figure

from compliance import path as data_path
from grpo_lib import wording
from grpo_lib.evidence import collect

# Okabe-Ito colours, told apart under the common colour-vision deficiencies.
BLUE, ORANGE, GREEN, GREY, INK = "#0072b2", "#d55e00", "#009e73", "#767676", "#1f2328"
_KIND_COLOUR = {
    "generate": BLUE,
    "score": "#56b4e9",
    "step": ORANGE,
    "publish": GREEN,
    "wait": "#c9c9c9",
}
_STYLE = {
    "svg.hashsalt": "grpo-lib",
    "svg.fonttype": "path",
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": GREY,
    "text.color": INK,
    "axes.labelcolor": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "legend.frameon": False,
}


@cache
def _fonts() -> tuple[str, ...]:
    """The shipped Arabic face first; it has no Latin letters, which matplotlib then takes from its own face."""
    file = data_path("fonts", "NotoNaskhArabic-Regular.ttf")
    font_manager.fontManager.addfont(file)
    return (font_manager.FontProperties(fname=file).get_name(), "DejaVu Sans")


class RunFigure(Figure):
    """A figure that knows its style when it is drawn, and shows itself as SVG in a notebook."""

    def __init__(self, language: str, height: float):
        self.language = language
        with matplotlib.rc_context(self.style):
            super().__init__(figsize=(7.6, height), layout="constrained")

    @property
    def style(self) -> dict[str, Any]:
        return _STYLE | {"font.family": list(_fonts())}

    def label(self, key: str, **values: Any) -> str:
        """A sentence of `wording.yaml` in this figure's language, ready for matplotlib."""
        text = wording.plain(key, self.language, **values)
        return f"\u200f{text}" if self.language == "ar" else text

    def _repr_svg_(self) -> str:
        return svg(self)


def svg(figure: RunFigure) -> str:
    """SVG text of a figure; the same figure gives the same text."""
    buffer = io.StringIO()
    with matplotlib.rc_context(figure.style):
        figure.savefig(
            buffer, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None}
        )
    return buffer.getvalue()


def png(figure: RunFigure, path: Path | str) -> None:
    """Write a figure as PNG, to be looked at."""
    with matplotlib.rc_context(figure.style):
        figure.savefig(path, format="png", dpi=120)


# ---------------------------------------------------------------------------------------------------- figures


def reward_curve(series: dict[str, Any], language: str) -> RunFigure:
    """Mean reward per step, and held-out accuracy sampled at the run's temperature with its interval."""
    figure = RunFigure(language, 3.2)
    with matplotlib.rc_context(figure.style):
        axes = figure.subplots()
        if series["reward"]:
            steps, rewards = zip(*series["reward"], strict=True)
            axes.plot(steps, rewards, color=GREY, linewidth=1.2, label=figure.label("plot_reward"))
        if series["curve"]:
            steps = [point["step"] for point in series["curve"]]
            axes.fill_between(
                steps,
                [point["low"] for point in series["curve"]],
                [point["high"] for point in series["curve"]],
                color=BLUE,
                alpha=0.2,
                linewidth=0,
                label=figure.label("plot_interval"),
            )
            means = [point["mean"] for point in series["curve"]]
            axes.plot(steps, means, color=BLUE, marker="o", markersize=4, label=figure.label("plot_heldout"))
        axes.set_ylim(bottom=0)
        axes.set_xlabel(figure.label("plot_step"))
        axes.set_ylabel(figure.label("plot_share"))
        _finish(figure, axes, bool(series["reward"] or series["curve"]), columns=3)
    return figure


def staleness(series: dict[str, Any], language: str) -> RunFigure:
    """Mean and largest lag of the samples in each step, in policy versions, under the bound that was set."""
    figure = RunFigure(language, 2.6)
    with matplotlib.rc_context(figure.style):
        axes = figure.subplots()
        if series["lag_max"]:
            steps, largest = zip(*series["lag_max"], strict=True)
            axes.step(
                steps, largest, where="mid", color=ORANGE, linewidth=1, label=figure.label("plot_lag_max")
            )
        if series["lag_mean"]:
            steps, means = zip(*series["lag_mean"], strict=True)
            axes.plot(steps, means, color=BLUE, linewidth=1.5, label=figure.label("plot_lag_mean"))
        if series["bound"] is not None:
            axes.axhline(
                series["bound"], color=INK, linestyle="--", linewidth=1, label=figure.label("plot_bound")
            )
        axes.set_ylim(0, max(1, series["bound"] or 0, *(lag for _, lag in series["lag_max"])) + 0.5)
        axes.set_xlabel(figure.label("plot_step"))
        axes.set_ylabel(figure.label("plot_lag"))
        _finish(figure, axes, bool(series["lag_max"] or series["lag_mean"]), columns=3)
    return figure


def timeline(series: dict[str, Any], language: str) -> RunFigure:
    """One lane per process: the learner's steps, waits and publications above the workers' generation."""
    # Evaluation comes after training and lasts as long; drawn too, it would squeeze what the figure is for.
    spans = [span for span in series["spans"] if span["kind"] != "evaluate"]
    actors = sorted({span["actor"] for span in spans}, key=lambda actor: (actor != "learner", actor))
    figure = RunFigure(language, 1.5 + 0.45 * max(1, len(actors)))
    with matplotlib.rc_context(figure.style):
        axes = figure.subplots()
        origin = min((span["start"] for span in spans), default=0.0)
        named: set[str] = set()
        for lane, actor in enumerate(actors):
            for kind, colour in _KIND_COLOUR.items():
                bars = [
                    (span["start"] - origin, span["end"] - span["start"])
                    for span in spans
                    if span["actor"] == actor and span["kind"] == kind
                ]
                if bars:
                    label = None if kind in named else figure.label(f"span_{kind}")
                    axes.broken_barh(bars, (lane - 0.36, 0.72), color=colour, linewidth=0, label=label)
                    named.add(kind)
        names = [figure.label("learner") if actor == "learner" else actor for actor in actors]
        axes.set_yticks(range(len(actors)), names)
        axes.invert_yaxis()
        axes.set_xlabel(figure.label("plot_seconds"))
        _finish(figure, axes, bool(spans), columns=6)
    return figure


def _finish(figure: RunFigure, axes: Any, has_data: bool, columns: int) -> None:
    """Legend above the axes, or the words "not measured" in an empty figure."""
    if has_data:
        figure.legend(loc="outside upper center", ncols=columns, columnspacing=1.2, handlelength=1.4)
    else:
        axes.text(0.5, 0.5, figure.label("not_measured"), transform=axes.transAxes, ha="center", va="center")


# --------------------------------------------------------------------------------------------------- notebooks


def show_reward(run_dir: Path | str, language: str = "ar") -> RunFigure:
    """`reward_curve` of a run folder."""
    return reward_curve(collect(run_dir)["series"], language)


def show_staleness(run_dir: Path | str, language: str = "ar") -> RunFigure:
    """`staleness` of a run folder."""
    return staleness(collect(run_dir)["series"], language)


def show_timeline(run_dir: Path | str, language: str = "ar") -> RunFigure:
    """`timeline` of a run folder."""
    return timeline(collect(run_dir)["series"], language)
