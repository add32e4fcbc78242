/** Values of series by their names in the history. Written apart from the page's own reading of them, as the daemon's is. */

import type { PoolSample, VolumeSample } from "../src/api";

export function volumeValue(series: string, sample: VolumeSample): number | null {
  for (const which of ["mean", "p50", "p99"] as const) {
    const ending = `_${which}_us`;
    if (series.endsWith(ending)) return sample.latency[series.slice(0, -ending.length)]?.[`${which}_us`] ?? null;
  }
  if (series === "bypassed_s") return Object.values(sample.bypassed_s).reduce((sum, value) => sum + value, 0);
  if (series in sample) return sample[series as "reads_s"];
  return sample.outcomes_s[series.replace(/_s$/, "")] ?? null;
}

export function poolValue(series: string, sample: PoolSample): number | null {
  return sample[series as "cached_bytes"] ?? null;
}
