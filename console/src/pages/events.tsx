/** What happened, newest first, live. */

import { signal } from "@preact/signals";
import type { EventView, Severity } from "../api";
import { dateTime } from "../format";
import { events, pools, volumes } from "../live/store";
import { href } from "../route";
import { Badge } from "../ui/basics";
import { sentence } from "../ui/toast";
import type { Tone } from "../words/health";

const TONES: Record<Severity, Tone> = { info: "busy", warning: "warn", error: "bad" };
const ORDER: Severity[] = ["info", "warning", "error"];
const least = signal<Severity>("info");
const object = signal("");
/** So many are drawn at first. */
const PAGE = 100;
const shownMost = signal(PAGE);

export function Events() {
  const all = events.value;
  const objects = [...new Set(all.map((event) => event.object))].sort();
  const fits = (event: EventView): boolean => ORDER.indexOf(event.severity) >= ORDER.indexOf(least.value) && (object.value === "" || event.object === object.value);
  const found = all.filter(fits).reverse();
  return (
    <>
      <div class="page-head">
        <h1 tabIndex={-1}>Events</h1>
        <div class="filters">
          <label class="field-inline"><span>At least</span>
            <select value={least.value} onChange={(event) => (least.value = event.currentTarget.value as Severity)}>
              {ORDER.map((severity) => <option key={severity} value={severity}>{severity}</option>)}
            </select>
          </label>
          <label class="field-inline"><span>Of</span>
            <select value={object.value} onChange={(event) => (object.value = event.currentTarget.value)}>
              <option value="">everything</option>
              {objects.map((name) => <option key={name} value={name}>{name}</option>)}
            </select>
          </label>
        </div>
      </div>
      {found.length === 0 && <div class="empty"><p><strong>{all.length === 0 ? "Nothing has happened since the daemon's start." : "No event fits the filter."}</strong></p></div>}
      <ol class="events" aria-label="Events, newest first" aria-live="polite" aria-relevant="additions">
        {found.slice(0, shownMost.value).map((event) => (
          <li key={event.number} class={event.severity}>
            <time dateTime={new Date(event.unix_s * 1000).toISOString()}>{dateTime(event.unix_s)}</time>
            <Badge tone={TONES[event.severity]} icon={event.severity === "info" ? "info" : "alert"}>{event.severity}</Badge>
            <span class="event-object"><ObjectLink name={event.object} /></span>
            <span class="event-text">{sentence(event.message)}</span>
          </li>
        ))}
      </ol>
      {found.length > shownMost.value && <button type="button" class="button" onClick={() => (shownMost.value += PAGE)}>Show more of {found.length}</button>}
    </>
  );
}

function ObjectLink({ name }: { name: string }) {
  if (volumes.value.some((volume) => volume.name === name)) return <a href={href({ page: "volume", name })}>{name}</a>;
  if (pools.value.some((pool) => pool.name === name)) return <a href={href({ page: "pool", name })}>{name}</a>;
  return <>{name}</>;
}
