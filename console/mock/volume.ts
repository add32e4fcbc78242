/** A volume whose every second is a function of time. */

import type { LatencyPoint, Options, VolumeSample, VolumeStats, VolumeView } from "../src/api";
import { hash, noise, random } from "./noise";

export const GIB = 2 ** 30;
export const MIB = 2 ** 20;

export interface Character {
  iops: number;
  hit: number;
  writes: number;
  disk_us: number;
  dirty: number;
}

export const OPTIONS: Options = {
  mode: "write-through",
  admission: "second-touch",
  write_cache_depth_ms: 30_000,
  dirty_limit_bytes: null,
  max_io_bytes: 65_536,
  sequential_cutoff_bytes: MIB,
  log_burst_bytes: null,
  latency_goal_ms: 50,
  destage_rate_bytes: null,
  read_only: false,
  on_ssd_loss: "stop",
  tls_names: [],
};

export class MockVolume {
  readonly seed: number;
  /** Dirty data goes home from here on, by a job. */
  homeSince: number | null = null;

  constructor(
    readonly view: VolumeView,
    readonly character: Character,
    readonly born_s: number,
  ) {
    this.seed = hash(view.name);
  }

  sampleAt(t: number, started_s: number): VolumeSample {
    const { character, seed, view } = this;
    const day = 0.55 + 0.45 * Math.sin(((t % 86_400) / 86_400) * 2 * Math.PI - 1.8);
    const dead = view.health === "failed";
    const load = dead ? 0 : character.iops * day * (0.55 + 0.8 * noise(seed, t, 47)) * (0.9 + 0.2 * random(seed + 1, t));
    const writes_s = load * character.writes * (0.6 + 0.8 * noise(seed + 2, t, 90));
    const reads_s = Math.max(0, load - writes_s);
    const miss = Math.min(1, (1 - character.hit) * (0.5 + noise(seed + 3, t, 120)) + 0.3 * Math.max(0, noise(seed + 4, t, 600) - 0.82));
    const hit_ratio = reads_s > 0 ? Math.max(0, 1 - miss) : null;
    const bypass = reads_s * 0.06 * noise(seed + 5, t, 200);
    const hits = (hit_ratio ?? 0) * reads_s;
    const back = view.options.mode === "write-back";
    const outcomes: Record<string, number> = {
      ram_hit: hits * 0.35,
      ssd_hit: hits * 0.65,
      miss: Math.max(0, reads_s - hits - bypass),
      bypass,
      write_back: back ? writes_s : 0,
      write_through: back ? 0 : writes_s,
    };
    const slow = character.disk_us * (0.75 + 0.6 * noise(seed + 6, t, 75));
    const typical: Record<string, number> = { ram_hit: 42, ssd_hit: 160, miss: slow, bypass: slow * 1.1, write_back: 120, write_through: slow * 0.8 };
    const latency: Record<string, LatencyPoint> = {};
    const point = (count: number, mean: number): LatencyPoint => ({ count: Math.round(count), mean_us: mean, p50_us: mean * 0.8, p99_us: mean * (2.5 + 3 * random(seed + 7, t)) });
    let sum = 0;
    for (const [name, rate] of Object.entries(outcomes)) {
      if (rate < 0.5) continue;
      const mean = typical[name]! * (0.85 + 0.3 * noise(seed + hash(name), t, 20));
      latency[name] = point(rate, mean);
      sum += rate * mean;
    }
    const total = Object.values(outcomes).reduce((a, b) => a + b, 0);
    if (total >= 1) {
      latency["all"] = { ...point(total, sum / total), p50_us: 150, p99_us: slow * 1.4 };
      latency["read"] = latency["all"];
    }
    const seconds = Math.max(0, t - started_s);
    const saved_ios = Math.round(character.iops * 0.5 * character.hit * seconds);
    return {
      health: view.health,
      mode: view.options.mode,
      pool: view.pool,
      size_bytes: view.size_bytes,
      reads_s,
      writes_s,
      read_bytes_s: reads_s * 9000,
      written_bytes_s: writes_s * 12_000,
      outcomes_s: outcomes,
      hit_ratio,
      latency,
      baseline_us: dead ? null : slow,
      dirty_bytes: this.dirtyAt(t),
      cached_bytes: Math.round((view.cached_bytes ?? 0) * (0.97 + 0.03 * noise(seed + 8, t, 400))),
      ram_bytes: Math.round((view.cached_bytes ?? 0) * 0.01),
      destaged_bytes_s: back ? writes_s * 11_000 * (0.5 + noise(seed + 9, t, 15)) : 0,
      backing_ios_s: reads_s - hits + writes_s * (back ? 0.3 : 1),
      ssd_written_bytes_s: (back ? writes_s : writes_s * 0.2) * 14_000 + (reads_s - hits) * 2000,
      bypassed_s: bypass > 0.01 ? { first_touch: bypass * 0.6, sequential: bypass * 0.25, size: bypass * 0.15 } : {},
      errors_s: 0,
      saved: { backing_ios: saved_ios, backing_bytes: saved_ios * 8192, waiting_s: (saved_ios * character.disk_us) / 1e6 },
    };
  }

  dirtyAt(t: number): number {
    if (this.view.options.mode !== "write-back" && this.homeSince === null) return 0;
    const amount = this.character.dirty * (0.35 + 0.65 * noise(this.seed + 10, t, 130));
    if (this.homeSince === null) return Math.round(amount);
    return Math.max(0, Math.round(amount * (1 - (t - this.homeSince) / 20)));
  }

  stats(t: number, started_s: number): VolumeStats {
    const seconds = Math.max(1, t - started_s);
    const { iops, hit, writes } = this.character;
    const reads = Math.round(iops * (1 - writes) * 0.55 * seconds);
    const wrote = Math.round(iops * writes * 0.55 * seconds);
    const turned = Math.round(reads * 0.03);
    return {
      reads,
      read_bytes: reads * 9000,
      writes: wrote,
      written_bytes: wrote * 12_000,
      flushes: Math.round(wrote / 40),
      discards: 0,
      own_reads: 0,
      own_read_bytes: 0,
      read_hits_ram: Math.round(reads * hit * 0.35),
      read_hits_ssd: Math.round(reads * hit * 0.65),
      read_misses: Math.round(reads * (1 - hit)),
      bypassed: { first_touch: Math.round(turned * 0.6), sequential: Math.round(turned * 0.25), size: Math.round(turned * 0.15), dirty_limit: 12, pass_through: 0 },
      dirty_bytes: this.dirtyAt(t),
      cached_bytes: (this.view.cached_bytes ?? 0),
      ram_bytes: Math.round((this.view.cached_bytes ?? 0) * 0.01),
      ssd_written_bytes: wrote * 13_000,
      admitted_bytes: wrote * 12_000,
      write_amplification: 1.08,
      backing_reads: Math.round(reads * (1 - hit)),
      backing_read_bytes: Math.round(reads * (1 - hit)) * 9000,
      backing_writes: Math.round(wrote * 0.3),
      backing_written_bytes: wrote * 11_000,
      destaged_bytes: wrote * 10_000,
      checksum_errors: 0,
      errors: 0,
      latency_ns: {},
    };
  }
}
