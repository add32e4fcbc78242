/** Calls of the REST API: JSON in and out, errors as [`ApiError`] with the server's own words. */

import type { Problem } from "./api";

const PREFIX = "/api/v1";
/** No call takes longer; management never waits for the data path. */
const DEADLINE_MS = 30_000;

/** A call that failed: `detail` says what is wrong, `remedy` what to do next. `status` is 0 if the daemon was not reached. */
export class ApiError extends Error {
  constructor(
    readonly status: number,
    readonly detail: string,
    readonly remedy: string | null,
  ) {
    super(remedy ? `${detail}; ${remedy}` : detail);
  }
}

let csrf: string | null = null;
let refused: () => void = () => {};

/** Sets what browser sessions send back with every change. */
export function setCsrf(value: string | null): void {
  csrf = value;
}

/** Calls `then` whenever the server says that nobody is logged in. */
export function onUnauthorised(then: () => void): void {
  refused = then;
}

export type Query = Record<string, string | number | boolean | undefined>;

export function address(path: string, query: Query = {}): string {
  const parts = Object.entries(query).filter(([, value]) => value !== undefined);
  const text = parts.map(([key, value]) => `${key}=${encodeURIComponent(String(value))}`).join("&");
  return `${PREFIX}${path}${text ? `?${text}` : ""}`;
}

async function call<T>(method: string, path: string, query: Query, body?: unknown, signal?: AbortSignal): Promise<T> {
  const headers: Record<string, string> = { accept: "application/json, application/problem+json" };
  if (body !== undefined) headers["content-type"] = "application/json";
  if (method !== "GET" && csrf) headers["x-hearth-csrf"] = csrf;
  const deadline = new AbortController();
  const timer = setTimeout(() => deadline.abort(), DEADLINE_MS);
  signal?.addEventListener("abort", () => deadline.abort());
  try {
    const init: RequestInit = { method, headers, signal: deadline.signal, credentials: "same-origin", cache: "no-store" };
    if (body !== undefined) init.body = JSON.stringify(body);
    const response = await fetch(address(path, query), init);
    const text = await response.text();
    if (!response.ok) throw failure(response.status, text);
    return (text === "" ? undefined : JSON.parse(text)) as T;
  } catch (error) {
    if (error instanceof ApiError) {
      if (error.status === 401 && path !== "/session") refused();
      throw error;
    }
    if (signal?.aborted) throw new ApiError(0, "the call was cancelled", null);
    if (deadline.signal.aborted) throw new ApiError(0, "the daemon did not answer in time", "try again, and look at its log");
    throw new ApiError(0, "the daemon cannot be reached", "see whether it runs: systemctl status hearth");
  } finally {
    clearTimeout(timer);
  }
}

function failure(status: number, text: string): ApiError {
  try {
    const problem = JSON.parse(text) as Partial<Problem>;
    return new ApiError(status, problem.detail ?? problem.title ?? `the daemon answered ${status}`, problem.remedy ?? null);
  } catch {
    return new ApiError(status, `the daemon answered ${status} without saying why`, "look at its log");
  }
}

export const get = <T>(path: string, query: Query = {}, signal?: AbortSignal): Promise<T> => call("GET", path, query, undefined, signal);
export const post = <T>(path: string, body?: unknown): Promise<T> => call("POST", path, {}, body);
export const patch = <T>(path: string, body: unknown): Promise<T> => call("PATCH", path, {}, body);
export const remove = <T>(path: string, query: Query = {}): Promise<T> => call("DELETE", path, query);

/** A name as part of a path. */
export const part = (name: string): string => encodeURIComponent(name);
