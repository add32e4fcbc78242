/** The stream of server-sent events: opened, watched, opened again. While it is away nothing is shown as live. */

import { signal } from "@preact/signals";
import type { EventView, Hello, JobView, Sample, SessionView } from "../api";
import { address, ApiError, get, onUnauthorised, post, remove, setCsrf } from "../rest";
import { toast } from "../ui/toast";
import { latestEvent, refresh, refreshPools, refreshVolumes, session, takeEvents, takeJob } from "./store";
import { forgetPast, takeSample } from "./volumes";

/** "asking": before the first answer; "login": nobody is logged in; "in": pages are shown. */
export const gate = signal<"asking" | "login" | "in">("asking");
export const connection = signal<"connecting" | "live" | "lost">("connecting");
/** What is told on the return of the connection, for some seconds. */
export const returned = signal<string | null>(null);

const BACKOFF_MS = [1000, 2000, 4000, 8000, 10_000];
/** Samples come each second: a stream without one for so long is dead, whatever the socket says. */
const SILENCE_MS = 8000;

let source: EventSource | null = null;
let attempts = 0;
let retry: ReturnType<typeof setTimeout> | undefined;
let silence: ReturnType<typeof setTimeout> | undefined;
let instance: string | null = null;
let wasLost = false;

/** Finds out who we are, and goes on from there. */
export async function begin(): Promise<void> {
  try {
    take(await get<SessionView>("/session"));
  } catch (error) {
    if (error instanceof ApiError && error.status === 401) gate.value = "login";
    else lose();
  }
}

function take(view: SessionView): void {
  session.value = view;
  setCsrf(view.csrf);
  gate.value = "in";
  open();
}

/** Logs in with a token or a code; throws what the daemon says. */
export async function login(by: { token: string } | { code: string }): Promise<void> {
  take(await post<SessionView>("/session", by));
}

export async function logout(): Promise<void> {
  await remove("/session");
  leave();
}

function leave(): void {
  close();
  session.value = null;
  setCsrf(null);
  gate.value = "login";
}

onUnauthorised(leave);

function close(): void {
  source?.close();
  source = null;
  clearTimeout(retry);
  clearTimeout(silence);
}

function open(): void {
  close();
  const after = latestEvent();
  source = new EventSource(address("/stream", after > 0 ? { after } : {}));
  const on = <T>(name: string, then: (data: T) => void): void =>
    source!.addEventListener(name, (event) => {
      heard();
      then(JSON.parse((event as MessageEvent<string>).data) as T);
    });
  on<Hello>("hello", greeted);
  on<Sample>("sample", (sample) => connection.value === "live" && takeSample(sample));
  on<JobView>("job", takeJob);
  on<EventView>("event", (event) => takeEvents([event]));
  on<{ what: string }>("changed", changed);
  source.onerror = lose;
  heard();
}

function heard(): void {
  clearTimeout(silence);
  silence = setTimeout(lose, SILENCE_MS);
}

function greeted(hello: Hello): void {
  const restarted = instance !== null && instance !== hello.instance;
  instance = hello.instance;
  attempts = 0;
  if (wasLost) forgetPast();
  refresh(restarted).then(
    () => {
      connection.value = "live";
      if (wasLost) told(restarted ? "Connected again. The daemon was restarted." : "Connected again.");
      wasLost = false;
    },
    () => lose(),
  );
}

function told(text: string): void {
  returned.value = text;
  setTimeout(() => returned.value === text && (returned.value = null), 6000);
}

const pending = new Map<string, ReturnType<typeof setTimeout>>();

/** Lists are fetched once for a burst of changes. */
function changed({ what }: { what: string }): void {
  if (pending.has(what)) return;
  const fetchAgain = what === "pools" ? refreshPools : refreshVolumes;
  const then = (): void => {
    pending.delete(what);
    fetchAgain().catch(() => {});
  };
  pending.set(what, setTimeout(then, 100));
}

function lose(): void {
  close();
  connection.value = "lost";
  wasLost = true;
  returned.value = null;
  const wait_ms = BACKOFF_MS[Math.min(attempts, BACKOFF_MS.length - 1)]!;
  attempts += 1;
  // The session is asked for first: a stream does not say why it was refused.
  retry = setTimeout(begin, wait_ms);
}

/** Tries at once, on request. */
export function tryNow(): void {
  clearTimeout(retry);
  void begin();
}

/** Carries out a call started by a person: an error is told with its remedy, and the answer is undefined then. */
export async function attempt<T>(what: string, call: () => Promise<T>): Promise<T | undefined> {
  try {
    return await call();
  } catch (error) {
    if (error instanceof ApiError) toast({ kind: "error", title: `${what} failed`, detail: error.detail, remedy: error.remedy });
    else throw error;
    return undefined;
  }
}
