/** From "which disks do I have" to a working volume. */

import { useEffect, useRef, useState } from "preact/hooks";
import type { DeviceView } from "../api";
import { mayOperate, pools, volumes } from "../live/store";
import { size } from "../parse";
import { ApiError, get, post } from "../rest";
import { FRESH, problems, STEPS, type Plan } from "../setup/plan";
import { carryOut, Running, type Progress } from "../setup/run";
import { BackingStep, ReviewStep, SsdStep, VolumeStep } from "../setup/steps";
import { Operate } from "../ui/operate";
import { Trouble } from "../ui/basics";

export function Setup() {
  const first = pools.value.find((pool) => pool.health === "running");
  const [plan, setPlan] = useState<Plan>(() => ({ ...FRESH, pool: first?.name ?? "" }));
  const [step, setStep] = useState(0);
  const [tried, setTried] = useState(false);
  const [devices, setDevices] = useState<DeviceView[] | null>(null);
  const [error, setError] = useState<ApiError | null>(null);
  const [busy, setBusy] = useState(false);
  const [progress, setProgress] = useState<Progress | null>(null);
  const heading = useRef<HTMLHeadingElement>(null);

  const look = (): void => {
    setError(null);
    get<DeviceView[]>("/devices").then(setDevices, (thrown: unknown) => {
      setDevices([]);
      if (thrown instanceof ApiError) setError(thrown);
    });
  };
  useEffect(look, []);

  const wrong = problems(plan, step, pools.value, volumes.value.map((volume) => volume.name));
  const shown = tried ? wrong : {};
  const set = (part: Partial<Plan>): void => setPlan((before) => ({ ...before, ...part }));
  const show = (next: number): void => {
    setStep(next);
    setTried(false);
    setError(null);
    setProgress(null);
    requestAnimationFrame(() => heading.current?.focus());
  };

  const next = async (): Promise<void> => {
    setTried(true);
    if (Object.keys(wrong).length > 0) return;
    setBusy(true);
    setError(null);
    try {
      if (step === 0) await examineSsd(plan, set);
      if (step === 1) await examineBacking(plan, set);
      show(step + 1);
    } catch (thrown) {
      if (!(thrown instanceof ApiError)) throw thrown;
      setError(thrown);
    } finally {
      setBusy(false);
    }
  };
  const run = async (): Promise<void> => {
    setTried(true);
    if (Object.keys(wrong).length > 0) return;
    setBusy(true);
    const made = await carryOut(plan, setProgress);
    // The form stays as it was, except that a pool that was made is there now.
    if (made) set({ pool: plan.poolName });
    setBusy(false);
  };
  const submit = (event: Event): void => {
    event.preventDefault();
    if (!mayOperate.value || busy) return;
    void (step < 3 ? next() : run());
  };
  const props = { plan, set, wrong: shown, devices, pools: pools.value };
  const done = progress?.made != null;
  return (
    <>
      <div class="page-head"><h1 tabIndex={-1}>Set up a volume</h1></div>
      <ol class="stepper" aria-label="Steps">
        {STEPS.map((word, index) => (
          <li key={word} class={index < step || done ? "past" : index === step ? "now" : ""} aria-current={index === step && !done ? "step" : undefined}>
            {index < step && !done && !busy ? <button type="button" onClick={() => show(index)}>{word}</button> : <span>{word}</span>}
          </li>
        ))}
      </ol>
      <form class="panel setup" onSubmit={submit}>
        {!done && (
          <>
            <h2 ref={heading} tabIndex={-1}>{["Pick the SSD", "Pick the slow disk", "Name it and choose how it works", "Review"][step]}</h2>
            {step === 0 && <SsdStep {...props} />}
            {step === 1 && <BackingStep {...props} />}
            {step === 2 && <VolumeStep {...props} />}
            {step === 3 && !progress && <ReviewStep {...props} />}
          </>
        )}
        {progress && <Running plan={plan} progress={progress} />}
        {error && <Trouble tone="bad" problem={error.detail} remedy={error.remedy} />}
        {!done && (
          <div class="setup-buttons">
            {step > 0 && <button type="button" class="button" disabled={busy} onClick={() => show(step - 1)}>Back</button>}
            {progress?.error && <button type="button" class="button" onClick={() => setProgress(null)}>Look at the plan again</button>}
            {((step === 0 && plan.pool === "" && plan.ssdBy === "device") || (step === 1 && plan.backingBy === "device")) && <button type="button" class="button" onClick={look}>Look for disks again</button>}
            <button type="submit" class={`button ${plan.agreed && step === 3 ? "danger" : "primary"}`} disabled={busy || !mayOperate.value}>
              {busy ? "Working…" : step < 3 ? "Next" : progress?.error ? "Try again" : "Do it"}
            </button>
          </div>
        )}
        {done && <div class="setup-buttons"><Operate onClick={() => { setPlan({ ...FRESH, pool: plan.pool || plan.poolName }); show(0); look(); }}>Set up another</Operate></div>}
      </form>
    </>
  );
}

/** A typed path is looked at before anything is done with it. A file that is not there is fine if its size is told. */
async function examineSsd(plan: Plan, set: (part: Partial<Plan>) => void): Promise<void> {
  if (plan.pool !== "" || plan.ssdBy === "device") return;
  const path = plan.ssdPath.trim();
  try {
    const ssdExamined = await post<DeviceView>("/devices/examine", { path });
    if (!ssdExamined.can_be_ssd) throw new ApiError(409, `${path} cannot be the SSD: ${ssdExamined.summary}`, "pick another one");
    set({ ssdExamined });
  } catch (error) {
    if (!(error instanceof ApiError) || error.status !== 404) throw error;
    if (size(plan.ssdSize).value === undefined) throw new ApiError(404, `${path} is not there`, "give its size, and a file of that size is made");
    set({ ssdExamined: null });
  }
}

async function examineBacking(plan: Plan, set: (part: Partial<Plan>) => void): Promise<void> {
  if (plan.backingBy === "device") return;
  const path = plan.backingPath.trim();
  const backingExamined = await post<DeviceView>("/devices/examine", { path });
  if (!backingExamined.can_be_backing) throw new ApiError(409, `${path} cannot be the slow disk: ${backingExamined.summary}`, "pick another one");
  set({ backingExamined });
}
