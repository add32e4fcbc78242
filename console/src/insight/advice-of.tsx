/** The advice for one load: the curve, what shares of hits take, and what is still missing. */

import { useState } from "preact/hooks";
import type { AdviceView, AnalysisView, TargetView } from "../api";
import { pointsOf } from "../charts/curve";
import { SizeCurve } from "../charts/size-curve";
import { bytes, microseconds, span, timeOfDay } from "../format";
import { mayOperate } from "../live/store";
import { Panel, Trouble } from "../ui/basics";
import { Table, type Column } from "../ui/table";
import { goesOn, nothingTold, notYet, restsOn, share, windowTold } from "../words/insight";
import { Act, ByObject } from "./act";
import { useAdvice } from "./ask";

export function AdviceOf({ load, title }: { load: AnalysisView; title: string }) {
  const [withBackups, setWithBackups] = useState(false);
  const { told, error, asking, again } = useAdvice(load.name, withBackups, goesOn(load));
  if (!mayOperate.value) {
    return (
      <Panel title={title} id="advice">
        <p class="calm">
          Advice costs the daemon seconds of computing, so that the role operate is needed to ask
          for it.
        </p>
      </Panel>
    );
  }
  const aside = (
    <span class="advice-aside no-print">
      <label class="check">
        <input
          type="checkbox"
          role="switch"
          checked={withBackups}
          onChange={(event) => setWithBackups(event.currentTarget.checked)}
        />
        <span>with scans and backups</span>
      </label>
      <button type="button" class="button small" disabled={asking} onClick={again}>
        {asking ? "Asking…" : "Ask again"}
      </button>
    </span>
  );
  return (
    <Panel title={title} id="advice" aside={aside}>
      <div class="advice" aria-busy={asking}>
        <p class="muted" role="status">
          {told && (
            <>
              {windowTold(told.view)}; told at {timeOfDay(told.unix_ms / 1000)}.{" "}
            </>
          )}
          {asking && "Trying caches of several sizes: this takes some seconds…"}
        </p>
        {error && <Trouble tone="bad" problem={error.detail} remedy={error.remedy} />}
        {told && <Shown view={told.view} load={load} />}
      </div>
    </Panel>
  );
}

function Shown({ view, load }: { view: AdviceView; load: AnalysisView }) {
  const known = view.targets.filter((target) => target.ssd_bytes !== null);
  const missing = notYet(view.targets);
  const nothing = nothingTold(view);
  const volume = load.source === "volume" ? load.of : undefined;
  return (
    <>
      {pointsOf(view).length > 1 && <SizeCurve key={String(view.with_backups)} advice={view} />}
      {known.length > 0 && (
        <div class="table-box">
          <Table columns={COLUMNS} rows={known} />
        </div>
      )}
      <ByObject objects={view.objects} volume={volume} />
      {nothing && <h3>Nothing can be told yet</h3>}
      {missing.length > 0 && (
        <ul class="plain">
          {missing.map(({ shares, why, more_ms }) => (
            <li key={why}>
              <strong>{shares}: not yet:</strong> {why}
              {more_ms === null
                ? "."
                : `; about ${span(Math.max(1, Math.round(more_ms / 1000)))} more.`}
            </li>
          ))}
        </ul>
      )}
      {nothing && (
        <p class="muted no-print">
          {goesOn(load)
            ? "It is asked again every 30 seconds, as long as this page is open."
            : "It has ended, so that no more will be known of it."}
        </p>
      )}
      {view.sentences.length > 0 && (
        <ul class="verdict">
          {view.sentences.map((text) => (
            <li key={text}>{text}</li>
          ))}
        </ul>
      )}
      {!nothing && volume !== undefined && <Act view={view} />}
      {!nothing && <p class="muted hint">{restsOn(view, load.mode).join(" ")}</p>}
    </>
  );
}

const size = (value: number | null): string => (value === null ? "–" : bytes(value));

const COLUMNS: Column<TargetView>[] = [
  ["Hits", share],
  [
    "SSD needed",
    (target) => <strong>{target.ssd_bytes === 0 ? "none: RAM" : size(target.ssd_bytes)}</strong>,
    "right",
  ],
  [
    "Band",
    (target) =>
      target.ssd_bytes === 0
        ? "–"
        : `${size(target.ssd_bytes_low)} to ${size(target.ssd_bytes_high)}`,
    "right",
  ],
  [
    "A read takes",
    (target) => (target.read_us === null ? "–" : microseconds(target.read_us)),
    "right",
  ],
  ["Would be written to the SSD a day", (target) => size(target.ssd_written_bytes_per_day), "right"],
];
