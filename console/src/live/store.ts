/** What the page knows: lists as the daemon told them last. Filled by `refresh`, kept up to date by the stream. */

import { computed, signal } from "@preact/signals";
import type { DaemonView, EventView, JobView, PoolView, SessionView, VolumeView } from "../api";
import { get } from "../rest";
import { takeSample } from "./volumes";
import type { Sample } from "../api";

export const session = signal<SessionView | null>(null);
export const daemon = signal<DaemonView | null>(null);
export const volumes = signal<VolumeView[]>([]);
export const pools = signal<PoolView[]>([]);
export const jobs = signal<JobView[]>([]);
export const events = signal<EventView[]>([]);
/** Whether the lists were fetched at least once. */
export const loaded = signal(false);

export const mayOperate = computed(() => session.value?.role === "operate");
/** Why controls are disabled, or undefined. */
export const whyNot = computed(() =>
  mayOperate.value ? undefined : "You are logged in with the role view: you can look at everything and change nothing.",
);

/** Most events kept in the page. */
const EVENTS_MAX = 1000;

export function latestEvent(): number {
  return events.value[events.value.length - 1]?.number ?? 0;
}

export function takeEvents(more: EventView[]): void {
  const after = latestEvent();
  const fresh = more.filter((event) => event.number > after);
  if (fresh.length > 0) events.value = [...events.value, ...fresh].slice(-EVENTS_MAX);
}

export function takeJob(job: JobView): void {
  const others = jobs.value.filter((other) => other.id !== job.id);
  jobs.value = [...others, job].sort((a, b) => b.id - a.id);
}

/** The SSD that a volume's pool has, in bytes; null: not known. */
export function ssdOf(volume: string): number | null {
  const of = volumes.value.find(({ name }) => name === volume)?.pool;
  return pools.value.find(({ name }) => name === of)?.size_bytes || null;
}

export async function refreshVolumes(): Promise<void> {
  volumes.value = await get<VolumeView[]>("/volumes");
}

export async function refreshPools(): Promise<void> {
  pools.value = await get<PoolView[]>("/pools");
}

/** Fetches all lists. `anew`: the daemon was restarted, its events and jobs count from the beginning. */
export async function refresh(anew: boolean): Promise<void> {
  if (anew) events.value = [];
  const after = latestEvent();
  const [about, volumeList, poolList, jobList, eventList] = await Promise.all([
    get<DaemonView>("/daemon"),
    get<VolumeView[]>("/volumes"),
    get<PoolView[]>("/pools"),
    get<JobView[]>("/jobs"),
    get<EventView[]>("/events", { after }),
  ]);
  daemon.value = about;
  volumes.value = volumeList;
  pools.value = poolList;
  jobs.value = jobList.sort((a, b) => b.id - a.id);
  takeEvents(eventList);
  loaded.value = true;
  // The first sample of the stream comes within a second; figures need not wait for it.
  get<Sample>("/sample").then(takeSample, () => {});
}
