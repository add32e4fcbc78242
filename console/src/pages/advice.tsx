/** How much SSD a load needs: what is watched, and the advice for the one that is chosen. */

import { useState } from "preact/hooks";
import type { AnalysisView } from "../api";
import { AdviceOf } from "../insight/advice-of";
import { StartTrial } from "../insight/start-trial";
import { bytes, span } from "../format";
import { usePolled } from "../live/polled";
import { href } from "../route";
import { Badge, Empty, Panel, Trouble } from "../ui/basics";
import { Operate } from "../ui/operate";
import { Table, type Column } from "../ui/table";
import { STATES, watches } from "../words/insight";

const EVERY_MS = 10_000;

export function Advice({ name }: { name: string | undefined }) {
  const { value: loads, error } = usePolled<AnalysisView[]>("/analyses", EVERY_MS);
  const [starting, setStarting] = useState(false);
  // The busiest one, as it was when the page was opened: the choice does not wander.
  const [first, setFirst] = useState<string | null>(null);
  if (loads && loads.length > 0 && first === null)
    setFirst(loads.reduce((most, load) => (load.read_bytes > most.read_bytes ? load : most)).name);
  const wanted = name ?? first;
  const chosen = loads?.find((load) => load.name === wanted);
  return (
    <>
      <div class="page-head">
        <div>
          <h1 tabIndex={-1}>Advice</h1>
          <p class="page-sub">How much SSD brings which share of hits</p>
        </div>
        <Operate onClick={() => setStarting(true)}>Start a trial</Operate>
      </div>
      {error && <Trouble tone="bad" problem={error.detail} remedy={error.remedy} />}
      {loads?.length === 0 && (
        <Empty title="Nothing is watched.">
          <p>
            Volumes are watched while they run, unless insight.enabled is false in the
            configuration. A trial watches a device that hearth does not use yet.
          </p>
        </Empty>
      )}
      {loads && loads.length > 0 && <Loads loads={loads} chosen={chosen?.name} />}
      {loads && wanted !== null && !chosen && (
        <Empty title={`Nothing is watched under the name ${wanted}.`} />
      )}
      {chosen && (
        <AdviceOf key={chosen.name} load={chosen} title={`How much SSD ${chosen.name} needs`} />
      )}
      {starting && (
        <StartTrial
          taken={(loads ?? []).map((load) => load.name)}
          onClose={() => setStarting(false)}
        />
      )}
    </>
  );
}

const columns = (chosen: string | undefined): Column<AnalysisView>[] => [
  [
    "Name",
    ({ name }) => (
      <a href={href({ page: "advice", name })} aria-current={name === chosen ? "true" : undefined}>
        {name}
      </a>
    ),
  ],
  ["Watches", watches],
  ["State", ({ state }) => <Badge tone={STATES[state].tone}>{STATES[state].word}</Badge>],
  ["For", (load) => span(Math.round(load.window_ms / 1000)), "right"],
  ["Read", (load) => bytes(load.read_bytes), "right"],
  ["Scans and backups", (load) => bytes(load.scanned_bytes), "right"],
  ["Written", (load) => bytes(load.written_bytes), "right"],
  [
    "More",
    ({ name }) => (
      <a href={href({ page: "analysis", name })} aria-label={`Details of ${name}`}>
        Details
      </a>
    ),
    "right",
  ],
];

function Loads({ loads, chosen }: { loads: AnalysisView[]; chosen: string | undefined }) {
  return (
    <Panel title="What is watched" id="loads">
      <div class="table-box tall" tabIndex={0} role="region" aria-label="Volumes and analyses">
        <Table columns={columns(chosen)} rows={loads} chosen={(load) => load.name === chosen} />
      </div>
    </Panel>
  );
}
