/** How cells of the address space are drawn. Heat is a lightness scale; dirt is a bar at the cell's foot, so that it is told without colour. */

import type { MapView } from "../api";
import type { Colour } from "../theme";

export type Layer = "all" | "heat" | "cached" | "dirty" | "objects";

/** Of the objects with most cells, in that order; others are grey. */
export const OBJECT_COLOURS = ["blue", "orange", "green", "purple", "teal", "red"] as const;

export const objectColour = (place: number): Colour => OBJECT_COLOURS[place] ?? "grey";

export interface Grid {
  columns: number;
  rows: number;
  /** Side of a cell in CSS pixels. */
  side: number;
}

/** A grid as wide as the box, with at most `cells` cells. */
export function grid(width: number, cells: number): Grid {
  const side = width < 480 ? 8 : 11;
  const columns = Math.max(8, Math.floor(width / side));
  return { columns, rows: Math.max(1, Math.ceil(cells / columns)), side };
}

/** How many cells to ask for. */
export function cellsFor(width: number): number {
  const { columns } = grid(width, 1);
  return columns * (width < 480 ? 26 : 20);
}

/** Heat on a scale of 0 to 1: logarithmic, since a hot megabyte is hit thousands of times as often as a warm one. */
export function warmth(heat: number, most: number): number {
  return heat <= 0 || most <= 0 ? 0 : Math.log1p(heat) / Math.log1p(most);
}

function rgb(colour: string): [number, number, number] {
  const hex = colour.replace("#", "");
  const full = hex.length === 3 ? [...hex].map((digit) => digit + digit).join("") : hex;
  return [0, 2, 4].map((at) => Number.parseInt(full.slice(at, at + 2), 16)) as [number, number, number];
}

/** A colour between others, by hand: canvases must not depend on what a browser makes of newer colour functions. */
export function between(stops: string[], part: number): string {
  const position = Math.max(0, Math.min(1, part)) * (stops.length - 1);
  const index = Math.min(stops.length - 2, Math.floor(position));
  const [a, b] = [rgb(stops[index]!), rgb(stops[index + 1]!)];
  const mixed = a.map((value, channel) => Math.round(value + (b[channel]! - value) * (position - index)));
  return `rgb(${mixed.join(",")})`;
}

export function cellLength(map: MapView, index: number, size_bytes: number): number {
  return Math.max(1, Math.min(map.cell_bytes, size_bytes - (map.start_bytes + index * map.cell_bytes)));
}

export function paint(context: CanvasRenderingContext2D, map: MapView, size_bytes: number, layer: Layer, shape: Grid, colours: Record<Colour, string>): void {
  const most = map.heat.reduce((max, value) => Math.max(max, value), 0);
  const { columns, side } = shape;
  const inner = side - 1;
  const heatStops = [colours["heat-0"], colours["heat-1"], colours["heat-2"]];
  map.heat.forEach((heat, index) => {
    const x = (index % columns) * side;
    const y = Math.floor(index / columns) * side;
    const length = cellLength(map, index, size_bytes);
    const cached = (map.cached_bytes[index] ?? 0) / length;
    const dirty = (map.dirty_bytes[index] ?? 0) / length;
    const warm = warmth(heat, most);
    context.fillStyle = colours.cell;
    context.fillRect(x, y, inner, inner);
    if (layer === "cached" || layer === "all") {
      context.fillStyle = between([colours.cell, colours.cached], cached === 0 ? 0 : 0.2 + 0.8 * Math.sqrt(cached));
      context.fillRect(x, y, inner, inner);
    }
    const object = map.object[index] ?? null;
    if (layer === "objects" && object !== null) {
      // What is cached is strong, what is not is pale: the colour says whose it is.
      context.fillStyle = between([colours.cell, colours[objectColour(object)]], 0.35 + 0.65 * Math.sqrt(Math.min(1, cached)));
      context.fillRect(x, y, inner, inner);
    }
    if (layer === "heat") {
      context.fillStyle = warm === 0 ? colours.cell : between(heatStops, warm);
      context.fillRect(x, y, inner, inner);
    }
    if (layer === "all" && warm > 0) {
      // The hotter, the larger the spot.
      const spot = Math.max(2, Math.round(inner * (0.25 + 0.55 * warm)));
      const inset = Math.round((inner - spot) / 2);
      context.fillStyle = colours["heat-1"];
      context.fillRect(x + inset, y + inset, spot, spot);
    }
    if (layer === "dirty") {
      if (dirty > 0) {
        const height = Math.max(2, Math.round(inner * Math.sqrt(dirty)));
        context.fillStyle = colours.dirty;
        context.fillRect(x, y + inner - height, inner, height);
      }
    } else if (layer === "all" && dirty > 0) {
      context.fillStyle = colours.dirty;
      // The more of it is dirty, the longer the foot.
      context.fillRect(x, y + inner - 2, Math.max(3, Math.round(inner * Math.sqrt(dirty))), 2);
    }
  });
}
