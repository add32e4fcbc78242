/**
 * Hits over SSD bytes: a curve with its band, what there is and what more would bring, and a size
 * to move along. Drawn as SVG: it takes the theme's colours by itself, and prints.
 */

import { useEffect, useRef, useState } from "preact/hooks";
import type { AdvicePoint, AdviceView } from "../api";
import { bytes, microseconds, NB } from "../format";
import { Table, type Column } from "../ui/table";
import { follows, gain, hits, toldAt } from "../words/insight";
import {
  axis,
  firstSize,
  marksOf,
  moved,
  placeOf,
  pointAt,
  pointsOf,
  sizeAt,
  ticks,
  tried,
} from "./curve";

const LEFT = 48;
const RIGHT = 22;
const PLOT = 210;
const FOOT = 26;
/** A line of labels above the plot. */
const ROW = 17;
/** A tick's label takes so many pixels. */
const TICK = 76;

const COLUMNS: Column<AdvicePoint>[] = [
  ["SSD", (point) => bytes(point.ssd_bytes)],
  ["Hits", (point) => `${hits(point.hits_percent)}${NB}%`, "right"],
  [
    "Band",
    (point) => `${hits(point.hits_percent_low)} to ${hits(point.hits_percent_high)}${NB}%`,
    "right",
  ],
  [
    "A read takes",
    (point) => (point.read_us === null ? "–" : microseconds(point.read_us)),
    "right",
  ],
  [
    "Would be written to the SSD a day",
    (point) =>
      point.ssd_written_bytes_per_day === null ? "–" : bytes(point.ssd_written_bytes_per_day),
    "right",
  ],
];

export function SizeCurve({ advice }: { advice: AdviceView }) {
  const box = useRef<HTMLDivElement>(null);
  const [width, setWidth] = useState(0);
  const [chosen, setChosen] = useState<number | null>(null);
  useEffect(() => {
    const resized = new ResizeObserver(() => setWidth(box.current?.clientWidth ?? 0));
    resized.observe(box.current!);
    return () => resized.disconnect();
  }, []);

  const { now } = advice;
  const curve = pointsOf(advice);
  const ends = tried(curve);
  const shown = axis(advice);
  const size = Math.min(ends.high, Math.max(ends.low, chosen ?? firstSize(advice)));
  const here = pointAt(curve, size);
  const marks = marksOf(advice).map((point): [string, AdvicePoint, string] =>
    point === now
      ? [`now: ${bytes(point.ssd_bytes)}, ${hits(point.hits_percent)}${NB}%`, point, "text"]
      : [gain(point, now!), point, "green"],
  );
  const top = 8 + marks.length * ROW;
  const height = top + PLOT + FOOT;
  const wide = Math.max(width, 240) - LEFT - RIGHT;
  const x = (ssd_bytes: number): number => LEFT + placeOf(ssd_bytes, shown) * wide;
  const y = (percent: number): number => top + (1 - percent / 100) * PLOT;
  const line = (of: (point: AdvicePoint) => number, points = curve): string =>
    points.map((point) => `${x(point.ssd_bytes).toFixed(1)} ${y(of(point)).toFixed(1)}`).join("L");
  const back = line((point) => point.hits_percent_low, [...curve].reverse());
  const band = `M${line((point) => point.hits_percent_high)}L${back}Z`;

  const follow = (event: PointerEvent): void => {
    const place = (event.currentTarget as Element).getBoundingClientRect();
    const at = ((event.clientX - place.left) * Math.max(width, 240)) / place.width - LEFT;
    setChosen(Math.min(ends.high, Math.max(ends.low, sizeAt(at / wide, shown))));
  };
  const onKeyDown = (event: KeyboardEvent): void => {
    const to = event.ctrlKey || event.metaKey || event.altKey ? null : moved(event.key, size, ends);
    if (to === null) return;
    event.preventDefault();
    setChosen(to);
  };
  return (
    <figure class="chart curve">
      <figcaption>Hits by size of the SSD</figcaption>
      <div ref={box} class="curve-box">
        <svg
          viewBox={`0 0 ${Math.max(width, 240)} ${height}`}
          tabindex={0}
          role="slider"
          aria-label="Size of the SSD. Arrow keys move it"
          aria-valuemin={Math.round(ends.low)}
          aria-valuemax={Math.round(ends.high)}
          aria-valuenow={Math.round(size)}
          aria-valuetext={toldAt(here)}
          onKeyDown={onKeyDown}
          onPointerDown={(event) => {
            if (event.button !== 0) return;
            event.currentTarget.setPointerCapture(event.pointerId);
            follow(event);
          }}
          onPointerMove={(event) =>
            event.currentTarget.hasPointerCapture(event.pointerId) && follow(event)
          }
        >
          {[0, 25, 50, 75, 100].map((percent) => (
            <g key={percent}>
              <line class="curve-grid" x1={LEFT} x2={LEFT + wide} y1={y(percent)} y2={y(percent)} />
              <text x={LEFT - 6} y={y(percent) + 4} text-anchor="end">
                {percent}
                {NB}%
              </text>
            </g>
          ))}
          {ticks(shown, wide / TICK).map((tick) => (
            <g key={tick}>
              <line class="curve-grid" x1={x(tick)} x2={x(tick)} y1={top} y2={top + PLOT} />
              <text x={x(tick)} y={top + PLOT + 17} text-anchor="middle">
                {bytes(tick)}
              </text>
            </g>
          ))}
          <path class="curve-band" d={band} />
          <path class="curve-line" d={`M${line((point) => point.hits_percent)}`} />
          {marks.map(([label, point, colour], index) => {
            const at = x(point.ssd_bytes);
            const end = at > LEFT + wide * 0.6;
            return (
              <g key={label} class={`curve-mark ${colour}`}>
                <line x1={at} x2={at} y1={index * ROW + 3} y2={y(point.hits_percent)} />
                <circle cx={at} cy={y(point.hits_percent)} r="4" />
                <text
                  x={at + (end ? -6 : 6)}
                  y={index * ROW + 14}
                  text-anchor={end ? "end" : "start"}
                >
                  {label}
                </text>
              </g>
            );
          })}
          <g class="curve-here">
            <line x1={x(size)} x2={x(size)} y1={top} y2={top + PLOT} />
            <circle cx={x(size)} cy={y(here.hits_percent)} r="7" />
          </g>
        </svg>
      </div>
      <p class="curve-told">
        <strong>{toldAt(here)}</strong>
        <span class="muted">{follows(here)}</span>
        {now && Math.abs(size / now.ssd_bytes - 1) > 0.005 && (
          <span class="muted">against now: {gain(here, now)}</span>
        )}
      </p>
      <ul class="legend">
        <li>
          <span class="stroke blue" aria-hidden="true" />
          hits
        </li>
        <li>
          <span class="swatch curve-band" aria-hidden="true" />
          band: the truth lies within it 19 times of 20
        </li>
        <li class="muted no-print">Drag, or use the arrow keys, to try another size.</li>
      </ul>
      <details class="heat-table">
        <summary>The same as a table</summary>
        <div class="table-box">
          <Table columns={COLUMNS} rows={curve} />
        </div>
      </details>
    </figure>
  );
}
