/** How much a pool makes of what blocks contain: shown, explained, changed. */

import { useState } from "preact/hooks";
import type { PoolView } from "../api";
import type { ContentStats } from "../api-space";
import { percent } from "../format";
import { refreshPools } from "../live/store";
import { patch, part } from "../rest";
import { Chip, Panel } from "../ui/basics";
import { Dialog, Meaning } from "../ui/dialog";
import { Operate } from "../ui/operate";
import { CONTENTS, CONTENT_NAMES } from "../words/modes";
import type { Content } from "../api";

export function ContentPanel({ pool, stats }: { pool: PoolView; stats: ContentStats | null }) {
  const [open, setOpen] = useState(false);
  const steps = Object.entries(stats?.steps ?? {});
  return (
    <Panel title="Content" id="content" aside={<Operate label="Change content" onClick={() => setOpen(true)}>Change</Operate>}>
      <p><Chip>{pool.content}</Chip> {CONTENTS[pool.content]}</p>
      {steps.length > 0 && (
        <table class="compact">
          <thead><tr><th scope="col">Volume</th><th scope="col">Step</th><th scope="col">State</th><th scope="col" class="right">Saves</th><th scope="col" class="right">Opens at</th></tr></thead>
          <tbody>{steps.flatMap(([volume, list]) => list.map((step) => (
            <tr key={`${volume} ${step.step}`}>
              <th scope="row">{volume}</th>
              <td data-label="Step">{step.step}</td>
              <td data-label="State">{step.open ? "open" : step.open_shards > 0 ? `open in ${step.open_shards} of ${step.shards} shards` : "closed"}</td>
              <td class="right" data-label="Saves">{percent(step.saved_part)}</td>
              <td class="right" data-label="Opens at">{percent(step.opens_from_part)}</td>
            </tr>
          )))}</tbody>
        </table>
      )}
      {open && <Change pool={pool} onClose={() => setOpen(false)} />}
    </Panel>
  );
}

function Change({ pool, onClose }: { pool: PoolView; onClose: () => void }) {
  const [level, setLevel] = useState<Content>(pool.content);
  const confirm = async (): Promise<void> => {
    await patch(`/pools/${part(pool.name)}`, { content: level });
    await refreshPools();
  };
  return (
    <Dialog title={`Change the content of ${pool.name}`} confirm={`Change to ${level}`} ready={level !== pool.content} onConfirm={confirm} onClose={onClose}>
      <fieldset class="choices">
        <legend>Deduplication, deltas and compression</legend>
        {CONTENT_NAMES.map((name) => (
          <label key={name} class="choice">
            <input type="radio" name="level" value={name} checked={level === name} onChange={() => setLevel(name)} />
            <span><strong>{name}</strong>{name === pool.content && <span class="chip">now</span>}<span class="under">{CONTENTS[name]}</span></span>
          </label>
        ))}
      </fieldset>
      {level !== pool.content && <Meaning sentences={["It applies to blocks stored from now on; stored blocks do not change.", CONTENTS[level]]} />}
    </Dialog>
  );
}
