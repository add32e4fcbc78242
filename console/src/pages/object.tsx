/** One object: what is known of it, and how it is treated. */

import type { ComponentChildren } from "preact";
import type { ObjectView } from "../api-objects";
import { bytes, counted } from "../format";
import { Policy } from "../insight/policy";
import { Preload } from "../insight/preload";
import { usePolled } from "../live/polled";
import { part } from "../rest";
import { href } from "../route";
import { Chip, Figure, Panel, Trouble } from "../ui/basics";
import { pieces, policyOf, shareOf, sizeOf } from "../words/objects";

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

function Fact({ what, children }: { what: string; children: ComponentChildren }) {
  return (
    <div>
      <dt>{what}</dt>
      <dd>{children}</dd>
    </div>
  );
}
