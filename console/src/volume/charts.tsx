/** The charts of a volume, over one stretch of time. */

import { useComputed } from "@preact/signals";
import { useState } from "preact/hooks";
import { WindowControls } from "../charts/controls";
import { useHistory } from "../charts/history";
import { TimeChart, type ChartLine } from "../charts/time-chart";
import { Window } from "../charts/window";
import type { Colour } from "../theme";
import { Panel } from "../ui/basics";
import { OUTCOMES } from "../words/outcomes";

const LATENCIES: [string, Colour, boolean][] = [
  ["all", "text", false],
  ["ram_hit", "green", false],
  ["ssd_hit", "blue", false],
  ["miss", "orange", false],
  ["write_back", "purple", false],
  ["write_through", "teal", true],
  ["bypass", "grey", true],
];

const quantile = (which: "p50" | "p99"): ChartLine[] => [
  ...LATENCIES.map(([key, colour, hidden]) => ({ series: `${key}_${which}_us`, label: OUTCOMES[key]!, colour, hidden })),
  ...(which === "p50" ? [{ series: "baseline_us", label: "without the cache (mean)", colour: "red" as Colour, dash: [5, 4] }] : []),
];

const CHARTS: { title: string; unit: "ratio" | "us" | "per_second" | "bytes" | "bytes_s"; lines: ChartLine[] }[] = [
  { title: "Hit rate of reads", unit: "ratio", lines: [{ series: "hit_ratio", label: "answered by the cache", colour: "green" }] },
  {
    title: "Requests",
    unit: "per_second",
    lines: [
      { series: "reads_s", label: "reads", colour: "blue" },
      { series: "writes_s", label: "writes", colour: "orange", dash: [5, 3] },
      { series: "backing_ios_s", label: "of the disk", colour: "grey", dash: [2, 2] },
      { series: "bypassed_s", label: "bypassed", colour: "red", dash: [7, 3] },
    ],
  },
  { title: "Latency, median (p50)", unit: "us", lines: quantile("p50") },
  { title: "Latency, 99th percentile (p99)", unit: "us", lines: quantile("p99") },
  {
    title: "Throughput",
    unit: "bytes_s",
    lines: [
      { series: "read_bytes_s", label: "read", colour: "blue" },
      { series: "written_bytes_s", label: "written", colour: "orange", dash: [5, 3] },
      { series: "ssd_written_bytes_s", label: "written to the SSD", colour: "purple", dash: [2, 2], hidden: true },
      { series: "destaged_bytes_s", label: "destaged", colour: "teal", dash: [7, 3] },
    ],
  },
  {
    title: "Dirty and cached data",
    unit: "bytes",
    lines: [
      { series: "dirty_bytes", label: "dirty", colour: "red" },
      { series: "cached_bytes", label: "cached", colour: "blue", dash: [5, 3], hidden: true },
    ],
  },
];

const SERIES = [...new Set(CHARTS.flatMap((chart) => chart.lines.map((line) => line.series)))];

export function VolumeCharts({ name }: { name: string }) {
  const [window] = useState(() => new Window(300));
  const { table, problem } = useHistory("volume", name, SERIES, window.span.value);
  const none = useComputed(() => table.value !== null && table.value.times.length === 0);
  return (
    <Panel title="Over time" id="over-time" aside={<WindowControls window={window} />}>
      {problem.value && <p class="wrong">The history cannot be shown: {problem}</p>}
      {none.value && <p class="calm">Nothing is known of that time.</p>}
      <div class="charts">
        {CHARTS.map((chart) => <TimeChart key={chart.title} {...chart} table={table} window={window} of={name} />)}
      </div>
      <p class="muted hint">Drag over a chart to zoom, double-click to go back; a click on a line's name shows or hides it. Triangles are <a href="#/events">events</a>.</p>
    </Panel>
  );
}
