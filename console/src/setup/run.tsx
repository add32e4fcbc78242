/** Carrying the plan out, call by call, and what to do with the result. */

import { exportName } from "../words/exports";
import type { PoolView, VolumeView } from "../api";
import { refreshPools, refreshVolumes } from "../live/store";
import { ApiError, post } from "../rest";
import { href } from "../route";
import { Badge, Copy, Trouble } from "../ui/basics";
import { commands } from "../volume/use";
import { poolBody, volumeBody, type Plan } from "./plan";

export interface Progress {
  pool: "none" | "waiting" | "running" | "done" | "failed";
  volume: "waiting" | "running" | "done" | "failed";
  error: ApiError | null;
  made: VolumeView | null;
}

/** Makes the pool, if there is to be one, and the volume; tells each step. Gives back whether the pool was made. */
export async function carryOut(plan: Plan, tell: (progress: Progress) => void): Promise<boolean> {
  const body = poolBody(plan);
  let progress: Progress = { pool: body ? "running" : "none", volume: body ? "waiting" : "running", error: null, made: null };
  const next = (part: Partial<Progress>): void => tell((progress = { ...progress, ...part }));
  next({});
  let poolMade = false;
  try {
    if (body) {
      await post<PoolView>("/pools", body);
      poolMade = true;
      next({ pool: "done", volume: "running" });
    }
    const made = await post<VolumeView>("/volumes", volumeBody(plan));
    next({ volume: "done", made });
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
    next(poolMade || !body ? { volume: "failed", error } : { pool: "failed", error });
  }
  await Promise.all([refreshPools(), refreshVolumes()]).catch(() => {});
  return poolMade;
}

const WORDS = { none: "", waiting: "waits", running: "under way", done: "done", failed: "failed" };
const TONES = { none: "good", waiting: "busy", running: "busy", done: "good", failed: "bad" } as const;

export function Running({ plan, progress }: { plan: Plan; progress: Progress }) {
  return (
    <div aria-live="polite">
      <ul class="steps-done">
        {progress.pool !== "none" && <li><Badge tone={TONES[progress.pool]}>{WORDS[progress.pool]}</Badge> Make the pool {plan.poolName || plan.pool}</li>}
        <li><Badge tone={TONES[progress.volume]}>{WORDS[progress.volume]}</Badge> Make the volume {plan.name}</li>
      </ul>
      {progress.error && <Trouble tone="bad" problem={progress.error.detail} remedy={progress.error.remedy}>
        {progress.pool === "done" && <p>The pool was made and stays; the volume was not. Nothing else was changed.</p>}
      </Trouble>}
      {progress.made && <Made volume={progress.made} />}
    </div>
  );
}

function Made({ volume }: { volume: VolumeView }) {
  const places = Object.entries(volume.exports);
  return (
    <div class="made">
      <h2>The volume {volume.name} works</h2>
      <p>Use it in the place of {volume.backing}, which must not be used directly any more:</p>
      <ul class="commands">
        {places.map(([word, place]) => place && <li key={word}><span>{exportName(word)}</span><Copy text={place} /></li>)}
        {volume.stable_path && <li><span>Name that stays</span><Copy text={volume.stable_path} /></li>}
        {commands(volume).map(({ told, text }) => <li key={text}><span>{told}</span><Copy text={text} /></li>)}
      </ul>
      <p><a class="button primary" href={href({ page: "volume", name: volume.name })}>Look at {volume.name}</a></p>
    </div>
  );
}
