/** Draws a chart over time on its canvas: lines, what they are measured by, and where the pointer is. */

import type { Colour } from "../theme";
import type { Table } from "./history";
import { paintAxes, places } from "./axes";
import { nearest, valueEnds, type Ends, type Scale } from "./scale";
import { prepare } from "./spark";

/** Room for labels at the left and below, and a margin above and at the right, in pixels. */
export const LEFT = 62;
export const RIGHT = 16;
const TOP = 12;
const FOOT = 26;
/** A label of time takes so many pixels; lines of values lie so far apart. */
const TIME_LABEL = 64;
const ROW = 30;
const DECADE = 20;
/** From labels to the plot. */
const APART: [number, number] = [8, 9];

export interface Painted {
  table: Table | null;
  lines: { series: string; colour: Colour; dash?: number[] }[];
  scale: Scale;
  ends: Ends;
  /** How a value is told beside its line. */
  told: (value: number) => string;
  /** The time that the pointer is at. */
  cursor: number | null;
  /** Times at which something happened. */
  marks: number[];
  colours: Record<Colour, string>;
}

export function paint(canvas: HTMLCanvasElement, { table, lines, scale, ends, told, cursor, marks, colours }: Painted): void {
  const ready = prepare(canvas);
  if (!ready) return;
  const { context, width, height } = ready;
  const [wide, high] = [width - LEFT - RIGHT, height - TOP - FOOT];
  const times = table?.times ?? [];
  const columns = lines.map(({ series }) => table?.columns[series] ?? []);
  // One point beyond each end: lines go on to the edge.
  const first = Math.max(0, times.findIndex((time) => time >= ends[0]) - 1);
  const after = times.findIndex((time) => time > ends[1]);
  const last = after < 0 ? times.length : after + 1;
  const values = valueEnds(scale, seen(columns, first, last));
  const axes = { scale, values, times: ends, told, row: scale === "decades" ? DECADE : ROW, label: TIME_LABEL, apart: APART };
  const plot = { left: LEFT, top: TOP, wide, high };
  const { x, y } = places(plot, axes);
  context.font = `11px ${getComputedStyle(canvas).fontFamily}`;
  paintAxes(context, plot, axes, colours);

  context.save();
  context.beginPath();
  context.rect(LEFT, 0, wide, height);
  context.clip();
  for (const time of marks) {
    context.fillStyle = colours.orange;
    context.beginPath();
    context.moveTo(x(time), TOP + high - 1);
    context.lineTo(x(time) - 4, TOP + high + 6);
    context.lineTo(x(time) + 4, TOP + high + 6);
    context.fill();
  }
  const at = cursor === null ? -1 : nearest(times, cursor);
  context.lineJoin = "round";
  lines.forEach((line, index) => {
    const column = columns[index]!;
    context.strokeStyle = context.fillStyle = colours[line.colour];
    context.lineWidth = 1.5;
    context.setLineDash(line.dash ?? []);
    context.beginPath();
    let goes = false;
    for (let point = first; point < last; point += 1) {
      const value = column[point] ?? null;
      if (value === null) goes = false;
      else {
        // One that stands alone is a dot.
        if (!goes) context.moveTo(x(times[point]!) - 0.75, y(value));
        context.lineTo(x(times[point]!) + (goes ? 0 : 0.75), y(value));
        goes = true;
      }
    }
    context.stroke();
    const here = column[at] ?? null;
    if (here === null) return;
    context.beginPath();
    context.arc(x(times[at]!), y(here), 3.5, 0, 7);
    context.fill();
  });
  if (at >= 0) {
    context.strokeStyle = colours.muted;
    context.lineWidth = 1;
    context.setLineDash([3, 3]);
    context.beginPath();
    context.moveTo(x(times[at]!), TOP);
    context.lineTo(x(times[at]!), TOP + high);
    context.stroke();
  }
  context.restore();
}

/** All values of these columns within a stretch. */
function* seen(columns: (number | null)[][], first: number, last: number): Generator<number> {
  for (const column of columns)
    for (let at = first; at < last; at += 1) {
      const value = column[at];
      if (value !== null && value !== undefined) yield value;
    }
}
