/** The address space of a volume that does not exist: some places hot, some cached, some dirty. */

import type { MapView, RecentRequest, Run, WhyView } from "../src/api";
import { noise, random } from "./noise";
import { MIB, type MockVolume } from "./volume";

function heatAt(volume: MockVolume, mib: number): number {
  const at = (mib * MIB) / volume.view.size_bytes;
  const { seed } = volume;
  let heat = 0;
  for (let spot = 0; spot < 5; spot += 1) {
    const centre = random(seed + 50, spot);
    const width = 0.003 + 0.02 * random(seed + 51, spot);
    heat += (40 + 900 * random(seed + 52, spot)) * Math.exp(-(((at - centre) / width) ** 2));
  }
  const rest = noise(seed + 53, mib, 3700) > 0.7 && random(seed + 54, mib) > 0.6 ? 4 * random(seed + 61, mib) : 0;
  return heat < 0.4 ? rest : heat * (0.5 + random(seed + 55, mib));
}

const cachedAt = (volume: MockVolume, mib: number): number => {
  const heat = heatAt(volume, mib);
  return heat > 8 ? 0.6 + 0.4 * random(volume.seed + 56, mib) : heat > 0 ? 0.25 * random(volume.seed + 57, mib) : noise(volume.seed + 58, mib, 5200) > 0.74 ? 0.5 * random(volume.seed + 62, mib) : 0;
};

const dirtyAt = (volume: MockVolume, mib: number): number =>
  volume.view.options.mode === "write-back" && heatAt(volume, mib) > 60 && random(volume.seed + 59, mib) > 0.6 ? 0.4 * random(volume.seed + 60, mib) : 0;

export function map(volume: MockVolume, start: number, end: number, cells: number): MapView {
  const from = Math.floor(start / MIB);
  const to = Math.ceil(Math.min(end, volume.view.size_bytes) / MIB);
  const each = Math.max(1, Math.ceil((to - from) / cells));
  const view: MapView = { volume: volume.view.name, start_bytes: from * MIB, cell_bytes: each * MIB, heat: [], cached_bytes: [], dirty_bytes: [], age_ms: 900, counted_part: 1, object: [], objects: [] };
  for (let first = from; first < to; first += each) {
    let heat = 0;
    let cached = 0;
    let dirty = 0;
    // A few places stand for all in a large cell.
    const looked = Math.min(each, 6, to - first);
    for (let step = 0; step < looked; step += 1) {
      const mib = first + Math.floor((step * each) / looked);
      heat += heatAt(volume, mib);
      cached += cachedAt(volume, mib);
      dirty += Math.min(dirtyAt(volume, mib), cachedAt(volume, mib));
    }
    const factor = Math.min(each, to - first) / looked;
    view.heat.push(heat * factor);
    view.cached_bytes.push(Math.round(cached * factor * MIB));
    view.dirty_bytes.push(Math.round(dirty * factor * MIB));
    // Tables lie one after the other, with something unknown between.
    const place = Math.floor(first / 9000) % 9;
    view.object.push(volume.view.name !== "db" || place > 7 ? null : place);
  }
  const counts = view.object.reduce((all, place) => (place === null ? all : all.set(place, (all.get(place) ?? 0) + 1)), new Map<number, number>());
  const names = ["orders", "items", "customers", "audit", "carts", "prices", "stock", "logins"];
  view.objects = names.map((name, id) => ({ id: 100 + id, name: `shop.${name}`, kind: "table", cells: counts.get(id) ?? 0 })).filter(() => volume.view.name === "db");
  return view;
}

const ENCODINGS = ["plain", "lz4", "lz4", "delta", "zstd", "zero", "duplicate"];

export function why(volume: MockVolume, start: number, length: number): WhyView {
  const from = Math.floor(start / 4096) * 4096;
  const end = Math.min(volume.view.size_bytes, Math.ceil((start + length) / 4096) * 4096);
  const runs: Run[] = [];
  let at = from;
  const encodings: Record<string, number> = {};
  let ssd = 0;
  let ram = 0;
  let dirty = 0;
  const blocks = Math.ceil((end - from) / 4096);
  const grain = Math.max(4096, Math.ceil((end - from) / 60 / 4096) * 4096);
  while (at < end) {
    const mib = Math.floor(at / MIB);
    const run_bytes = Math.min(end - at, grain * (1 + Math.floor(3 * random(volume.seed + 70, at / 4096))));
    const there = random(volume.seed + 71, at / 4096) < cachedAt(volume, mib);
    const inRam = there && random(volume.seed + 72, at / 4096) < 0.3;
    const wet = there && random(volume.seed + 73, at / 4096) < dirtyAt(volume, mib) * 2;
    const encoding = there ? ENCODINGS[Math.floor(random(volume.seed + 74, at / 4096) * ENCODINGS.length)]! : null;
    const number = run_bytes / 4096;
    if (there) {
      ssd += number;
      encodings[encoding!] = (encodings[encoding!] ?? 0) + Math.ceil(number);
      if (inRam) ram += number;
      if (wet) dirty += number;
    }
    runs.push({ start_bytes: at, length_bytes: run_bytes, place: there ? (inRam ? "ram+ssd" : "ssd") : "none", encoding, dirty: wet, dirty_since_s: wet ? 12.5 : null, hits: there ? (["never", "at least once", "often"] as const)[Math.floor(random(volume.seed + 75, at) * 3)]! : null });
    at += run_bytes;
  }
  const heat = heatAt(volume, Math.floor(from / MIB));
  const told: Omit<RecentRequest, "ago_ms" | "start_bytes">[] = [
    { op: "read", length_bytes: 8192, outcome: "ssd_hit", reason: null, summary: "Both blocks came from the SSD." },
    { op: "read", length_bytes: 4096, outcome: "miss", reason: "first_touch", summary: "It was seen for the first time; it enters the SSD when it is used again." },
    { op: "read", length_bytes: 1048576, outcome: "bypass", reason: "sequential", summary: "It belonged to a stream longer than the sequential cutoff of 1 MiB, so it bypassed the cache." },
    { op: "write", length_bytes: 4096, outcome: volume.view.options.mode === "write-back" ? "write_back" : "write_through", reason: null, summary: "It was written." },
  ];
  const recent: RecentRequest[] = heat < 0.5 ? [] : Array.from({ length: 9 }, (_, index) => ({ ...told[Math.floor(random(volume.seed + 76, index + from) * told.length)]!, ago_ms: 300 + index * index * 900, start_bytes: from + index * 4096 }));
  const verdict = ssd === 0
    ? ["Nothing of this range is on the SSD.", heat < 0.5 ? "Nobody has used it lately, so there is nothing to cache." : "It was read once; with second-touch admission a block enters the SSD when it is used again."]
    : [`${Math.round((ssd / blocks) * 100)} % of this range is on the SSD${ram > 0 ? `, some of it in RAM too` : ""}.`, ...(dirty > 0 ? ["Some of it is dirty: it goes home within the write-cache depth of 30 s."] : ["All of that is clean."]), ...(ssd < blocks ? ["The rest was not used twice lately, or went by in a sequential stream."] : [])];
  return { volume: volume.view.name, start_bytes: from, end_bytes: end, blocks, on_ssd_blocks: Math.round(ssd), in_ram_blocks: Math.round(ram), dirty_blocks: Math.round(dirty), dirty_since_s: dirty > 0 ? 12.5 : null, encodings, heat, object: volume.view.name === "db" ? "Block 7039 of shop.orders/PRIMARY (index of InnoDB)." : null, stream: volume.view.name === "db" ? "A scan passed here 12 s ago (leaf pages in key order): it is served what is cached, and puts nothing in." : null, verdict, runs: runs.slice(0, 256), recent, truncated: runs.length > 256 };
}
