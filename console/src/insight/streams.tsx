/** Who reads and writes: streams told apart by what they do. */

import type { StreamView, VolumeView } from "../api";
import { bytes, count, span } from "../format";
import { usePolled } from "../live/polled";
import { href } from "../route";
import { Panel } from "../ui/basics";
import { Table, type Column } from "../ui/table";
import { sentence } from "../ui/toast";

const EVERY_MS = 5000;

const COLUMNS: Column<StreamView>[] = [
  ["Class", (stream) => stream.class],
  ["Known by", (stream) => stream.evidence],
  ["Who", (stream) => stream.who ?? "–"],
  ["Requests", (stream) => count(stream.requests), "right"],
  ["Read past the cache", (stream) => bytes(stream.read_bytes), "right"],
  ["Written", (stream) => bytes(stream.written_bytes), "right"],
  [
    "Last",
    (stream) => (stream.idle_ms < 1000 ? "now" : `${span(Math.round(stream.idle_ms / 1000))} ago`),
    "right",
  ],
];

export function StreamTable({ streams }: { streams: StreamView[] }) {
  if (streams.length === 0)
    return (
      <p class="calm">No requests yet. Reads that the cache answers alone are not looked at.</p>
    );
  const sorted = [...streams].sort(
    (a, b) => b.read_bytes + b.written_bytes - a.read_bytes - a.written_bytes,
  );
  return (
    <div class="table-box">
      <Table columns={COLUMNS} rows={sorted} />
    </div>
  );
}

/** Of a volume. One that does not run is not watched. */
export function Streams({ volume }: { volume: VolumeView }) {
  const runs = volume.health !== "failed" && volume.health !== "stopped";
  const { value, error } = usePolled<StreamView[]>(runs ? "/streams" : null, EVERY_MS, {
    name: volume.name,
  });
  return (
    <Panel
      title="Streams"
      id="streams"
      aside={
        <span class="muted">
          writes, and reads that the cache did not answer;{" "}
          <a href={href({ page: "advice", name: volume.name })}>how much SSD it needs</a>
        </span>
      }
    >
      {!runs || error?.status === 404 ? (
        <p class="calm">It is not watched{runs ? "" : " while it does not run"}.</p>
      ) : value ? (
        <StreamTable streams={value} />
      ) : (
        !error && <p class="calm">Asking…</p>
      )}
      {error && error.status !== 404 && <p class="wrong">{sentence(error.detail)}</p>}
    </Panel>
  );
}
