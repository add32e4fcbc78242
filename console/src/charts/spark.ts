/** Small charts of a table: five minutes in a hundred pixels or so, on a canvas of their own. */

import type { Colour } from "../theme";
import { palette } from "../theme";
import { paintAxes, places, type Axes } from "./axes";
import { valueEnds } from "./scale";
import { AXIS, SCALES, type Unit } from "./units";

export interface Line {
  values: Float64Array;
  colour: Colour;
  /** Dashes tell a line from another without its colour. */
  dashed?: boolean;
  /** Shaded down to zero. */
  filled?: boolean;
}

/** Fits the canvas's pixels to the screen's; gives its size in CSS pixels, or null while it is not laid out. */
export function prepare(canvas: HTMLCanvasElement): { context: CanvasRenderingContext2D; width: number; height: number } | null {
  const width = canvas.clientWidth;
  const height = canvas.clientHeight;
  const context = canvas.getContext("2d");
  if (width === 0 || height === 0 || !context) return null;
  const ratio = devicePixelRatio || 1;
  const pixels = Math.round(width * ratio);
  const rows = Math.round(height * ratio);
  if (canvas.width !== pixels || canvas.height !== rows) {
    canvas.width = pixels;
    canvas.height = rows;
  }
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, height);
  return { context, width, height };
}

/** Room at the left for labels of values, at the right, above, and below for labels of times. */
const LEFT = 46;
const RIGHT = 1;
const TOP = 6;
const FOOT = 14;
/** A label of time takes so many pixels; lines of values lie so far apart. */
const TIME_LABEL = 36;
const ROW = 15;
/** From labels to the plot. */
const APART: [number, number] = [5, 4];

/** Draws the lines over each other, to one scale, with the axes that larger charts have; their newest values are of `to_s`. */
export function drawSpark(canvas: HTMLCanvasElement, unit: Unit, lines: Line[], to_s: number): void {
  const ready = prepare(canvas);
  if (!ready) return;
  const { context, width, height } = ready;
  const plot = { left: LEFT, top: TOP, wide: width - LEFT - RIGHT, high: height - TOP - FOOT };
  const seconds = (lines[0]?.values.length ?? 1) - 1;
  const scale = SCALES[unit];
  const axes: Axes = { scale, values: valueEnds(scale, known(lines)), times: [to_s - seconds, to_s], told: AXIS[unit], row: ROW, label: TIME_LABEL, apart: APART, inside: true };
  const { x, y } = places(plot, axes);
  context.font = `10px ${getComputedStyle(canvas).fontFamily}`;
  paintAxes(context, plot, axes, palette.value);
  context.lineWidth = 1.25;
  context.lineJoin = "round";
  for (const line of lines) {
    const colour = palette.value[line.colour];
    context.strokeStyle = colour;
    context.setLineDash(line.dashed ? [3, 2] : []);
    const at = (index: number): number => x(to_s - seconds + index);
    context.beginPath();
    let from = -1;
    const shade = (to: number): void => {
      if (!line.filled || from < 0) return;
      const path = new Path2D();
      path.moveTo(at(from), plot.top + plot.high);
      for (let index = from; index <= to; index += 1) path.lineTo(at(index), y(line.values[index]!));
      path.lineTo(at(to), plot.top + plot.high);
      context.globalAlpha = 0.14;
      context.fillStyle = colour;
      context.fill(path);
      context.globalAlpha = 1;
    };
    for (let index = 0; index < line.values.length; index += 1) {
      const value = line.values[index]!;
      if (Number.isNaN(value)) {
        shade(index - 1);
        from = -1;
      } else if (from < 0) {
        from = index;
        context.moveTo(at(index), y(value));
      } else context.lineTo(at(index), y(value));
    }
    shade(line.values.length - 1);
    context.stroke();
  }
  context.setLineDash([]);
}

function* known(lines: Line[]): Generator<number> {
  for (const { values } of lines) for (const value of values) if (!Number.isNaN(value)) yield value;
}
