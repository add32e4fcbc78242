/** Reading an object into the cache: what it takes is told before. */

import { useEffect, useState } from "preact/hooks";
import type { ObjectPreload, ObjectView, PreloadView } from "../api-objects";
import { bytes, counted } from "../format";
import { takeJob } from "../live/store";
import { size } from "../parse";
import { ApiError, post } from "../rest";
import { Trouble } from "../ui/basics";
import { Dialog, Meaning } from "../ui/dialog";
import { Operate } from "../ui/operate";
import { toast } from "../ui/toast";

/** What a preload does, in sentences. */
export function meaning({ bytes: kept, read_bytes, ranges, volume }: PreloadView): string[] {
  return [
    `${bytes(kept)} in ${counted(ranges, "piece")} of ${volume} enter the cache: as much is written to the SSD at most.`,
    ...(read_bytes > kept ? [`${bytes(read_bytes - kept)} between them are read through, which is quicker than to seek past them.`] : []),
    "The disk is read as fast as clients leave room for. The job can be stopped, and resumed.",
  ];
}

export function Preload({ object }: { object: ObjectView }) {
  const [open, setOpen] = useState(false);
  return (
    <>
      <Operate onClick={() => setOpen(true)} disabled={object.admit === "never"}>Preload</Operate>
      {open && <Ask object={object} onClose={() => setOpen(false)} />}
    </>
  );
}

function Ask({ object, onClose }: { object: ObjectView; onClose: () => void }) {
  const [budget, setBudget] = useState("");
  const [plan, setPlan] = useState<PreloadView | null>(null);
  const [error, setError] = useState<ApiError | null>(null);
  const parsed: { value?: number | null; problem?: string } = budget.trim() === "" ? { value: null } : size(budget);
  const call = (dry_run: boolean): Promise<PreloadView> => {
    const which: ObjectPreload = { objects: [String(object.id)], volume: object.volume, application: String(object.application) };
    return post<PreloadView>("/objects/preload", { ...which, budget_bytes: parsed.value ?? null, dry_run });
  };
  useEffect(() => {
    setPlan(null);
    setError(null);
    if (parsed.value === undefined) return;
    let wanted = true;
    call(true).then(
      (told) => wanted && setPlan(told),
      (thrown: unknown) => wanted && thrown instanceof ApiError && setError(thrown),
    );
    return () => {
      wanted = false;
    };
  }, [parsed.value]);
  const confirm = async (): Promise<void> => {
    const { job, what } = await call(false);
    if (job) takeJob(job);
    toast({ kind: "done", title: `Preload of ${what} has begun`, detail: "its progress is under Jobs" });
  };
  return (
    <Dialog title={`Preload ${object.name}`} confirm="Read it into the cache" ready={plan !== null} onConfirm={confirm} onClose={onClose}>
      <label class="field">
        <span>At most (empty: all of it)</span>
        <input
          value={budget}
          placeholder="2GiB"
          spellcheck={false}
          autocomplete="off"
          aria-invalid={parsed.problem !== undefined}
          onInput={(event) => setBudget(event.currentTarget.value)}
        />
        {parsed.problem && <span class="wrong">{parsed.problem}</span>}
      </label>
      {error && <Trouble tone="bad" problem={error.detail} remedy={error.remedy} />}
      {plan && <Meaning sentences={meaning(plan)} />}
    </Dialog>
  );
}
