/** Carrying the plan out, call by call, and what to do with the result. */

import { exportName } from "../words/exports";
import type { PoolView, VolumeView } from "../api";
import type { ShareView } from "../api-access";
import { refreshPools, refreshVolumes } from "../live/store";
import { ApiError, part, post } from "../rest";
import { href } from "../route";
import { Badge, Copy, Trouble } from "../ui/basics";
import { connecting } from "../volume/shares";
import { commands } from "../volume/use";
import { SHARE_TITLES } from "../words/shares";
import { poolBody, shareBody, volumeBody, type Plan } from "./plan";

export interface Progress {
  pool: "none" | "waiting" | "running" | "done" | "failed";
  volume: "waiting" | "running" | "done" | "failed";
  share: "none" | "waiting" | "running" | "done" | "failed";
  error: ApiError | null;
  made: VolumeView | null;
  shared: ShareView | null;
}

/** Makes the pool, if there is to be one, the volume, and its share, if there is to be one; tells each step. Gives back whether the pool was made. */
export async function carryOut(plan: Plan, tell: (progress: Progress) => void): Promise<boolean> {
  const body = poolBody(plan);
  let progress: Progress = { pool: body ? "running" : "none", volume: body ? "waiting" : "running", share: shareBody(plan) ? "waiting" : "none", error: null, made: null, shared: null };
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
    await share(plan, next);
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
    next(poolMade || !body ? { volume: "failed", error } : { pool: "failed", error });
  }
  await Promise.all([refreshPools(), refreshVolumes()]).catch(() => {});
  return poolMade;
}

/** A volume that cannot be shared works all the same. */
async function share(plan: Plan, next: (part: Partial<Progress>) => void): Promise<void> {
  const body = shareBody(plan);
  if (!body) return;
  next({ share: "running" });
  try {
    next({ share: "done", shared: await post<ShareView>(`/volumes/${part(plan.name)}/shares`, body) });
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
    next({ share: "failed", error });
  }
}

const WORDS = { none: "", waiting: "waits", running: "under way", done: "done", failed: "failed" };
const TONES = { none: "good", waiting: "busy", running: "busy", done: "good", failed: "bad" } as const;

export function Running({ plan, progress }: { plan: Plan; progress: Progress }) {
  return (
    <div aria-live="polite">
      <ul class="steps-done">
        {progress.pool !== "none" && <li><Badge tone={TONES[progress.pool]}>{WORDS[progress.pool]}</Badge> Make the pool {plan.poolName || plan.pool}</li>}
        <li><Badge tone={TONES[progress.volume]}>{WORDS[progress.volume]}</Badge> Make the volume {plan.name}</li>
        {progress.share !== "none" && plan.share !== "" && <li><Badge tone={TONES[progress.share]}>{WORDS[progress.share]}</Badge> Share it by {SHARE_TITLES[plan.share]}</li>}
      </ul>
      {progress.error && <Trouble tone="bad" problem={progress.error.detail} remedy={progress.error.remedy}>
        {progress.share === "failed" && <p>The volume was made and works; it can be shared from its page.</p>}
        {progress.pool === "done" && progress.volume !== "done" && <p>The pool was made and stays; the volume was not. Nothing else was changed.</p>}
      </Trouble>}
      {progress.made && <Made volume={progress.made} shared={progress.shared} />}
    </div>
  );
}

function Made({ volume, shared }: { volume: VolumeView; shared: ShareView | null }) {
  const places = Object.entries(volume.exports);
  return (
    <div class="made">
      <h2>The volume {volume.name} works</h2>
      <p>Use it in the place of {volume.backing}, which must not be used directly any more:</p>
      <ul class="commands">
        {places.map(([word, place]) => place && <li key={word}><span>{exportName(word)}</span><Copy text={place} /></li>)}
        {volume.stable_path && <li><span>Name that stays</span><Copy text={volume.stable_path} /></li>}
        {shared && connecting(shared).map((text) => <li key={text}><span>On the other machine</span><Copy text={text} /></li>)}
        {commands(volume).map(({ told, text }) => <li key={text}><span>{told}</span><Copy text={text} /></li>)}
      </ul>
      <p><a class="button primary" href={href({ page: "volume", name: volume.name })}>Look at {volume.name}</a></p>
    </div>
  );
}
