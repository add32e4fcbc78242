/** A chart over time: drag to zoom, double click to go back; a legend that tells values and switches lines. */

import { useComputed, useSignal, type ReadonlySignal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import uPlot from "uplot";
import { bytes, bytesPerSecond, count, dateTime, digits, microseconds, percent } from "../format";
import { palette, type Colour } from "../theme";
import type { Table } from "./history";
import { ends, type Span, type Window } from "./window";

export type Unit = "ratio" | "us" | "per_second" | "bytes" | "bytes_s";

export interface ChartLine {
  series: string;
  label: string;
  colour: Colour;
  dash?: number[];
  hidden?: boolean;
}

const FORMATS: Record<Unit, (value: number) => string> = {
  ratio: percent,
  us: microseconds,
  per_second: (value) => `${count(value)}/s`,
  bytes,
  bytes_s: bytesPerSecond,
};

const AXIS: Record<Unit, (value: number) => string> = { ...FORMATS, ratio: (value) => `${digits(value * 100)} %`, per_second: count };

/** Steps of an axis of bytes: powers of two, so that labels are round. */
const BYTE_STEPS = Array.from({ length: 50 }, (_, power) => 2 ** power);

interface Props {
  title: string;
  unit: Unit;
  lines: ChartLine[];
  table: ReadonlySignal<Table | null>;
  window: Window;
  sync: string;
  height?: number;
}

export function TimeChart({ title, unit, lines, table, window, sync, height = 170 }: Props) {
  const box = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const hidden = useSignal<ReadonlySet<string>>(new Set(lines.filter((line) => line.hidden).map((line) => line.series)));
  const cursor = useSignal<number | null>(null);
  const shape = lines.map((line) => line.series).join(",");

  useEffect(() => {
    const element = box.current!;
    const build = (): void => {
      plot.current?.destroy();
      plot.current = new uPlot(options({ title, unit, lines, table, window, sync, height }, element.clientWidth, cursor, hidden.peek()), data(table.peek(), lines), element);
      // The canvas says nothing to those who cannot see it: the summary does.
      element.querySelector(".uplot")?.setAttribute("aria-hidden", "true");
      place(plot.current, window.span.peek(), table.peek());
    };
    const ending = [
      palette.subscribe(build),
      table.subscribe((now) => {
        if (!plot.current || !now || document.hidden) return;
        plot.current.setData(data(now, lines), false);
        place(plot.current, window.span.peek(), now);
      }),
      hidden.subscribe((now) => lines.forEach((line, index) => plot.current?.setSeries(index + 1, { show: !now.has(line.series) }))),
    ];
    const resized = new ResizeObserver(() => plot.current?.setSize({ width: element.clientWidth, height }));
    resized.observe(element);
    return () => {
      resized.disconnect();
      for (const end of ending) end();
      plot.current?.destroy();
      plot.current = null;
    };
  }, [shape, window, sync]);

  const toggle = (series: string): void => {
    const next = new Set(hidden.value);
    if (!next.delete(series)) next.add(series);
    hidden.value = next;
  };
  const summary = useComputed(() => summarise(title, unit, lines, table.value, hidden.value));
  return (
    <figure class="chart">
      <figcaption>{title}</figcaption>
      <div ref={box} class="chart-box" role="img" aria-label={summary} />
      <Legend lines={lines} table={table} cursor={cursor} hidden={hidden} unit={unit} onToggle={toggle} />
    </figure>
  );
}

function data(table: Table | null, lines: ChartLine[]): uPlot.AlignedData {
  if (!table) return [[], ...lines.map(() => [])];
  return [table.times, ...lines.map((line) => table.columns[line.series] ?? table.times.map(() => null))];
}

/** Puts the plot over its stretch of time. */
function place(plot: uPlot, span: Span, table: Table | null): void {
  const newest = table?.times[table.times.length - 1];
  const [min, max] = ends(span, span.kind === "last" && span.seconds <= 300 && newest ? newest : undefined);
  plot.batch(() => {
    plot.setScale("x", { min, max });
  });
}

function options(props: Props, width: number, cursor: { value: number | null }, hidden: ReadonlySet<string>): uPlot.Options {
  const { unit, lines, window, sync, height = 170 } = props;
  const colours = palette.peek();
  const font = `11px ${getComputedStyle(document.body).fontFamily}`;
  const axis = { stroke: colours.muted, font, grid: { stroke: colours.line, width: 1 }, ticks: { show: false } };
  const scale: uPlot.Scale =
    unit === "ratio"
      ? { range: [0, 1] }
      : unit === "us"
        ? { distr: 3, range: (_, min, max) => [10 ** Math.floor(Math.log10(min > 0 ? min : 10)), 10 ** Math.ceil(Math.log10((max > 0 ? max : 1000) * 1.001))] }
        : { range: (_, __, max) => [0, max > 0 ? max * 1.08 : 1] };
  const incrs = unit === "bytes" || unit === "bytes_s" ? { incrs: BYTE_STEPS } : {};
  return {
    width: Math.max(width, 100),
    height,
    legend: { show: false },
    cursor: {
      sync: { key: sync },
      drag: { x: true, y: false, setScale: false },
      points: { size: 6 },
      bind: { dblclick: () => () => (window.reset(), null) },
    },
    scales: { x: { time: true }, y: scale },
    axes: [
      { ...axis, size: 28, space: 64, values: (_, splits, __, ___, step) => splits.map((time) => timeLabel(time, step)) },
      { ...axis, size: 62, ...incrs, values: (_, splits) => splits.map((value) => (value === null ? "" : AXIS[unit](value))), ...(unit === "us" ? { splits: (_: uPlot, __: number, min: number, max: number) => decades(min, max) } : {}) },
    ],
    series: [
      {},
      ...lines.map((line) => ({
        label: line.label,
        stroke: colours[line.colour],
        width: 1.5,
        show: !hidden.has(line.series),
        points: { show: false },
        ...(line.dash ? { dash: line.dash } : {}),
      })),
    ],
    hooks: {
      setCursor: [(plot) => void (cursor.value = plot.cursor.idx ?? null)],
      setSelect: [
        (plot) => {
          const { left, width: selected } = plot.select;
          if (selected < 4) return;
          window.zoom(plot.posToVal(left, "x"), plot.posToVal(left + selected, "x"));
          plot.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
        },
      ],
    },
  };
}

/** Powers of ten: the lines between them would only be noise. */
function decades(min: number, max: number): number[] {
  const found = [];
  for (let power = Math.round(Math.log10(min)); power <= Math.round(Math.log10(max)); power += 1) found.push(10 ** power);
  return found;
}

const two = (value: number): string => String(value).padStart(2, "0");

/** Midnights and coarser steps as dates, the rest as times of day. */
function timeLabel(unix_s: number, step_s: number): string {
  const date = new Date(unix_s * 1000);
  const day = `${two(date.getMonth() + 1)}-${two(date.getDate())}`;
  if (step_s >= 28 * 86_400) return `${date.getFullYear()}-${two(date.getMonth() + 1)}`;
  if (step_s >= 86_400) return day;
  const midnight = date.getHours() === 0 && date.getMinutes() === 0 && date.getSeconds() === 0;
  if (midnight && step_s >= 60) return day;
  return `${two(date.getHours())}:${two(date.getMinutes())}${step_s < 60 ? `:${two(date.getSeconds())}` : ""}`;
}

interface LegendProps {
  lines: ChartLine[];
  table: ReadonlySignal<Table | null>;
  cursor: ReadonlySignal<number | null>;
  hidden: ReadonlySignal<ReadonlySet<string>>;
  unit: Unit;
  onToggle: (series: string) => void;
}

/** Values at the cursor, or the newest that is known. */
function Legend({ lines, table, cursor, hidden, unit, onToggle }: LegendProps) {
  const now = table.value;
  const at = cursor.value;
  const time = now && at !== null ? now.times[at] : undefined;
  return (
    <div class="chart-legend">
      {lines.map((line) => {
        const column = now?.columns[line.series] ?? [];
        const value = at === null ? latest(column) : (column[at] ?? null);
        return (
          <button key={line.series} type="button" aria-pressed={!hidden.value.has(line.series)} onClick={() => onToggle(line.series)} title="Show or hide this line">
            <span class={`stroke ${line.colour} ${line.dash ? "dashed" : ""}`} aria-hidden="true" />
            {line.label} <strong>{value === null ? "–" : FORMATS[unit](value)}</strong>
          </button>
        );
      })}
      <span class="chart-time">{time === undefined ? "" : dateTime(time)}</span>
    </div>
  );
}

function latest(column: (number | null)[]): number | null {
  for (let index = column.length - 1; index >= Math.max(0, column.length - 5); index -= 1) {
    const value = column[index];
    if (value !== null && value !== undefined) return value;
  }
  return null;
}

function summarise(title: string, unit: Unit, lines: ChartLine[], table: Table | null, hidden: ReadonlySet<string>): string {
  if (!table) return `${title}: loading`;
  const parts = lines.filter((line) => !hidden.has(line.series)).map((line) => {
    let low = Infinity;
    let high = -Infinity;
    for (const value of table.columns[line.series] ?? []) {
      if (value === null) continue;
      if (value < low) low = value;
      if (value > high) high = value;
    }
    const now = latest(table.columns[line.series] ?? []);
    if (high === -Infinity) return `${line.label}: nothing known`;
    return `${line.label}: ${now === null ? "" : `now ${FORMATS[unit](now)}, `}lowest ${FORMATS[unit](low)}, highest ${FORMATS[unit](high)}`;
  });
  return `${title}. ${parts.join("; ")}`;
}
