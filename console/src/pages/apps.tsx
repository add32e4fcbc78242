/** Applications found on volumes, and the objects of the one that is chosen. */

import type { JobView } from "../api";
import type { ApplicationView, VolumeApplications } from "../api-objects";
import { bytes, count, counted, span } from "../format";
import { Objects } from "../insight/objects";
import { attempt } from "../live/connection";
import { usePolled } from "../live/polled";
import { takeJob } from "../live/store";
import { part, post } from "../rest";
import { href } from "../route";
import { Badge, Chip, Empty, Panel, Trouble } from "../ui/basics";
import { Operate } from "../ui/operate";
import { Table, type Column } from "../ui/table";
import { sentence, toast } from "../ui/toast";
import { exact } from "../volume/why";
import { pieces, stateOf, unknownShare } from "../words/objects";

const EVERY_MS = 5000;

/** An application and where it is. */
interface Placed {
  of: VolumeApplications;
  app: ApplicationView;
}

export function Applications({ volume, id }: { volume: string | undefined; id: number | undefined }) {
  const { value: told, error, again } = usePolled<VolumeApplications[]>("/applications", EVERY_MS);
  const all = (told ?? []).flatMap((of) => of.applications.map((app): Placed => ({ of, app })));
  const largest = all.reduce<Placed | undefined>(
    (most, one) => (most && most.app.bytes >= one.app.bytes ? most : one),
    undefined,
  );
  const chosen =
    volume === undefined
      ? largest
      : all.find(({ of, app }) => of.volume === volume && app.id === id);
  return (
    <>
      <div class="page-head">
        <div>
          <h1 tabIndex={-1}>Applications</h1>
          <p class="page-sub">Databases found on volumes by their pages and files, without a login</p>
        </div>
      </div>
      {error && <Trouble tone="bad" problem={error.detail} remedy={error.remedy} />}
      {!told && !error && <p class="calm">Asking the daemon…</p>}
      {told?.length === 0 && (
        <Empty title="No volume is watched.">
          <p>Volumes are looked at while they run, unless insight.enabled is false in the configuration.</p>
        </Empty>
      )}
      {told && told.length > 0 && (
        <>
          <Panel title="What was found" id="found">
            {all.length === 0 ? (
              <p class="calm">No application so far. Pages of InnoDB, PostgreSQL, SQL Server and others are known.</p>
            ) : (
              <div class="table-box tall" tabIndex={0} role="region" aria-label="Applications">
                <Table columns={APPS} rows={all} chosen={({ app, of }) => app === chosen?.app && of === chosen.of} />
              </div>
            )}
          </Panel>
          <Panel title="Volumes" id="looked">
            <div class="table-box tall" tabIndex={0} role="region" aria-label="Volumes that are looked at">
              <Table columns={volumesWith(again)} rows={told} />
            </div>
          </Panel>
        </>
      )}
      {told && volume !== undefined && !chosen && (
        <Empty title={`There is no application of the number ${id} on ${volume}.`} />
      )}
      {chosen && (
        <Objects key={`${chosen.of.volume} ${chosen.app.id}`} volume={chosen.of.volume} application={chosen.app} />
      )}
    </>
  );
}

export const nameOf = (app: ApplicationView): string => app.version ?? app.engine;

const APPS: Column<Placed>[] = [
  [
    "Application",
    ({ of, app }) => <a href={href({ page: "apps", volume: of.volume, id: app.id })}>{nameOf(app)}</a>,
  ],
  ["Volume", ({ of }) => <a href={href({ page: "volume", name: of.volume })}>{of.volume}</a>],
  ["Data directory", ({ app }) => (app.instance === null ? "in no known file system" : <code>{app.instance}</code>)],
  ["Known by", ({ app }) => pieces(app.evidence).map((piece) => <Chip key={piece}>{piece}</Chip>)],
  ["Server", ({ app }) => <Server connection={app.connection} />],
  ["Databases", ({ app }) => count(app.databases.length), "right"],
  ["Objects", ({ app }) => count(app.objects), "right"],
  ["Size", ({ app }) => bytes(app.bytes), "right"],
];

/** Whether the server itself is asked for names and sessions. */
function Server({ connection }: { connection: ApplicationView["connection"] }) {
  if (connection === null) return <>not asked</>;
  if (connection.problem !== null)
    return (
      <>
        <Badge tone="warn">no answer</Badge>
        <span class="under">{sentence([connection.problem, connection.remedy].filter((text) => text !== null).join("; "))}</span>
      </>
    );
  return <>{connection.server === null ? "not answered yet" : `connected, ${counted(connection.sessions, "session")}`}</>;
}

const volumesWith = (again: () => void): Column<VolumeApplications>[] => [
  ["Volume", ({ volume }) => volume],
  [
    "State",
    (of) => {
      const { tone, word } = stateOf(of);
      return (
        <>
          <Badge tone={tone}>{word}</Badge>
          {of.problem && <span class="under">{sentence(of.problem)}</span>}
        </>
      );
    },
  ],
  ["Unknown blocks", unknownShare, "right"],
  ["Without names", (of) => <Blind of={of} />],
  [
    "Last look",
    (of) =>
      of.age_ms === null
        ? "–"
        : `${span(Math.round(of.age_ms / 1000))} ago, ${bytes(of.looked_at_bytes)} read`,
  ],
  [
    "Look",
    (of) => (
      <Operate label={`Look again at ${of.volume}`} disabled={of.state === "looking"} onClick={() => void look(of.volume, again)}>
        Look again
      </Operate>
    ),
    "right",
  ],
];

async function look(volume: string, again: () => void): Promise<void> {
  const job = await attempt(`Looking at ${volume}`, () => post<JobView>(`/volumes/${part(volume)}/discover`));
  if (!job) return;
  takeJob(job);
  toast({ kind: "done", title: `${volume} is looked at again`, detail: "see the job" });
  again();
}

/** Regions of which nothing is told, with the reason. */
function Blind({ of }: { of: VolumeApplications }) {
  if (of.blind.length === 0) return <>{of.state === "found" ? "none" : "–"}</>;
  return (
    <details>
      <summary>{counted(of.blind.length, "region")}</summary>
      <ul class="plain">
        {of.blind.map((blind) => (
          <li key={blind.start_bytes}>
            {exact(blind.start_bytes)} to {exact(blind.end_bytes)}: {blind.reason}
          </li>
        ))}
      </ul>
    </details>
  );
}
