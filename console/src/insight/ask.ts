/** Asking for advice: one question at a time, and not too often, since each costs the daemon seconds. */

import { useEffect, useRef, useState } from "preact/hooks";
import type { AdviceAsk, AdviceView } from "../api";
import { connection } from "../live/connection";
import { mayOperate } from "../live/store";
import { ApiError, post } from "../rest";
import { nothingTold } from "../words/insight";

/** While nothing can be told it is asked again after so long; what is not older is not asked anew. */
export const ASK_AGAIN_MS = 30_000;

/** Whether the page is seen and connected is looked at after so long. */
const LOOK_AGAIN_MS = 1000;

export interface Told {
  view: AdviceView;
  unix_ms: number;
}

const answers = new Map<string, Told>();
const keyOf = (name: string, withBackups: boolean): string => `${withBackups ? 1 : 0} ${name}`;
let before: Promise<unknown> = Promise.resolve();

/** Asks when the question before is answered; null if that is not wanted any more then. */
function ask(name: string, withBackups: boolean, wanted: () => boolean): Promise<Told | null> {
  const mine = before.then(async () => {
    if (!wanted()) return null;
    const body: AdviceAsk = { name, with_backups: withBackups };
    const views = await post<AdviceView[]>("/advice", body);
    const view = views.find((one) => one.name === name) ?? views[0];
    if (!view) throw new ApiError(404, `"${name}" is not watched any more`, "choose another one");
    const told = { view, unix_ms: Date.now() };
    answers.set(keyOf(name, withBackups), told);
    return told;
  });
  before = mine.catch(() => {});
  return mine;
}

interface State {
  told: Told | null;
  error: ApiError | null;
  asking: boolean;
}

/** Advice for a load, asked for when it is shown. `goesOn`: asking again may tell more. */
export function useAdvice(
  name: string,
  withBackups: boolean,
  goesOn: boolean,
): State & { again: () => void } {
  const [state, setState] = useState<State>({ told: null, error: null, asking: false });
  const going = useRef(goesOn);
  going.current = goesOn;
  const again = useRef(() => {});
  const may = mayOperate.value;
  useEffect(() => {
    if (!may) return;
    let ended = false;
    let timer: ReturnType<typeof setTimeout> | undefined;
    const later = (): void => {
      clearTimeout(timer);
      const known = answers.get(keyOf(name, withBackups));
      if (!ended && (!known || nothingTold(known.view)) && going.current)
        timer = setTimeout(() => void load(), ASK_AGAIN_MS);
    };
    const load = async (): Promise<void> => {
      if (document.hidden || connection.peek() === "lost")
        return void (timer = setTimeout(() => void load(), LOOK_AGAIN_MS));
      setState((now) => ({ ...now, asking: true }));
      try {
        const told = await ask(name, withBackups, () => !ended);
        if (!ended) setState({ told, error: null, asking: false });
      } catch (error) {
        if (!(error instanceof ApiError)) throw error;
        if (!ended) setState((now) => ({ ...now, error, asking: false }));
      }
      later();
    };
    again.current = () => void load();
    const known = answers.get(keyOf(name, withBackups)) ?? null;
    setState({ told: known, error: null, asking: false });
    if (known && Date.now() - known.unix_ms < ASK_AGAIN_MS) later();
    else void load();
    return () => {
      ended = true;
      clearTimeout(timer);
    };
  }, [name, withBackups, may]);
  return { ...state, again: () => again.current() };
}
