/** How an object is treated: three choices, set or taken back. */

import { useState } from "preact/hooks";
import type { ObjectSet, ObjectView, PolicyDone } from "../api-objects";
import { bytes, counted } from "../format";
import { mayOperate } from "../live/store";
import { ApiError, post } from "../rest";
import { Panel, Trouble } from "../ui/basics";
import { Operate } from "../ui/operate";
import { ADMIT, ON_SCAN, WRITES } from "../words/objects";

type Wanted = Pick<ObjectView, "admit" | "writes" | "on_scan">;

/** What is sent: for the object what differs, for all of its kind the whole, since others may have other policies. */
export function asked(object: ObjectView, wanted: Wanted | null, ofKind: boolean): ObjectSet {
  const which = {
    volume: object.volume,
    application: String(object.application),
    ...(ofKind ? { kind: object.kind } : { objects: [String(object.id)] }),
  };
  if (wanted === null) return { ...which, reset: true };
  const { admit, writes, on_scan } = wanted;
  if (ofKind) return { ...which, admit, writes, on_scan };
  return {
    ...which,
    ...(admit === object.admit ? {} : { admit }),
    ...(writes === object.writes ? {} : { writes }),
    ...(on_scan === object.on_scan ? {} : { on_scan }),
  };
}

export function Policy({ object, again }: { object: ObjectView; again: () => void }) {
  const [done, setDone] = useState<{ told: PolicyDone; reset: boolean } | null>(null);
  const [error, setError] = useState<ApiError | null>(null);
  const send = async (body: ObjectSet): Promise<void> => {
    try {
      setDone({ told: await post<PolicyDone>("/objects/policy", body), reset: body.reset ?? false });
      setError(null);
      again();
    } catch (thrown) {
      if (!(thrown instanceof ApiError)) throw thrown;
      setDone(null);
      setError(thrown);
    }
  };
  return (
    <Panel title="Policy" id="policy">
      <Choose key={`${object.admit} ${object.writes} ${object.on_scan}`} object={object} send={send} />
      <div role="status">
        {done && (
          <ul class="verdict">
            <li>
              {done.reset ? "Rules taken away" : "In force"} for {counted(done.told.objects, "object")}, {bytes(done.told.bytes)}.
            </li>
            {done.told.sentences.map((text) => (
              <li key={text}>{text}</li>
            ))}
            {done.reset && object.policy === "rule" && <li>A wider rule, for all of its kind or application, still holds.</li>}
          </ul>
        )}
      </div>
      {error && <Trouble tone="bad" problem={error.detail} remedy={error.remedy} />}
    </Panel>
  );
}

function Choose({ object, send }: { object: ObjectView; send: (body: ObjectSet) => Promise<void> }) {
  const [wanted, setWanted] = useState<Wanted>({ admit: object.admit, writes: object.writes, on_scan: object.on_scan });
  const [ofKind, setOfKind] = useState(false);
  const [busy, setBusy] = useState(false);
  const same = wanted.admit === object.admit && wanted.writes === object.writes && wanted.on_scan === object.on_scan;
  const go = async (to: Wanted | null): Promise<void> => {
    setBusy(true);
    await send(asked(object, to, ofKind)).finally(() => setBusy(false));
  };
  const part = <W extends string>(key: keyof Wanted, legend: string, words: [W, string][]) => (
    <fieldset class="choices row" disabled={!mayOperate.value}>
      <legend>{legend}</legend>
      {words.map(([word, means]) => (
        <label key={word} class="choice">
          <input type="radio" name={key} checked={wanted[key] === word} onChange={() => setWanted({ ...wanted, [key]: word })} />
          <span>
            <strong>{word}</strong>
            {object[key] === word && <span class="chip">now</span>}
            <span class="under">{means}</span>
          </span>
        </label>
      ))}
    </fieldset>
  );
  return (
    <>
      {part("admit", "May it enter the cache?", ADMIT)}
      {part("writes", "What becomes of writes?", WRITES)}
      {part("on_scan", "What may scans and backups do?", ON_SCAN)}
      <label class="check">
        <input type="checkbox" checked={ofKind} disabled={!mayOperate.value} onChange={(event) => setOfKind(event.currentTarget.checked)} />
        <span>
          for all of the kind {object.kind} of this application
        </span>
      </label>
      <div class="actions">
        <Operate kind="primary" disabled={busy || (same && !ofKind)} onClick={() => void go(wanted)}>
          Set
        </Operate>
        <Operate disabled={busy || (object.policy === "default" && !ofKind)} onClick={() => void go(null)}>
          Back to the default
        </Operate>
      </div>
    </>
  );
}
