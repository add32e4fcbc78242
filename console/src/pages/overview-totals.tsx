/** Sums over all volumes, and which volume stands out. */

import { bytes, bytesPerSecond, count, counted, percent, span } from "../format";
import { volumes } from "../live/store";
import { newest } from "../live/volumes";
import { dirtiest } from "../live/dirtiest";
import { href } from "../route";
import { Figure } from "../ui/basics";

export function Totals() {
  const sample = newest.value;
  const all = Object.values(sample?.volumes ?? {});
  const sum = (of: (volume: (typeof all)[number]) => number): number => all.reduce((total, volume) => total + of(volume), 0);
  const reads = sum((volume) => (volume.hit_ratio === null ? 0 : volume.reads_s));
  const hits = sum((volume) => (volume.hit_ratio ?? 0) * volume.reads_s);
  const troubled = volumes.value.filter((volume) => ["failed", "failing", "degraded"].includes(volume.health));
  const worst = troubled[0];
  const top = dirtiest.value;
  const known = sample !== null;
  const savedBytes = sum((volume) => volume.saved.backing_bytes);
  return (
    <dl class="figures totals" aria-label="All volumes together">
      <Figure
        label="Volumes"
        value={volumes.value.length}
        note={worst ? <a class="warn-text" href={href({ page: "volume", name: worst.name })}>{counted(troubled.length, "volume")} in trouble: {worst.name}</a> : "all in order"}
      />
      <Figure label="IOPS" value={known ? count(sum((volume) => volume.reads_s + volume.writes_s)) : "–"} note={known ? bytesPerSecond(sum((volume) => volume.read_bytes_s + volume.written_bytes_s)) : ""} />
      <Figure label="Hit rate of reads" value={known && reads > 0 ? percent(hits / reads) : "–"} note={known ? `${count(reads)} reads/s` : ""} />
      <Figure
        label="Dirty"
        value={known ? `${bytes(sum((volume) => volume.dirty_bytes ?? 0))}${all.some((volume) => volume.dirty_bytes === null) ? " + unknown" : ""}` : "–"}
        note={top ? <>most: <a href={href({ page: "volume", name: top.name })}>{top.name}</a>, {bytes(top.dirty_bytes)}</> : all.some((volume) => volume.dirty_bytes === null) ? "of some volumes it is not known" : "everything is at home"}
      />
      <Figure label="Backing I/O saved" value={known ? count(sum((volume) => volume.saved.backing_ios)) : "–"} note={known && savedBytes > 0 ? bytes(savedBytes) : "I/Os of the disks"} title="Since the daemon's start: I/Os that the backing devices did not have to do, and bytes; filling the cache costs bytes at first" />
      <Figure label="Waiting saved" value={known ? span(sum((volume) => volume.saved.waiting_s)) : "–"} note="since the start" title="Time that clients did not wait for the disks, by what misses take; never more than the time they had" />
    </dl>
  );
}
