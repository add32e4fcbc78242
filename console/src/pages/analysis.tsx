/** One analysis, or the watch of a volume: what was seen, and what hearth would do there. */

import { useState } from "preact/hooks";
import type { AnalysisView } from "../api";
import { AdviceOf } from "../insight/advice-of";
import { StreamTable } from "../insight/streams";
import { bytes, counted, dateTime, span } from "../format";
import { usePolled } from "../live/polled";
import { part, post, remove } from "../rest";
import { go, href } from "../route";
import { Badge, Figure, Panel, Trouble } from "../ui/basics";
import { Dialog, Meaning } from "../ui/dialog";
import { Operate } from "../ui/operate";
import { away, goesOn, sample, STATES } from "../words/insight";

const EVERY_MS = 5000;

export function AnalysisPage({ name }: { name: string }) {
  const {
    value: analysis,
    error,
    again,
  } = usePolled<AnalysisView>(`/analyses/${part(name)}`, EVERY_MS);
  if (!analysis) {
    return (
      <div class="empty large">
        <h1 tabIndex={-1}>
          {error
            ? error.status === 404
              ? `Nothing is watched under the name ${name}`
              : error.detail
            : name}
        </h1>
        {error ? (
          <p>
            It may have been forgotten, or the volume does not run.{" "}
            <a href="#/advice">All that is watched</a>
          </p>
        ) : (
          <p>Asking the daemon…</p>
        )}
      </div>
    );
  }
  return <Known analysis={analysis} again={again} />;
}

function Known({ analysis, again }: { analysis: AnalysisView; again: () => void }) {
  const { tone, word } = STATES[analysis.state];
  const trial = analysis.source === "device";
  const by = analysis.tap ? ` by ${analysis.tap}` : "";
  const requests = counted(analysis.lost_requests, "request");
  const lost = analysis.lost_requests > 0 ? `; ${requests} not looked at` : "";
  return (
    <>
      <p class="crumbs no-print">
        <a href="#/advice">Advice</a>
      </p>
      <div class="page-head">
        <div>
          <h1 tabIndex={-1}>
            {analysis.name} <Badge tone={tone}>{word}</Badge>
          </h1>
          <p class="page-sub">
            {trial ? "Trial of " : `Watches the ${analysis.source} `}
            {analysis.source === "volume" ? (
              <a href={href({ page: "volume", name: analysis.of })}>{analysis.of}</a>
            ) : (
              <code>{analysis.of}</code>
            )}
            {trial && `, watched from outside${by}: nothing is written to it`}
          </p>
          <p class="page-sub print-only">Printed {dateTime(Date.now() / 1000)}</p>
        </div>
        <Actions analysis={analysis} again={again} />
      </div>
      {analysis.problem && <Trouble tone="bad" problem={analysis.problem} remedy={null} />}
      <dl class="figures" aria-label="What was seen">
        <Figure
          label={goesOn(analysis) ? "Watched so far" : "Watched"}
          value={span(Math.round(analysis.window_ms / 1000))}
          note={`${away(analysis)}writes taken as in ${analysis.mode}`}
        />
        <Figure
          label="Read"
          value={bytes(analysis.read_bytes)}
          note={`of ${bytes(analysis.touched_bytes)} of different blocks`}
        />
        <Figure
          label="Scans and backups"
          value={bytes(analysis.scanned_bytes)}
          note="read beside that"
        />
        <Figure label="Written" value={bytes(analysis.written_bytes)} />
        <Figure
          label="Sample"
          value={sample(analysis.sampled_share)}
          note={`blocks${lost}; at most ${bytes(analysis.memory_bytes)} of memory`}
        />
      </dl>
      <AdviceOf
        load={analysis}
        title={
          trial || analysis.source === "trace"
            ? "What hearth would do here"
            : "How much SSD it needs"
        }
      />
      <Panel title="Streams" id="streams" aside={<span class="muted">who reads and writes</span>}>
        <StreamTable streams={analysis.streams} />
      </Panel>
    </>
  );
}

type Kind = "stop" | "forget";

function Actions({ analysis, again }: { analysis: AnalysisView; again: () => void }) {
  const [open, setOpen] = useState<Kind | null>(null);
  return (
    <div class="actions no-print">
      <button type="button" class="button" onClick={() => print()}>
        Print
      </button>
      {analysis.named && goesOn(analysis) && (
        <Operate onClick={() => setOpen("stop")}>Stop</Operate>
      )}
      {analysis.named && (
        <Operate kind="danger" onClick={() => setOpen("forget")}>
          Forget
        </Operate>
      )}
      {open && (
        <Confirm kind={open} analysis={analysis} again={again} onClose={() => setOpen(null)} />
      )}
    </div>
  );
}

function Confirm({
  kind,
  analysis,
  again,
  onClose,
}: {
  kind: Kind;
  analysis: AnalysisView;
  again: () => void;
  onClose: () => void;
}) {
  const path = `/analyses/${part(analysis.name)}`;
  const stop = async (): Promise<void> => {
    await post<AnalysisView>(`${path}/stop`);
    again();
  };
  const forget = async (): Promise<void> => {
    await remove(path);
    go({ page: "advice" });
  };
  const asked =
    kind === "stop"
      ? {
          word: "Stop",
          does: stop,
          means: "No more is seen of it; what it found stays. It cannot go on afterwards.",
        }
      : {
          word: "Forget",
          does: forget,
          means: "All that it found is gone. What it watched does not change.",
        };
  return (
    <Dialog
      title={`${asked.word} ${analysis.name}`}
      confirm={`${asked.word} it`}
      danger={kind === "forget"}
      onConfirm={asked.does}
      onClose={onClose}
    >
      <Meaning sentences={[asked.means]} />
    </Dialog>
  );
}
