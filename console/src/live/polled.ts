/** Answers that a page asks for again and again while it is looked at. */

import { useEffect, useRef, useState } from "preact/hooks";
import { ApiError, get, type Query } from "../rest";
import { connection } from "./connection";

export interface Polled<T> {
  value: T | null;
  error: ApiError | null;
  /** Asks at once. */
  again: () => void;
}

/** What is not there is asked for so many times less often: it may come. */
const MISSING = 6;

/**
 * Asks now, and `every_ms` after each answer; not while the page is hidden or the daemon is away.
 * No path: not at all.
 */
export function usePolled<T>(path: string | null, every_ms: number, query: Query = {}): Polled<T> {
  const [state, setState] = useState<Omit<Polled<T>, "again">>({ value: null, error: null });
  const load = useRef(() => {});
  useEffect(() => {
    if (path === null) return;
    const given = new AbortController();
    let timer: ReturnType<typeof setTimeout> | undefined;
    const later = (after_ms: number): void => {
      clearTimeout(timer);
      if (!given.signal.aborted) timer = setTimeout(tick, after_ms);
    };
    const tick = (): void => {
      if (document.hidden || connection.peek() === "lost") later(every_ms);
      else load.current();
    };
    load.current = (): void => {
      get<T>(path, query, given.signal).then(
        (value) => {
          setState({ value, error: null });
          later(every_ms);
        },
        (error: unknown) => {
          if (given.signal.aborted || !(error instanceof ApiError)) return;
          const missing = error.status === 404;
          setState((before) => ({ value: missing ? null : before.value, error }));
          later(missing ? every_ms * MISSING : every_ms);
        },
      );
    };
    load.current();
    return () => {
      given.abort();
      clearTimeout(timer);
    };
  }, [path, every_ms]);
  return { ...state, again: () => load.current() };
}
