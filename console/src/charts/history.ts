/** Series over time for charts: fetched for the window, finer when it is zoomed, and carried on by the live samples. */

import { signal, type Signal } from "@preact/signals";
import { useEffect, useState } from "preact/hooks";
import type { HistoryView, PoolSample, Sample, VolumeSample } from "../api";
import { connection } from "../live/connection";
import { onSample } from "../live/volumes";
import { ApiError, get } from "../rest";
import { ends, type Span } from "./window";

export interface Table {
  step_s: number;
  times: number[];
  columns: Record<string, (number | null)[]>;
}

/** The value of a series in a live sample of a volume; the names are those of the history. */
export function volumeValue(series: string, sample: VolumeSample): number | null {
  const quantile = /^(.+)_(mean|p50|p99)_us$/.exec(series);
  if (quantile) {
    const point = sample.latency[quantile[1]!];
    return point && point.count > 0 ? point[`${quantile[2] as "mean" | "p50" | "p99"}_us`] : null;
  }
  if (series === "bypassed_s") return Object.values(sample.bypassed_s).reduce((sum, value) => sum + value, 0);
  const direct = (sample as unknown as Record<string, unknown>)[series];
  if (typeof direct === "number") return direct;
  if (direct === null) return null;
  return series.endsWith("_s") ? (sample.outcomes_s[series.slice(0, -2)] ?? 0) : null;
}

export function poolValue(series: string, sample: PoolSample): number | null {
  const direct = (sample as unknown as Record<string, unknown>)[series];
  return typeof direct === "number" ? direct : null;
}

/** Points are asked for by what can be told apart on the screen. */
const POINTS = 600;
/** Windows up to this length are carried on second by second. */
const CARRIED_S = 300;

export function useHistory(kind: "volume" | "pool", name: string, series: string[], span: Span): { table: Signal<Table | null>; problem: Signal<string | null> } {
  const [state] = useState(() => ({ table: signal<Table | null>(null), problem: signal<string | null>(null) }));
  const names = series.join(",");
  useEffect(() => {
    const given = new AbortController();
    let waiting: Sample[] = [];
    let asking = false;
    const load = async (): Promise<void> => {
      if (asking || connection.peek() === "lost") return;
      asking = true;
      const [from, to] = ends(span);
      const query = { name, series: names, from_unix_s: Math.floor(from), to_unix_s: Math.ceil(to) + 1, points: POINTS };
      try {
        const past = await get<HistoryView>("/history", query, given.signal);
        const length = Math.max(0, ...Object.values(past.series).map((values) => values.length));
        state.table.value = {
          step_s: past.step_s,
          times: Array.from({ length }, (_, index) => past.from_unix_s + index * past.step_s),
          columns: past.series,
        };
        state.problem.value = null;
        for (const sample of waiting.splice(0)) carry(sample);
      } catch (error) {
        if (!given.signal.aborted) state.problem.value = error instanceof ApiError ? error.message : String(error);
      } finally {
        asking = false;
      }
    };
    const carry = (sample: Sample): void => {
      const table = state.table.peek();
      if (!table || table.step_s !== 1) return void (waiting = [...waiting.slice(-10), sample]);
      const mine = kind === "volume" ? sample.volumes[name] : sample.pools[name];
      const second = Math.floor(sample.unix_ms / 1000);
      if (!mine || second < (table.times[table.times.length - 1] ?? 0)) return;
      state.table.value = extended(table, second, (one) => (kind === "volume" ? volumeValue(one, mine as VolumeSample) : poolValue(one, mine as PoolSample)));
    };
    void load();
    const endings: (() => void)[] = [];
    if (span.kind === "last") {
      if (span.seconds <= CARRIED_S) endings.push(onSample(carry));
      else {
        const timer = setInterval(() => document.hidden || void load(), Math.max(10_000, (span.seconds / POINTS) * 1000));
        endings.push(() => clearInterval(timer));
      }
    }
    let lost = false;
    endings.push(
      connection.subscribe((now) => {
        if (now === "live" && lost) void load();
        lost = now === "lost";
      }),
    );
    return () => {
      given.abort();
      for (const end of endings) end();
    };
  }, [kind, name, names, span]);
  return state;
}

/** The table with one more second; what is older than the window falls out. */
function extended(table: Table, second: number, value: (series: string) => number | null): Table {
  const times = [...table.times];
  // The history's last second may be there already, half counted: the sample is the better word on it.
  if (times[times.length - 1] === second) times.pop();
  const kept = times.length;
  let skip = 0;
  while (skip < kept && times[skip]! < second - CARRIED_S - 2) skip += 1;
  const columns: Table["columns"] = {};
  for (const [name, values] of Object.entries(table.columns)) columns[name] = [...values.slice(skip, kept), value(name)];
  return { step_s: 1, times: [...times.slice(skip), second], columns };
}
