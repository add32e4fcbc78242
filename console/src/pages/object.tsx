/** One object: what is known of it, and how it is treated. */

import type { ComponentChildren } from "preact";
import type { ObjectPoint, ObjectView } from "../api-objects";
import { bringsNow, SmallCurve } from "../charts/small-curve";
import { bytes, counted } from "../format";
import { Policy } from "../insight/policy";
import { Preload } from "../insight/preload";
import { usePolled } from "../live/polled";
import { ssdOf } from "../live/store";
import { part } from "../rest";
import { href } from "../route";
import { Chip, Figure, Panel, Trouble } from "../ui/basics";
import { Table, type Column } from "../ui/table";
import { brings, pieces, policyOf, shareOf, sizeOf } from "../words/objects";

const EVERY_MS = 10_000;

export function ObjectPage({ volume, id }: { volume: string; id: number }) {
  const { value, error, again } = usePolled<ObjectView[]>(`/objects?volume=${part(volume)}&object=${id}`, EVERY_MS);
  // A name may be a number, too.
  const object = value?.find((one) => one.id === id);
  if (!object) {
    const missing = error?.status === 404 || value !== null;
    return (
      <div class="empty large">
        <h1 tabIndex={-1}>{missing ? `There is no object ${id} on ${volume}` : (error?.detail ?? `Object ${id}`)}</h1>
        {missing ? (
          <p>
            It may have been dropped, or is not found yet. <a href="#/apps">All applications</a>
          </p>
        ) : (
          <p>{error?.remedy ?? "Asking the daemon…"}</p>
        )}
      </div>
    );
  }
  return (
    <>
      <p class="crumbs">
        <a href="#/apps">Applications</a> › <a href={href({ page: "apps", volume, id: object.application })}>{object.engine} on {volume}</a>
      </p>
      <div class="page-head">
        <div>
          <h1 tabIndex={-1}>{object.name}</h1>
          <p class="page-sub">
            {object.kind}
            {object.database !== null && ` of the database ${object.database}`}
          </p>
        </div>
        <div class="actions">
          <Preload object={object} />
        </div>
      </div>
      {error && <Trouble tone="bad" problem={error.detail} remedy={error.remedy} />}
      <dl class="figures" aria-label="Its use">
        <Figure label="Read" value={bytes(object.read_bytes)} note="in a day at most, estimated" />
        <Figure label="Hits" value={shareOf(object.hits_percent)} note="of that" />
        <Figure label="Written" value={bytes(object.written_bytes)} />
        <Figure
          label="Size"
          value={sizeOf(object)}
          note={object.within === null ? `in ${counted(object.extents, "piece")}` : "part of another's file"}
        />
      </dl>
      <Panel title="What it brings" id="brings">
        <Brings object={object} />
      </Panel>
      <Panel title="What is known" id="facts">
        <dl class="places">
          <Fact what="First file">
            <code>{object.path.startsWith("/") ? object.path : `/${object.path}`}</code>
          </Fact>
          {object.within !== null && <Fact what="Lies within">{object.within}</Fact>}
          <Fact what="Known by">{pieces(object.evidence).map((piece) => <Chip key={piece}>{piece}</Chip>)}</Fact>
          <Fact what="Encrypted">{object.encrypted ? "yes: its pages do not say what they are" : "no"}</Fact>
          <Fact what="Number">{object.id} on <a href={href({ page: "volume", name: volume })}>{volume}</a></Fact>
          <Fact what="Policy now">{policyOf(object)}</Fact>
        </dl>
      </Panel>
      <Policy object={object} again={again} />
    </>
  );
}

const POINTS: Column<ObjectPoint>[] = [
  ["SSD", (point) => bytes(point.ssd_bytes)],
  ["Brings", (point) => brings(point.hits_percent), "right"],
];

/** Its part of the volume's hits, by the size of the SSD. */
function Brings({ object: { curve, volume } }: { object: ObjectView }) {
  const last = curve[curve.length - 1];
  if (!last) return <p class="calm">Hardly any hits; or too little of {volume} was read again so far.</p>;
  const now = ssdOf(volume);
  return (
    <figure class="chart object-curve">
      <figcaption>
        {now === null ? `With ${bytes(last.ssd_bytes)} of SSD` : `With the ${bytes(now)} of SSD that there are`},{" "}
        {brings(bringsNow(curve, now))} of all reads of blocks used before on {volume} are hits on this object
        {now !== null && `; at most ${brings(last.hits_percent)}`}.
      </figcaption>
      <SmallCurve curve={curve} top={Math.max(last.hits_percent, 0.1)} now={now} />
      <p class="ends muted">
        <span>{bytes(curve[0]!.ssd_bytes)}</span>
        {now !== null && <span>dashed: now</span>}
        <span>{bytes(last.ssd_bytes)} of SSD</span>
      </p>
      <details class="heat-table">
        <summary>The same as a table</summary>
        <div class="table-box">
          <Table columns={POINTS} rows={curve} />
        </div>
      </details>
    </figure>
  );
}

function Fact({ what, children }: { what: string; children: ComponentChildren }) {
  return (
    <div>
      <dt>{what}</dt>
      <dd>{children}</dd>
    </div>
  );
}
