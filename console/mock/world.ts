/** The state of the daemon that does not exist: pools, volumes, jobs, events, and how they change. */

import type { AdviceAsk, AnalysisView, Cause, DeviceView, DiskView, EventView, HistoryView, JobKind, JobView, Mode, PoolSample, PoolStats, PoolView, Sample, Severity, VolumeView } from "../src/api";
import type { ContentStats, SlotStats } from "../src/api-space";
import type { TokenView } from "../src/api-access";
import type { ObjectSet, ObjectView } from "../src/api-objects";
import { firstObjects } from "./objects";
import { firstShares, firstTokens } from "./shares";
import { poolValue, volumeValue } from "./values";
import { GIB, MIB, MockVolume, OPTIONS, type Character } from "./volume";

export type Told = { event: "job"; data: JobView } | { event: "event"; data: EventView } | { event: "changed"; data: { what: "pools" | "volumes" } };

interface Job extends JobView {
  began_ms: number;
  whenDone: () => void;
}

const CHARACTERS: [string, Mode, Character, Partial<VolumeView>][] = [
  ["db", "write-back", { iops: 9000, hit: 0.95, writes: 0.4, disk_us: 7800, dirty: 900 * MIB }, { size_bytes: 256 * GIB, cached_bytes: 46 * GIB }],
  ["mail", "write-back", { iops: 1400, hit: 0.88, writes: 0.55, disk_us: 9200, dirty: 2.4 * GIB }, { size_bytes: 512 * GIB, cached_bytes: 22 * GIB }],
  ["vm-images", "write-through", { iops: 3200, hit: 0.91, writes: 0.2, disk_us: 6500, dirty: 0 }, { size_bytes: 1024 * GIB, cached_bytes: 31 * GIB }],
  ["archive", "write-around", { iops: 220, hit: 0.42, writes: 0.7, disk_us: 11_000, dirty: 0 }, { size_bytes: 4096 * GIB, cached_bytes: 3 * GIB }],
  ["scratch", "pass-through", { iops: 0, hit: 0, writes: 0.5, disk_us: 9000, dirty: 0 }, { size_bytes: 64 * GIB, cached_bytes: 0 }],
  ["backup", "write-through", { iops: 300, hit: 0.3, writes: 0.9, disk_us: 12_000, dirty: 0 }, { size_bytes: 8192 * GIB, cached_bytes: GIB, health: "failed", problem: "its backing device /dev/sdh is missing", remedy: "connect it and restart the daemon" }],
];

export class World {
  instance = "1";
  started_s = Math.floor(Date.now() / 1000) - 5 * 3600;
  readonly volumes = new Map<string, MockVolume>();
  readonly pools = new Map<string, PoolView>();
  readonly disks = new Map<string, DiskView>();
  readonly jobs = new Map<number, Job>();
  readonly analyses = new Map<string, AnalysisView>();
  /** Advice that was asked for. */
  readonly asked: AdviceAsk[] = [];
  readonly objects: ObjectView[] = firstObjects();
  /** Policies that were asked for. */
  readonly policies: ObjectSet[] = [];
  /** Volumes that are looked at just now. */
  readonly looking = new Set<string>();
  readonly tokens = new Map<string, TokenView>(firstTokens().map((token) => [token.name, token]));
  readonly events: EventView[] = [];
  readonly listeners = new Set<(told: Told) => void>();

  constructor(number: number) {
    if (number > 0) this.pools.set("fast", pool("fast", "/dev/nvme0n1p4", 128 * GIB));
    CHARACTERS.slice(0, number).forEach(([name, mode, character, rest]) => this.addVolume(name, mode, character, rest));
    for (let index = CHARACTERS.length; index < number; index += 1) {
      const mode = (["write-through", "write-back"] as const)[index % 2]!;
      this.addVolume(`vol-${String(index).padStart(3, "0")}`, mode, { iops: 40 + ((index * 97) % 900), hit: 0.4 + ((index * 31) % 60) / 100, writes: 0.3, disk_us: 5000 + index * 40, dirty: ((index * 53) % 200) * MIB }, {});
    }
    if (number > 0) {
      this.tell("info", "fast", "brought back after a clean stop");
      this.tell("info", "db", "added to pool fast");
      this.tell("warning", "mail", "destage falls behind: 2.4 GiB are dirty");
      this.tell("error", "backup", "its backing device /dev/sdh is missing");
      this.failed("destage", "backup", { kind: "device", detail: "the backing device /dev/sdh does not answer", remedy: "connect it and go on with the job" });
      this.tell("warning", "db", "3 blocks did not match their checksum and were read from the backing device");
    }
  }

  addVolume(name: string, mode: Mode, character: Character, rest: Partial<VolumeView>): MockVolume {
    const view: VolumeView = {
      name, uuid: `00000000-0000-4000-8000-${String(this.volumes.size).padStart(12, "0")}`, health: "running", problem: null, remedy: null, pool: "fast",
      backing: `/dev/sd${String.fromCharCode(98 + (this.volumes.size % 24))}`, size_bytes: 32 * GIB, options: { ...OPTIONS, mode },
      exports: { loop: `/dev/loop${this.volumes.size}`, nbd: `nbd+unix:///${name}?socket=/run/hearth/nbd.sock` }, on_restart: { loop: "waits", nbd: "ends" }, stable_path: `/dev/hearth/${name}`, attached_to: null, sector_bytes: 512, cached_bytes: 2 * GIB, dirty_bytes: 0, job: null, ...rest,
    };
    view.shares = firstShares(name, view.uuid);
    if (name === "db") view.options.dirty_limit_bytes = 4 * GIB;
    const volume = new MockVolume(view, character, this.started_s - 40 * 86_400);
    this.volumes.set(name, volume);
    this.pools.get(view.pool)?.volumes.push(name);
    return volume;
  }

  tell(severity: Severity, object: string, message: string): void {
    const event = { number: this.events.length + 1, unix_s: Math.floor(Date.now() / 1000), severity, object, message };
    this.events.push(event);
    this.say({ event: "event", data: event });
  }

  say(told: Told): void {
    for (const listener of this.listeners) listener(told);
  }

  begin(kind: JobKind, volume: string, total_bytes: number, seconds: number, whenDone: () => void): JobView {
    const id = this.jobs.size + 1;
    const job: Job = { id, kind, volume, state: "running", done_bytes: 0, total_bytes, rate_bytes: Math.round(total_bytes / seconds), left_s: Math.ceil(seconds), elapsed_ms: 0, began_ms: Date.now(), whenDone };
    this.jobs.set(id, job);
    const told = view(job);
    this.say({ event: "job", data: told });
    return told;
  }

  /** A job that has ended badly. */
  failed(kind: JobKind, volume: string, error: Cause): void {
    const id = this.begin(kind, volume, 64 * MIB, 10, () => {}).id;
    Object.assign(this.jobs.get(id)!, { state: "failed", error, left_s: null } satisfies Partial<Job>);
  }

  /** Lets a second pass for the jobs. */
  tick(): void {
    for (const job of this.jobs.values()) {
      if (job.state !== "running") continue;
      job.elapsed_ms = Date.now() - job.began_ms;
      job.done_bytes = Math.min(job.total_bytes, Math.round((job.rate_bytes * job.elapsed_ms) / 1000));
      job.left_s = job.rate_bytes > 0 ? Math.ceil((job.total_bytes - job.done_bytes) / job.rate_bytes) : 0;
      if (job.done_bytes >= job.total_bytes) {
        job.state = "done";
        job.left_s = null;
        job.whenDone();
      }
      this.say({ event: "job", data: view(job) });
    }
  }

  sample(t: number): Sample {
    const volumes = Object.fromEntries([...this.volumes].map(([name, volume]) => [name, volume.sampleAt(t, this.started_s)]));
    const pools: Record<string, PoolSample> = {};
    for (const [name, pool] of this.pools) {
      const mine = Object.values(volumes).filter((volume) => volume.pool === name);
      const sum = (of: (volume: (typeof mine)[number]) => number): number => mine.reduce((total, volume) => total + of(volume), 0);
      pools[name] = {
        health: pool.health, size_bytes: pool.size_bytes, cached_bytes: sum((v) => v.cached_bytes), dirty_bytes: sum((v) => v.dirty_bytes ?? 0), ram_used_bytes: Math.round(pool.ram_bytes * 0.93),
        index_bytes: Math.round((sum((v) => v.cached_bytes) / 4096) * 16), ssd_written_bytes_s: sum((v) => v.ssd_written_bytes_s), admitted_bytes_s: sum((v) => v.ssd_written_bytes_s) / 1.17,
        ssd_written_bytes: Math.round(41e6 * Math.max(0, t - this.started_s)), write_amplification: 1.17,
      };
    }
    return { unix_ms: t * 1000, span_ms: 1000, volumes, pools };
  }

  poolStats(name: string): PoolStats {
    const now = this.sample(Math.floor(Date.now() / 1000)).pools[name]!;
    return { cached_bytes: now.cached_bytes, dirty_bytes: now.dirty_bytes, ssd_written_bytes: now.ssd_written_bytes, admitted_bytes: Math.round(now.ssd_written_bytes / 1.17), write_amplification: 1.17, reinserted_bytes: Math.round(now.ssd_written_bytes * 0.06), ram_used_bytes: now.ram_used_bytes, index_bytes: now.index_bytes, checksum_errors: 3, ssd_read_errors: 0, content: content(this.pools.get(name)!, now.cached_bytes), slots: slots(now.size_bytes) };
  }

  history(name: string, series: string[], from: number, to: number, points: number): HistoryView | null {
    const volume = this.volumes.get(name);
    if (!volume && !this.pools.has(name)) return null;
    const now = Math.floor(Date.now() / 1000);
    const base = from >= now - 3700 ? 1 : from >= now - 7 * 86_400 - 100 ? 60 : 3600;
    const step_s = base * Math.max(1, Math.ceil((to - from) / points / base));
    const first = Math.floor(from / step_s) * step_s;
    const found: HistoryView = { step_s, from_unix_s: first, series: Object.fromEntries(series.map((one) => [one, []])) };
    for (let t = first; t < to && t <= now; t += step_s) {
      const known = t >= now - 40 * 86_400 && !(t > now - 7300 && t < now - 6900);
      const one = known && volume ? volume.sampleAt(t, this.started_s) : null;
      const all = known && !volume ? this.sample(t).pools[name] : null;
      for (const key of series) found.series[key]!.push(one ? volumeValue(key, one) : all ? poolValue(key, all) : null);
    }
    return found;
  }
}

export function view(job: Job): JobView {
  const { began_ms: _began, whenDone: _then, ...rest } = job;
  return rest;
}

export function pool(name: string, ssd: string, size_bytes: number): PoolView {
  return { name, uuid: `11111111-0000-4000-8000-0000000${name.length}0001`, health: "running", problem: null, remedy: null, ssd, on_blank_ssd: "stop", spare: null, write_amplification: null, flash: { kept_part: 1, estimates: [28, 7].map((own_spare_percent) => ({ own_spare_percent, even: 2.4, skewed: 2.8 })), note: null }, size_bytes, ram_bytes: 2 * GIB, cached_bytes: 0, dirty_bytes: 0, index_bytes: 0, content: "auto", content_stats: null, slot_stats: null, volumes: [], disks: [], disks_bytes: 0, recovery: ["after a clean stop: 410 GiB cached, 1.2 GiB of it dirty, from 35 pages of the ring, which was complete"] };
}

function slots(size_bytes: number): SlotStats {
  const missed: [string, number | null][] = [["A", 0.214], ["B", 0.187], ["C", 0.302], ["D", 0.231], ["E", 0.19], ["F", null]];
  const policies = missed.map(([policy, miss_part]) => ({ policy, shards: policy === "B" ? 3 : policy === "E" ? 1 : 0, miss_part }));
  return { size_bytes, live_bytes: Math.round(size_bytes * 0.958), live_part: 0.958, free_bytes: Math.round(size_bytes * 0.03), free_runs: 41_877, packed_bytes: Math.round(size_bytes * 0.4), packed_blocks: Math.round(size_bytes * 0.4 / 4096 * 1.9), packed_payload_bytes: Math.round(size_bytes * 0.31), ring_bytes: Math.round(size_bytes / 64), ring_used_bytes: Math.round(size_bytes / 90), policies, policy_changes: 3, accesses_since_change: 8_114_226 };
}

function content(of: PoolView, cached_bytes: number): ContentStats {
  const blocks = Math.round(cached_bytes / 4096);
  return {
    level: of.content, reference_blocks: Math.round(blocks * 0.05), associated_blocks: Math.round(blocks * 0.21), independent_blocks: Math.round(blocks * 0.66), zero_blocks: Math.round(blocks * 0.08), uncached_reference_blocks: Math.round(blocks * 0.02), cached_bytes, stored_bytes: Math.round(cached_bytes / 1.62), effective_capacity: 1.62,
    saved_bytes: 311 * GIB, encoded_blocks: 91_004_221, encoding_cpu_us_per_block: 11.4, bases_in_memory_blocks: 20_760, index_bytes: blocks * 16, hint_bytes: blocks * 3, memory_bytes_per_block: 19.2,
    steps: { db: [{ step: "lz4", open: true, open_shards: 4, shards: 4, saved_part: 0.38, opens_from_part: 0.024 }, { step: "similar", open: false, open_shards: 1, shards: 4, saved_part: 0.11, opens_from_part: 0.059 }, { step: "zstd", open: false, open_shards: 0, shards: 4, saved_part: 0.02, opens_from_part: 0.073 }] },
  };
}

const device = (path: string, rest: Partial<DeviceView>): DeviceView => ({ path, stable_path: null, kind: "disk", parent: null, size_bytes: 500 * GIB, model: null, rotational: false, read_only: false, state: "free", summary: "free", destroys: null, can_be_ssd: true, can_be_backing: true, ...rest });

export const DEVICES: DeviceView[] = [
  device("/dev/nvme0n1", { model: "Samsung SSD 980 PRO 1TB", size_bytes: 931 * GIB, state: "in_use", summary: "its partitions are in use", can_be_ssd: false, can_be_backing: false }),
  device("/dev/nvme0n1p1", { kind: "partition", parent: "/dev/nvme0n1", size_bytes: 100 * GIB, state: "in_use", summary: "mounted at /", can_be_ssd: false, can_be_backing: false }),
  device("/dev/nvme0n1p5", { kind: "partition", parent: "/dev/nvme0n1", size_bytes: 200 * GIB, summary: "free" }),
  device("/dev/nvme1n1", { model: "KIOXIA CD8-V", size_bytes: 1490 * GIB, state: "foreign", summary: "has an ext4 file system \"old-data\"", destroys: "an ext4 file system \"old-data\" with 1.2 TiB in use on /dev/nvme1n1 is lost", stable_path: "/dev/disk/by-id/nvme-KIOXIA_CD8-V_X1" }),
  device("/dev/sdx", { model: "ST16000NM001G", rotational: true, size_bytes: 14_902 * GIB, state: "foreign", summary: "has an xfs file system \"media\"", destroys: "an xfs file system \"media\" on /dev/sdx is lost", stable_path: "/dev/disk/by-id/ata-ST16000NM001G_ZL2" }),
  device("/dev/sdb", { model: "ST8000NM", rotational: true, size_bytes: 7452 * GIB, state: "backing", summary: "the backing device of volume db", can_be_ssd: false, can_be_backing: false }),
  device("/dev/sr0", { model: "DVD-ROM", size_bytes: 4 * GIB, read_only: true, summary: "can only be read", state: "in_use", can_be_ssd: false, can_be_backing: false }),
];
