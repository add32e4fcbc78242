/** Sparklines: five minutes in a few dozen pixels, on a canvas of their own. */

import type { Colour } from "../theme";
import { palette } from "../theme";

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

/** Draws the lines over each other, all to the same scale from 0 to `top` (or the largest value). */
export function drawSpark(canvas: HTMLCanvasElement, lines: Line[], top?: number): void {
  const ready = prepare(canvas);
  if (!ready) return;
  const { context, width, height } = ready;
  let largest = top ?? 0;
  if (top === undefined) for (const line of lines) for (const value of line.values) if (value > largest) largest = value;
  if (largest <= 0) largest = 1;
  context.lineWidth = 1.25;
  context.lineJoin = "round";
  for (const line of lines) {
    const colour = palette.value[line.colour];
    context.strokeStyle = colour;
    context.setLineDash(line.dashed ? [3, 2] : []);
    const step = width / (line.values.length - 1);
    const y = (value: number): number => height - 1.5 - (Math.min(value, largest) / largest) * (height - 3);
    context.beginPath();
    let from = -1;
    const shade = (to: number): void => {
      if (!line.filled || from < 0) return;
      const path = new Path2D();
      path.moveTo(from * step, height);
      for (let index = from; index <= to; index += 1) path.lineTo(index * step, y(line.values[index]!));
      path.lineTo(to * step, height);
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
        context.moveTo(index * step, y(value));
      } else context.lineTo(index * step, y(value));
    }
    shade(line.values.length - 1);
    context.stroke();
  }
  context.setLineDash([]);
}
