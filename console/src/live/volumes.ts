/** What is known of each volume's present: its newest sample as a signal of its own, and its last five minutes. So a second
 *  that passes redraws rows, never the page. */

import { signal, type Signal } from "@preact/signals";
import type { HistoryView, PoolSample, Sample, VolumeSample } from "../api";
import { get } from "../rest";
import { Ring, RING_SECONDS } from "./ring";

export class LiveVolume {
  readonly sample: Signal<VolumeSample | null> = signal(null);
  readonly ring = new Ring();
  private filled = false;

  constructor(readonly name: string) {}

  take(second: number, sample: VolumeSample): void {
    const all = sample.latency["all"];
    this.ring.put(second, {
      iops: sample.reads_s + sample.writes_s,
      hit: sample.hit_ratio,
      now: all ? all.mean_us : null,
      baseline: sample.baseline_us,
    });
    this.sample.value = sample;
  }

  /** Asks once for the five minutes before the page was opened. */
  async fill(): Promise<boolean> {
    if (this.filled) return false;
    this.filled = true;
    const to = Math.floor(Date.now() / 1000) + 1;
    const query = { name: this.name, series: "reads_s,writes_s,hit_ratio,all_mean_us,baseline_us", from_unix_s: to - RING_SECONDS, to_unix_s: to };
    try {
      const past = await turn(() => get<HistoryView>("/history", query));
      const { reads_s = [], writes_s = [], hit_ratio = [], all_mean_us = [], baseline_us = [] } = past.series;
      const iops = reads_s.map((reads, index) => (reads === null ? null : reads + (writes_s[index] ?? 0)));
      for (const [name, values] of Object.entries({ iops, hit: hit_ratio, now: all_mean_us, baseline: baseline_us })) {
        this.ring.fill(name, past.from_unix_s, past.step_s, values);
      }
      return true;
    } catch {
      this.filled = false;
      return false;
    }
  }

  /** The past may have a hole now: it is asked for again when it is next shown. */
  forget(): void {
    this.filled = false;
  }
}

/** At most four questions about the past at a time: the page's own calls go first. */
const waiting: (() => void)[] = [];
let asking = 0;
async function turn<T>(ask: () => Promise<T>): Promise<T> {
  if (asking >= 4) await new Promise<void>((resolve) => waiting.push(resolve));
  asking += 1;
  try {
    return await ask();
  } finally {
    asking -= 1;
    waiting.shift()?.();
  }
}

const known = new Map<string, LiveVolume>();

export function liveVolume(name: string): LiveVolume {
  let live = known.get(name);
  if (!live) known.set(name, (live = new LiveVolume(name)));
  return live;
}

export const poolSamples: Signal<Record<string, PoolSample>> = signal({});
/** The newest sample as a whole: for totals. */
export const newest: Signal<Sample | null> = signal(null);

type Listener = (sample: Sample) => void;
const listeners = new Set<Listener>();

/** Calls `listener` after each sample; gives back how to end that. */
export function onSample(listener: Listener): () => void {
  listeners.add(listener);
  return () => void listeners.delete(listener);
}

export function takeSample(sample: Sample): void {
  const second = Math.floor(sample.unix_ms / 1000);
  for (const [name, volume] of Object.entries(sample.volumes)) liveVolume(name).take(second, volume);
  poolSamples.value = sample.pools;
  newest.value = sample;
  for (const listener of listeners) listener(sample);
}

/** After a gap: what was missed is asked for again. */
export function forgetPast(): void {
  for (const live of known.values()) live.forget();
}
