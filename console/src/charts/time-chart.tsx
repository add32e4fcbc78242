/** A chart over time: drag to zoom, double click to go back; a legend that tells values and switches lines. */

import { effect, useComputed, useSignal, type ReadonlySignal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import type { EventView } from "../api";
import { dateTime } from "../format";
import { events } from "../live/store";
import { palette, type Colour } from "../theme";
import { sentence } from "../ui/toast";
import type { Table } from "./history";
import { LEFT, paint, RIGHT } from "./paint";
import { nearest, nearestEvent } from "./scale";
import { AXIS, FORMATS, SCALES, type Unit } from "./units";
import { ends, type Window } from "./window";

export interface ChartLine {
  series: string;
  label: string;
  colour: Colour;
  dash?: number[];
  hidden?: boolean;
}

/** A drag over less is a click; an event is told as near to the pointer, in pixels. */
const NEAR = 4;

interface Props {
  title: string;
  unit: Unit;
  lines: ChartLine[];
  table: ReadonlySignal<Table | null>;
  window: Window;
  /** Whose events are marked below. */
  of: string;
}

export function TimeChart({ title, unit, lines, table, window, of }: Props) {
  const happened = useComputed(() => events.value.filter((event) => event.object === of));
  const canvas = useRef<HTMLCanvasElement>(null);
  const hidden = useSignal<ReadonlySet<string>>(new Set(lines.filter((line) => line.hidden).map((line) => line.series)));
  const width = useSignal(0);
  /** Where a drag began and is now, in pixels of the canvas. */
  const drag = useSignal<[number, number] | null>(null);
  const shown = useComputed(() => {
    const newest = table.value?.times[table.value.times.length - 1];
    const span = window.span.value;
    return ends(span, span.kind === "last" && span.seconds <= 300 && newest ? newest : undefined);
  });

  useEffect(() => {
    const element = canvas.current!;
    let frame = 0;
    const ending = effect(() => {
      const painted = {
        table: table.value,
        lines: lines.filter((line) => !hidden.value.has(line.series)),
        scale: SCALES[unit],
        ends: shown.value,
        told: AXIS[unit],
        cursor: window.cursor.value,
        marks: happened.value.map((event) => event.unix_s),
        colours: palette.value,
        width: width.value,
      };
      // Whatever changes until then is drawn at once, and nothing while nobody looks.
      cancelAnimationFrame(frame);
      frame = requestAnimationFrame(() => paint(element, painted));
    });
    const resized = new ResizeObserver(() => (width.value = element.clientWidth));
    resized.observe(element);
    return () => {
      ending();
      resized.disconnect();
      cancelAnimationFrame(frame);
    };
  }, [title, window]);

  const place = (event: PointerEvent): number => {
    const { left, width: wide } = canvas.current!.getBoundingClientRect();
    return Math.min(wide - RIGHT, Math.max(LEFT, event.clientX - left));
  };
  const timeAt = (pixel: number): number => {
    const [from, to] = shown.value;
    return from + ((pixel - LEFT) / (width.value - LEFT - RIGHT)) * (to - from);
  };
  const move = (event: PointerEvent): void => {
    const at = place(event);
    window.cursor.value = timeAt(at);
    if (drag.value) drag.value = [drag.value[0], at];
  };
  const drop = (): void => {
    const [from, to] = [...(drag.value ?? [0, 0])].sort((a, b) => a - b) as [number, number];
    drag.value = null;
    if (to - from >= NEAR) window.zoom(timeAt(from), timeAt(to));
  };
  const toggle = (series: string): void => {
    const next = new Set(hidden.value);
    if (!next.delete(series)) next.add(series);
    hidden.value = next;
  };
  const summary = useComputed(() => summarise(title, unit, lines, table.value, hidden.value));
  // What happened where the pointer is.
  const event = useComputed(() => {
    const at = window.cursor.value;
    if (at === null || width.value === 0) return undefined;
    const [from, to] = shown.value;
    const near = ((to - from) / (width.value - LEFT - RIGHT)) * NEAR;
    return nearestEvent(happened.value, at, near);
  });
  return (
    <figure class="chart">
      <figcaption>{title}</figcaption>
      <div
        class="chart-box"
        role="img"
        aria-label={summary}
        onPointerMove={move}
        onPointerLeave={() => (window.cursor.value = null)}
        onPointerDown={(down) => {
          if (down.button !== 0) return;
          down.currentTarget.setPointerCapture(down.pointerId);
          drag.value = [place(down), place(down)];
        }}
        onPointerUp={drop}
        onPointerCancel={() => (drag.value = null)}
        onDblClick={() => window.reset()}
      >
        <canvas ref={canvas} />
        <Selection drag={drag} />
      </div>
      <Legend lines={lines} table={table} cursor={window.cursor} event={event} hidden={hidden} unit={unit} onToggle={toggle} />
    </figure>
  );
}

function Selection({ drag }: { drag: ReadonlySignal<[number, number] | null> }) {
  if (!drag.value) return null;
  const [from, to] = drag.value;
  return <span class="chart-drag" style={{ left: `${Math.min(from, to)}px`, width: `${Math.abs(to - from)}px` }} />;
}

interface LegendProps {
  lines: ChartLine[];
  table: ReadonlySignal<Table | null>;
  /** The time that the pointer is at. */
  cursor: ReadonlySignal<number | null>;
  event: ReadonlySignal<EventView | undefined>;
  hidden: ReadonlySignal<ReadonlySet<string>>;
  unit: Unit;
  onToggle: (series: string) => void;
}

/** Values at the cursor, or the newest that is known. */
function Legend({ lines, table, cursor, event, hidden, unit, onToggle }: LegendProps) {
  const now = table.value;
  const at = now && cursor.value !== null && now.times.length > 0 ? nearest(now.times, cursor.value) : null;
  const time = at === null ? undefined : now?.times[at];
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
      <span class="chart-time">
        {time !== undefined && dateTime(event.value?.unix_s ?? time)}
        {event.value && `: ${sentence(event.value.message)}`}
      </span>
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
