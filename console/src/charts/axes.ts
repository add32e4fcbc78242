/** The axes of a chart over time: its lines and labels of values and of times, in charts of any size. */

import type { Colour } from "../theme";
import { share, timeLabel, timeTicks, valueTicks, type Ends, type Scale } from "./scale";

/** Where the lines of a chart are drawn, in pixels of its canvas. */
export interface Plot {
  left: number;
  top: number;
  wide: number;
  high: number;
}

export interface Axes {
  scale: Scale;
  values: Ends;
  times: Ends;
  /** How a value is told beside its line. */
  told: (value: number) => string;
  /** Lines of values lie at least so many pixels apart; a label of time takes so many. */
  row: number;
  label: number;
  /** Labels lie so many pixels from the plot: of values to its left, of times below it. */
  apart: [number, number];
  /** There is no margin for half a label of time: one that leaves the plot is left out, or moved if it is the only one. */
  inside?: boolean;
}

/** Where values and times are. */
export interface Places {
  x: (time: number) => number;
  y: (value: number) => number;
}

export function places({ left, top, wide, high }: Plot, { scale, values, times }: Axes): Places {
  return {
    x: (time) => left + share("plain", time, times) * wide,
    y: (value) => top + (1 - share(scale, value, values)) * high,
  };
}

/** Draws them; the font is the context's. */
export function paintAxes(
  context: CanvasRenderingContext2D,
  plot: Plot,
  axes: Axes,
  colours: Record<Colour, string>,
): void {
  const { left, top, wide, high } = plot;
  const { x, y } = places(plot, axes);
  context.fillStyle = colours.muted;
  context.strokeStyle = colours.line;
  context.lineWidth = 1;
  context.setLineDash([]);
  context.beginPath();
  context.textAlign = "right";
  context.textBaseline = "middle";
  for (const value of valueTicks(axes.scale, axes.values, high / axes.row)) {
    const at = Math.round(y(value)) + 0.5;
    context.moveTo(left, at);
    context.lineTo(left + wide, at);
    context.fillText(axes.told(value), left - axes.apart[0], at);
  }
  context.textAlign = "center";
  context.textBaseline = "top";
  const { step, times } = timeTicks(axes.times, wide / axes.label);
  for (const time of times) {
    const at = Math.round(x(time)) + 0.5;
    context.moveTo(at, top);
    context.lineTo(at, top + high);
    const text = timeLabel(time, step);
    const half = axes.inside ? context.measureText(text).width / 2 : 0;
    const middle = axes.inside ? Math.min(left + wide - half, Math.max(left + half, at)) : at;
    if (middle === at || times.length === 1) context.fillText(text, middle, top + high + axes.apart[1]);
  }
  context.stroke();
}
