/** Which stretch of time charts show: the last so many seconds, moving along, or a fixed one after zooming. */

import { signal, type Signal } from "@preact/signals";

export type Span = { kind: "last"; seconds: number } | { kind: "fixed"; from_s: number; to_s: number };

export const RANGES: { word: string; told: string; seconds: number }[] = [
  { word: "5 min", told: "five minutes", seconds: 300 },
  { word: "1 h", told: "hour", seconds: 3600 },
  { word: "24 h", told: "day", seconds: 86_400 },
  { word: "7 d", told: "week", seconds: 7 * 86_400 },
  { word: "30 d", told: "month", seconds: 30 * 86_400 },
  { word: "1 y", told: "year", seconds: 365 * 86_400 },
];

/** Shorter stretches show nothing that could be told apart. */
const SHORTEST_S = 10;
const LONGEST_S = 366 * 86_400;

export function ends(span: Span, now_s = Date.now() / 1000): [number, number] {
  return span.kind === "last" ? [now_s - span.seconds, now_s] : [span.from_s, span.to_s];
}

/** The stretch of time of one page, shared by its charts. */
export class Window {
  readonly span: Signal<Span>;
  /** The time that the pointer is at, in any of the charts. */
  readonly cursor = signal<number | null>(null);
  private readonly before: Span[] = [];

  constructor(seconds: number) {
    this.span = signal<Span>({ kind: "last", seconds });
  }

  last(seconds: number): void {
    this.before.length = 0;
    this.span.value = { kind: "last", seconds };
  }

  zoom(from_s: number, to_s: number): void {
    const middle = (from_s + to_s) / 2;
    const half = Math.max(SHORTEST_S, Math.min(LONGEST_S, to_s - from_s)) / 2;
    this.before.push(this.span.value);
    this.span.value = { kind: "fixed", from_s: middle - half, to_s: middle + half };
  }

  /** Half as long, or twice, about the middle. */
  scale(factor: number): void {
    const [from, to] = ends(this.span.value);
    const middle = (from + to) / 2;
    const half = ((to - from) / 2) * factor;
    const now = Date.now() / 1000;
    const late = Math.min(middle + half, now);
    this.zoom(late - 2 * half, late);
  }

  /** Earlier (negative) or later, by half of what is shown; never beyond now. */
  move(direction: number): void {
    const [from, to] = ends(this.span.value);
    const now = Date.now() / 1000;
    const step = Math.min(((to - from) / 2) * direction, now - to);
    this.span.value = { kind: "fixed", from_s: from + step, to_s: to + step };
  }

  /** Back to the latest stretch that moved along. */
  reset(): void {
    const moving = [...this.before].reverse().find((span) => span.kind === "last");
    this.last(moving?.kind === "last" ? moving.seconds : 300);
  }
}
