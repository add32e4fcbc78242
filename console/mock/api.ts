/** The calls of the API over a [`World`]. */

import type { AdviceAsk, AnalysisStart, DiskCreate, DiskSet, DiskView, Options, OptionsPatch, PoolCreate, PoolReplace, PoolSet, PoolView, VolumeAdd, VolumeSet, VolumeWarm } from "../src/api";
import type { ShareAdd, TokenCreate, TokenMade } from "../src/api-access";
import type { ObjectPreload, ObjectSet } from "../src/api-objects";
import { advise, loads, start } from "./insight";
import { applications, apply, list, preload, setPolicy, verify as verified } from "./objects";
import { shared } from "./shares";
import { map, why } from "./space";
import { GIB, type MockVolume } from "./volume";
import { DEVICES, pool, view, type World } from "./world";

export class Problem extends Error {
  constructor(readonly status: number, readonly kind: string, readonly detail: string, readonly remedy: string) {
    super(detail);
  }
}

const missing = (what: string, name: string): Problem => new Problem(404, "not_found", `there is no ${what} "${name}"`, `list them with hearth ${what} list`);
const wait = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));

export async function handle(world: World, method: string, path: string, query: URLSearchParams, body: unknown): Promise<unknown> {
  const [kind, name, verb, word] = path.split("/").slice(1).map(decodeURIComponent);
  const now = Math.floor(Date.now() / 1000);
  const number = (key: string, otherwise: number): number => (query.has(key) ? Number(query.get(key)) : otherwise);
  switch (kind) {
    case "daemon":
      return { version: "0.1.0", pid: 812, state_directory: "/var/lib/hearth", insight_enabled: true };
    case "sample":
      return world.sample(now);
    case "events":
      return world.events.filter((event) => event.number > number("after", 0));
    case "devices":
      return method === "POST" ? examine((body as { path: string }).path) : DEVICES;
    case "history": {
      const found = world.history(query.get("name") ?? "", (query.get("series") ?? "").split(","), number("from_unix_s", 0), number("to_unix_s", 0), number("points", 1000));
      if (!found) throw missing("volume", query.get("name") ?? "");
      return found;
    }
    case "shares":
      return [...[...world.volumes.values()].map(({ view }) => view), ...world.disks.values()].flatMap(({ shares }) => shares ?? []);
    case "tokens":
      return tokens(world, method, name, body);
    case "stats": {
      if (name === undefined) return { pools: {}, volumes: {}, disks: {} };
      const volume = world.volumes.get(name);
      if (volume) return volume.stats(now, world.started_s);
      if (world.pools.has(name)) return world.poolStats(name);
      throw missing("volume", name);
    }
    case "jobs":
      return jobs(world, method, name, verb);
    case "pools":
      return pools(world, method, name, verb, body);
    case "disks":
      return disks(world, method, name, body);
    case "applications":
      return applications(world);
    case "objects": {
      const preloads = name === "preload";
      const found = preloads ? preload(world, body as ObjectPreload) : method === "POST" ? setPolicy(world, body as ObjectSet) : list(world, query);
      if (typeof found === "string") throw new Problem(409, "conflict", found, "pin fewer or smaller objects, or give the pool a larger SSD");
      if (query.has("object") && (found as unknown[]).length === 0) throw missing("object", query.get("object")!);
      return found;
    }
    case "advice":
      if (verb !== undefined) {
        const view = advise(world, loads(world).find((load) => load.name === "db")!, {});
        return verb === "verify" ? verified(view) : apply(world, view, query.get("dry_run") === "true");
      }
      return insight(world, method, kind, (body as AdviceAsk | undefined)?.name ?? undefined, verb, body);
    case "analyses":
    case "streams":
      return insight(world, method, kind, name ?? query.get("name") ?? (body as AdviceAsk | undefined)?.name ?? undefined, verb, body);
    case "volumes":
      return volumes(world, method, name, verb, word, number, body, query);
    default:
      throw new Problem(404, "not_found", "there is no such path", "see /api/v1/openapi.json");
  }
}

async function insight(world: World, method: string, kind: string, name: string | undefined, verb: string | undefined, body: unknown): Promise<unknown> {
  if (kind === "analyses" && method === "POST" && verb === undefined) return start(world, body as AnalysisStart);
  if (name === undefined) return kind === "analyses" ? loads(world) : loads(world).flatMap((load) => load.streams);
  const load = loads(world).find((one) => one.name === name);
  if (!load) throw missing("analysis", name);
  if (kind === "streams") return load.streams;
  if (kind === "advice") {
    world.asked.push(body as AdviceAsk);
    await wait(400);
    return [advise(world, load, body as AdviceAsk)];
  }
  if (verb === "stop" && body !== undefined) throw new Problem(400, "usage", "this path does not accept a body", "send none");
  if (verb === "stop") load.state = "ended";
  if (method === "DELETE") {
    world.analyses.delete(name);
    return { done: true };
  }
  return load;
}

const disksOf = (world: World, pool: string): DiskView[] => [...world.disks.values()].filter((disk) => disk.pool === pool);

/** The cache gives room for disks, or takes it back. */
function setRoom(world: World, pool: PoolView, disks_bytes: number): void {
  const all = pool.size_bytes + (pool.disks_bytes ?? 0);
  Object.assign(pool, { disks_bytes, size_bytes: all - disks_bytes, cached_bytes: 0, disks: disksOf(world, pool.name).map((disk) => disk.name) });
  world.say({ event: "changed", data: { what: "pools" } });
}

function disks(world: World, method: string, name: string | undefined, body: unknown): unknown {
  if (name === undefined && method === "GET") return [...world.disks.values()];
  if (name === undefined) {
    const asked = body as DiskCreate;
    const pool = world.pools.get(asked.pool);
    if (!pool) throw missing("pool", asked.pool);
    if (world.disks.has(asked.name) || world.volumes.has(asked.name)) throw new Problem(409, "conflict", `there is already a volume or disk "${asked.name}"`, "choose another name");
    if (asked.size_bytes > pool.size_bytes) throw new Problem(409, "conflict", `it has room for ${pool.size_bytes >> 30} GiB more of disks at most`, "give a smaller --size, or remove another disk");
    return world.begin("disk_room", pool.name, GIB, 2, () => {
      const number = world.disks.size + 1;
      world.disks.set(asked.name, {
        name: asked.name, uuid: `22222222-0000-4000-8000-${String(number).padStart(12, "0")}`, health: "running", problem: null, remedy: null, pool: pool.name, ssd: pool.ssd,
        pieces: [{ offset_bytes: pool.size_bytes - asked.size_bytes, size_bytes: asked.size_bytes }], size_bytes: asked.size_bytes, checksummed: false, sector_bytes: 512,
        exports: Object.fromEntries((asked.exports ?? []).map((word) => [word, word === "block" ? `/dev/ublkb${number}` : `nbd+unix:///${asked.name}?socket=/run/hearth/nbd.sock`])),
        on_restart: {}, export_notes: {}, stable_path: (asked.exports ?? []).includes("block") ? `/dev/hearth/${asked.name}` : null, shares: [],
      });
      world.tell("info", asked.name, "disk made");
      setRoom(world, pool, disksOf(world, pool.name).reduce((sum, disk) => sum + disk.size_bytes, 0));
    });
  }
  const disk = world.disks.get(name);
  if (!disk) throw missing("disk", name);
  const pool = world.pools.get(disk.pool)!;
  if (method === "PATCH") {
    const asked = body as DiskSet;
    if (asked.size_bytes == null) throw new Problem(400, "usage", "nothing to change was given", "give a size, or exports");
    if (asked.size_bytes < disk.size_bytes && !asked.lose_content) throw new Problem(400, "usage", "the last part of the disk, and what it holds, would be lost", "confirm it with --lose-content");
    disk.size_bytes = asked.size_bytes;
    world.say({ event: "changed", data: { what: "pools" } });
  }
  if (method === "DELETE") {
    if ((disk.shares ?? []).length > 0) throw new Problem(409, "conflict", `the disk "${name}": it is shared by iSCSI`, `remove the share first with \`hearth share remove ${name} --iscsi\``);
    world.disks.delete(name);
    pool.disks = disksOf(world, pool.name).map((other) => other.name);
    world.say({ event: "changed", data: { what: "pools" } });
    return { done: true };
  }
  return disk;
}

function jobs(world: World, method: string, name: string | undefined, verb: string | undefined): unknown {
  if (name === undefined) return [...world.jobs.values()].map(view);
  const job = world.jobs.get(Number(name));
  if (!job) throw missing("job", name);
  if (method === "DELETE") {
    job.state = "cancelled";
    job.left_s = null;
    world.say({ event: "job", data: view(job) });
    return { done: true };
  }
  if (verb === "resume") return world.begin(job.kind, job.volume, job.total_bytes - job.done_bytes, 10, job.whenDone);
  return view(job);
}

async function pools(world: World, method: string, name: string | undefined, verb: string | undefined, body: unknown): Promise<unknown> {
  if (name === undefined) {
    if (method === "GET") return [...world.pools.values()];
    const create = body as PoolCreate;
    await wait(600);
    const device = DEVICES.find((other) => other.path === create.ssd || other.stable_path === create.ssd);
    if (device?.destroys && !create.force) throw new Problem(409, "conflict", `${create.ssd} ${device.summary}`, "use --force to destroy it");
    const made = pool(create.name, create.ssd, create.size_bytes ?? 200 * GIB);
    world.pools.set(create.name, made);
    world.tell("info", create.name, "pool created");
    world.say({ event: "changed", data: { what: "pools" } });
    return made;
  }
  const one = world.pools.get(name);
  if (!one) throw missing("pool", name);
  if (verb === "check") return world.begin("check", name, one.size_bytes, 15, () => world.tell("info", name, "check done: no mismatches"));
  if (verb === "take-back") {
    const used = disksOf(world, name).reduce((sum, disk) => sum + disk.size_bytes, 0);
    if ((one.disks_bytes ?? 0) <= used) throw new Problem(409, "conflict", "a disk begins where the cache ends", "remove the disk that lies there, or leave it so");
    return world.begin("disk_room", name, GIB, 2, () => setRoom(world, one, used));
  }
  if (verb === "replace") {
    const asked = body as PoolReplace;
    const device = DEVICES.find((other) => other.path === asked.ssd);
    if (device?.destroys && !asked.force) throw new Problem(409, "conflict", `${asked.ssd} ${device.summary}`, "use --force to destroy it");
    return world.begin("replace", name, GIB, 3, () => {
      Object.assign(one, { ssd: asked.ssd, cached_bytes: 0, dirty_bytes: 0 });
      world.tell("info", name, `the pool is now on ${asked.ssd}; its cache is empty`);
      world.say({ event: "changed", data: { what: "pools" } });
    });
  }
  if (method === "PATCH") {
    one.content = ((body as PoolSet).content ?? one.content) as typeof one.content;
    world.say({ event: "changed", data: { what: "pools" } });
  }
  if (method === "DELETE") {
    if (one.volumes.length > 0) throw new Problem(409, "conflict", `the pool "${name}" has volumes`, "remove them first");
    world.pools.delete(name);
    world.say({ event: "changed", data: { what: "pools" } });
    return { done: true };
  }
  return one;
}

async function volumes(world: World, method: string, name: string | undefined, verb: string | undefined, word: string | undefined, number: (key: string, otherwise: number) => number, body: unknown, query: URLSearchParams): Promise<unknown> {
  if (name === undefined) return method === "GET" ? [...world.volumes.values()].map((volume) => volume.view) : add(world, body as VolumeAdd);
  const disk = world.disks.get(name);
  if (disk && verb === "shares") {
    const shares = disk.shares ?? [];
    const share = method === "POST" ? shared(name, disk.uuid, body as ShareAdd) : null;
    disk.shares = share ? [...shares, share] : shares.filter((other) => other.protocol !== word);
    return share ?? { done: true, summary: "no longer shared" };
  }
  const volume = world.volumes.get(name);
  if (!volume) throw missing("volume", name);
  const changed = (): void => world.say({ event: "changed", data: { what: "volumes" } });
  const dirty = (): number => Math.max(2 ** 20, volume.dirtyAt(Math.floor(Date.now() / 1000)));
  switch (verb) {
    case "discover":
      world.looking.add(name);
      return world.begin("discover", name, 34 * 2 ** 20, 3, () => world.looking.delete(name));
    case "why":
      return why(volume, number("start_bytes", 0), number("length_bytes", 4096));
    case "map":
      return map(volume, number("start_bytes", 0), number("end_bytes", volume.view.size_bytes), number("cells", 1024));
    case "start":
    case "stop":
      volume.view.health = verb === "start" ? "running" : "stopped";
      changed();
      return { done: true, summary: verb === "start" ? `it runs over ${volume.view.backing}` : `${volume.view.backing} is complete and free` };
    case "drop-cache":
      return { done: true, summary: "1 GiB of clean cache on the SSD and the cache in RAM were dropped" };
    case "grow":
      volume.view.size_bytes = Math.max(volume.view.size_bytes, volume.view.backing_size_bytes ?? 0);
      volume.view.backing_size_bytes = null;
      changed();
      return { done: true, summary: "its size is that of its backing device" };
    case "shares": {
      const shares = (volume.view.shares ??= []);
      if (method === "POST") {
        const share = shared(volume.view.name, volume.view.uuid, body as ShareAdd);
        shares.push(share);
        changed();
        return share;
      }
      volume.view.shares = shares.filter((share) => share.protocol !== word);
      changed();
      return { done: true, summary: "no longer shared" };
    }
    case "destage":
      return world.begin("destage", name, dirty(), 12, () => world.tell("info", name, "destage done"));
    case "warm": {
      const warm = body as VolumeWarm;
      return world.begin("warm", name, (warm.end_bytes ?? volume.view.size_bytes) - (warm.start_bytes ?? 0), 30, () => world.tell("info", name, "warm-up done"));
    }
  }
  if (method === "PATCH") return set(world, volume, body as VolumeSet, dirty, changed);
  if (method === "DELETE") {
    volume.view.health = "removing";
    changed();
    return world.begin("remove", name, query.get("drop_dirty") === "true" ? 1 : dirty(), 4, () => {
      world.volumes.delete(name);
      world.tell("info", name, "removed");
      changed();
    });
  }
  return volume.view;
}

function tokens(world: World, method: string, name: string | undefined, body: unknown): unknown {
  if (method === "POST") {
    const { name: wanted, role } = body as TokenCreate;
    if (world.tokens.has(wanted)) throw new Problem(409, "conflict", `there is already a token "${wanted}"`, "choose another name, or revoke it first");
    world.tokens.set(wanted, { name: wanted, role, created_unix_s: Math.floor(Date.now() / 1000) });
    return { name: wanted, role, token: `hearth_${"0123456789abcdef".repeat(4)}` } satisfies TokenMade;
  }
  if (name === undefined) return [...world.tokens.values()].sort((a, b) => (a.name < b.name ? -1 : 1));
  if (!world.tokens.delete(name)) throw missing("token", name);
  return { done: true };
}

function set(world: World, volume: MockVolume, body: VolumeSet, dirty: () => number, changed: () => void): unknown {
  const { name } = volume.view;
  const asked = body.options ?? {};
  const next = applied(volume.view.options, asked);
  if (next.read_only && next.mode === "write-back") throw new Problem(400, "usage", "a read-only volume cannot be write-back", "leave out one of --read-only and --mode write-back");
  const leaving = volume.view.options.mode === "write-back" && next.mode !== "write-back";
  const amount = dirty();
  volume.view.options = next;
  changed();
  if (asked.mode) world.tell("info", name, `mode changed to ${next.mode}`);
  if (!leaving) return { done: true };
  volume.homeSince = Math.floor(Date.now() / 1000);
  return world.begin("mode_change", name, amount, 20, () => {
    volume.homeSince = null;
    world.tell("info", name, "all dirty data is destaged");
  });
}

function applied(options: Options, asked: OptionsPatch): Options {
  const next = { ...options };
  for (const [key, value] of Object.entries(asked)) {
    if (value === null || value === undefined) continue;
    if (key === "dirty_limit" || key === "sequential_cutoff" || key === "destage_rate") {
      next[`${key}_bytes`] = value === "off" ? null : (value as { bytes: number }).bytes;
    } else Object.assign(next, { [key]: value });
  }
  return next;
}

async function add(world: World, body: VolumeAdd): Promise<unknown> {
  await wait(900);
  if (world.volumes.has(body.name)) throw new Problem(409, "conflict", `there is already a volume "${body.name}"`, "choose another name");
  if (!world.pools.has(body.pool)) throw missing("pool", body.pool);
  if (body.name === "refused") throw new Problem(409, "conflict", `${body.backing} is mounted at /srv/media`, "unmount it first");
  const volume = world.addVolume(body.name, "write-through", { iops: 500, hit: 0.5, writes: 0.3, disk_us: 8000, dirty: 100 * 2 ** 20 }, { pool: body.pool, backing: body.backing, cached_bytes: 0 });
  volume.view.options = applied(volume.view.options, body.options ?? {});
  volume.view.exports = Object.fromEntries((body.exports ?? []).map((word) => [word, word === "block" || word === "loop" ? "/dev/loop9" : word === "nbd" ? `nbd+unix:///${body.name}?socket=/run/hearth/nbd.sock` : word.startsWith("nbds:") ? `nbds://${word.slice(5)}/${body.name}` : `nbd://${word.slice(4)}/${body.name}`]));
  world.tell("info", body.name, `added to pool ${body.pool}`);
  world.say({ event: "changed", data: { what: "volumes" } });
  world.say({ event: "changed", data: { what: "pools" } });
  return volume.view;
}

function examine(path: string): unknown {
  const known = DEVICES.find((other) => other.path === path);
  if (known) return known;
  if (path.includes("missing") || path.startsWith("/srv/cache")) throw new Problem(404, "not_found", `${path} is not there`, "check the path");
  return { ...DEVICES[2]!, path, stable_path: null, kind: "file", parent: null, size_bytes: 100 * GIB, summary: path.startsWith("model:") ? "a modelled disk over a file" : "a file" };
}
