/** What is done with an advice: its objects, making it so, and the comparison with what came. */

import { useEffect, useState } from "preact/hooks";
import type { AdviceApplied, AdviceObject, AdviceVerified, AdviceView } from "../api";
import { bytes, counted, NB, span } from "../format";
import { takeJob } from "../live/store";
import { ApiError, get, post } from "../rest";
import { href } from "../route";
import { Figure, Trouble } from "../ui/basics";
import { Dialog, Meaning } from "../ui/dialog";
import { Operate } from "../ui/operate";
import { Table, type Column } from "../ui/table";
import { toast } from "../ui/toast";
import { hits } from "../words/insight";
import { errorTold, shareOf } from "../words/objects";

const WORDS: Record<string, string> = { cache: "cache it", never: "keep it out" };

/** Which objects bring the hits. `volume`: where they lie; none for a trial. */
export function ByObject({ objects, volume }: { objects: AdviceObject[]; volume: string | undefined }) {
  if (objects.length === 0) return null;
  const columns: Column<AdviceObject>[] = [
    [
      "Object",
      ({ id, name }) =>
        volume === undefined || id === null ? name : <a href={href({ page: "object", volume, id })}>{name}</a>,
    ],
    ["Kind", ({ kind }) => kind],
    ["Of all hits", (one) => shareOf(one.hits_percent), "right"],
    ["Of all reads", (one) => shareOf(one.reads_percent), "right"],
    ["Takes", (one) => bytes(one.ssd_bytes), "right"],
    ["Advice", ({ advice }) => (advice === "never" ? <strong>{WORDS[advice]}</strong> : (WORDS[advice] ?? advice))],
  ];
  return (
    <div class="table-box tall" tabIndex={0} role="region" aria-label="What objects bring">
      <Table columns={columns} rows={objects} />
    </div>
  );
}

export function Act({ view }: { view: AdviceView }) {
  const [applying, setApplying] = useState(false);
  const [verified, setVerified] = useState<AdviceVerified | null>(null);
  const [error, setError] = useState<ApiError | null>(null);
  const verify = (): void => {
    get<AdviceVerified>(`/advice/${view.id}/verify`).then(
      (told) => {
        setVerified(told);
        setError(null);
      },
      (thrown: unknown) => thrown instanceof ApiError && setError(thrown),
    );
  };
  return (
    <>
      <div class="actions no-print">
        <Operate kind="primary" onClick={() => setApplying(true)}>
          Apply
        </Operate>
        <button type="button" class="button" onClick={verify}>
          Verify
        </button>
      </div>
      <div role="status">{verified && <Outcome told={verified} />}</div>
      {error && <Trouble tone="bad" problem={error.detail} remedy={error.remedy} />}
      {applying && <Apply id={view.id} onClose={() => setApplying(false)} />}
    </>
  );
}

/** What would change is asked for before it is done. */
function Apply({ id, onClose }: { id: number; onClose: () => void }) {
  const [plan, setPlan] = useState<AdviceApplied | null>(null);
  const [error, setError] = useState<ApiError | null>(null);
  const call = (dry: boolean): Promise<AdviceApplied> => post(`/advice/${id}/apply?dry_run=${dry}`);
  useEffect(() => {
    call(true).then(setPlan, (thrown: unknown) => thrown instanceof ApiError && setError(thrown));
  }, []);
  const confirm = async (): Promise<void> => {
    const { changes, preload } = await call(false);
    if (preload?.job) takeJob(preload.job);
    toast({ kind: "done", title: `Advice ${id} is applied`, detail: counted(changes.length, "change") });
  };
  return (
    <Dialog title={`Apply advice ${id}`} confirm="Apply it" ready={plan !== null} onConfirm={confirm} onClose={onClose}>
      {error && <Trouble tone="bad" problem={error.detail} remedy={error.remedy} />}
      {!plan && !error && <p class="calm">Asking what would change…</p>}
      {plan && (
        <Meaning
          sentences={[
            ...(plan.changes.length > 0 ? plan.changes : ["Nothing is to be changed."]),
            "The forecast is compared with what comes from now on.",
          ]}
        />
      )}
      {plan && plan.to_do.length > 0 && (
        <div>
          <h3>Left to you</h3>
          <ul class="plain">
            {plan.to_do.map((text) => (
              <li key={text}>{text}</li>
            ))}
          </ul>
        </div>
      )}
    </Dialog>
  );
}

function Outcome({ told }: { told: AdviceVerified }) {
  const { forecast_percent_low: low, forecast_percent_high: high } = told;
  return (
    <section class="advice" aria-label="Forecast and outcome">
      <h3>Forecast and outcome</h3>
      <dl class="figures">
        <Figure
          label="Forecast"
          value={shareOf(told.forecast_percent)}
          note={low !== null && high !== null ? `band ${hits(low)} to ${hits(high)}${NB}%` : undefined}
        />
        <Figure
          label="Came"
          value={shareOf(told.measured_percent)}
          note={told.window_ms > 0 ? `in ${span(told.window_ms / 1000)}` : undefined}
        />
        <Figure label="The forecast was" value={errorTold(told)} />
      </dl>
      <ul class="verdict">
        {told.sentences.map((text) => (
          <li key={text}>{text}</li>
        ))}
      </ul>
    </section>
  );
}
