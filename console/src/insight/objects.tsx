/** The objects of one application, by database. */

import { useState } from "preact/hooks";
import type { ApplicationView, ObjectView } from "../api-objects";
import { bringsNow, SmallCurve } from "../charts/small-curve";
import { bytes, count, counted } from "../format";
import { usePolled } from "../live/polled";
import { ssdOf } from "../live/store";
import { part } from "../rest";
import { href } from "../route";
import { Panel, Trouble } from "../ui/basics";
import { Table, type Column } from "../ui/table";
import { brings, kindOf, policyOf, shareOf, sizeOf } from "../words/objects";
import { SORTS, tree, type Branch, type Row, type Sort } from "./tree";

const EVERY_MS = 15_000;
/** Objects that are asked for, and rows that are shown at most: a page of more is slow to draw. */
const ASKED = 5000;
const ROWS_MAX = 250;

export function Objects({ volume, application }: { volume: string; application: ApplicationView }) {
  const [sort, setSort] = useState<Sort>("heat");
  const [filter, setFilter] = useState("");
  const path = `/objects?volume=${part(volume)}&application=${application.id}&sort=${sort}&limit=${ASKED}`;
  const { value: objects, error } = usePolled<ObjectView[]>(path, EVERY_MS);
  const { branches, dictionary, fitting, hidden } = tree(objects ?? [], sort, filter, ROWS_MAX);
  const curves = (objects ?? []).map((object) => object.curve).filter((curve) => curve.length > 0);
  // All to one scale: a curve twice as high brings twice as much.
  const top = Math.max(...curves.map((curve) => curve[curve.length - 1]!.hits_percent), 1);
  const now = ssdOf(volume);
  const whole = application.version ?? application.engine;
  return (
    <Panel
      title={`Objects of ${whole} on ${volume}`}
      id="objects"
      aside={
        <span class="filters">
          <span class="segments" role="group" aria-label="Sorted by">
            {SORTS.map((word) => (
              <button key={word} type="button" aria-pressed={sort === word} onClick={() => setSort(word)}>
                by {word}
              </button>
            ))}
          </span>
          <label class="field-inline search">
            <span>Filter</span>
            <input type="search" value={filter} spellcheck={false} onInput={(event) => setFilter(event.currentTarget.value)} />
          </label>
        </span>
      }
    >
      {error && <Trouble tone="bad" problem={error.detail} remedy={error.remedy} />}
      {!objects && !error && <p class="calm">Asking…</p>}
      {objects && fitting === 0 && <p class="calm">{objects.length === 0 ? "It has no objects." : `Nothing here fits "${filter.trim()}".`}</p>}
      {branches.map((branch) => (
        <details key={branch.database} open class="branch">
          <summary>
            <strong>{branch.database ?? "Of no database"}</strong> <Totals of={branch} />
          </summary>
          <div class="table-box">
            <Table columns={columns(top, now)} rows={branch.rows} />
          </div>
        </details>
      ))}
      {dictionary && <Dictionary of={dictionary} filtered={filter.trim() !== ""} columns={columns(top, now)} />}
      {objects && (
        <p class="muted hint">
          {hidden > 0 && `${count(hidden)} more fit; filter to see them. `}
          {objects.length >= ASKED && `Only the first ${count(ASKED)} by ${sort} were looked through. `}
          Heat is what was read in the last day at most, seen by the cache; it is estimated from a sample.{" "}
          {curves[0]
            ? `What an object brings is its part of ${volume}'s hits, among all reads of blocks used before: the curve is over SSD from ${bytes(curves[0][0]!.ssd_bytes)} to ${bytes(curves[0].at(-1)!.ssd_bytes)}${now === null ? "" : `, the line and the figure are for the ${bytes(now)} that there are`}.`
            : "What objects bring is told when enough was read again."}
        </p>
      )}
    </Panel>
  );
}

const Totals = ({ of }: { of: Branch }) => (
  <span class="muted">
    {counted(of.objects, "object")}, {bytes(of.bytes)}, {bytes(of.read_bytes)} read
  </span>
);

/** One line until it is opened: a server has hundreds of objects of its own. What a filter finds in it is shown. */
function Dictionary({ of, filtered, columns }: { of: Branch; filtered: boolean; columns: Column<Row>[] }) {
  const [chosen, setChosen] = useState<boolean | null>(null);
  const open = chosen ?? filtered;
  const toggle = (event: Event): void => {
    event.preventDefault();
    setChosen(!open);
  };
  return (
    <details class="branch dictionary" open={open}>
      <summary onClick={toggle}>
        <strong>The server's dictionary</strong> <Totals of={of} />
      </summary>
      {open && (
        <div class="table-box">
          <Table columns={columns} rows={of.rows} />
        </div>
      )}
    </details>
  );
}

const columns = (top: number, now: number | null): Column<Row>[] => [
  [
    "Object",
    ({ object, inside }) => (
      <a class={inside ? "inside" : undefined} href={href({ page: "object", volume: object.volume, id: object.id })}>
        {object.name}
      </a>
    ),
  ],
  ["Kind", ({ object }) => kindOf(object)],
  ["Read", ({ object }) => bytes(object.read_bytes), "right"],
  ["Hits", ({ object }) => shareOf(object.hits_percent), "right"],
  [
    "Brings",
    ({ object: { curve } }) =>
      curve.length === 0 ? (
        "–"
      ) : (
        <span class="brings">
          <SmallCurve curve={curve} top={top} now={now} />
          <span>{brings(bringsNow(curve, now))}</span>
        </span>
      ),
    "right",
  ],
  ["Written", ({ object }) => bytes(object.written_bytes), "right"],
  ["Size", ({ object }) => sizeOf(object), "right"],
  ["Policy", ({ object }) => policyOf(object)],
];
